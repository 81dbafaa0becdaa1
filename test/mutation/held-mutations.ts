/** These bound what requests hold in memory together, and what each of them keeps. */
import { mutationsOf } from './mutation.ts';

export const HELD_MUTATIONS = mutationsOf`
file program/held-bytes.ts
tests program/test/held-bytes.test.ts
bytes that are held belong to nobody
  - takeNow({ key: this.#account, weight: bytes })
  + takeNow({ weight: bytes })
  = an account keeps half of all there is, and leaves room for whoever comes
a request is counted, not its bytes
  - takeNow({ key: this.#account, weight: bytes })
  + takeNow({ key: this.#account })
  = what requests keep is counted together, whatever each of them may keep

file program/ports/http-guard.ts
tests control-plane/core/http/callers.test.ts: readers of result links
answers that nobody reads hold as much as they like
  - while (leftBytes > unreadBytesMax) {
  + while (leftBytes < 0 && unreadBytesMax > 0) {
  = whose answers hold too much go slowest first, of the account that holds most
who holds least gives way first
  - (other.bytes > one.bytes ? other : one)
  + (other.bytes < one.bytes ? other : one)
  = whose answers hold too much go slowest first, of the account that holds most

file control-plane/http/kept-bytes.ts
tests control-plane/http/kept-bytes.test.ts
a reader takes all it may keep before a byte came
  - const size = Math.min(wanted, this.#bytesMax);
  + const size = Math.max(wanted, this.#bytesMax);
  = a buffer grows by what came, in its room, and keeps nothing beyond its bound
a reader asks nobody for room
  - this.#room.grow(size - this.#bytes.length);
  + void this.#room;
  = what finds no room is not kept

file control-plane/http/bodies.ts
tests control-plane/http/kept-bytes.test.ts: a chunk that was read
who waits for the next chunk keeps the last one
  - pace.received(chunk.length);
  + pace.received(Object.assign(pace, { chunk }).chunk.length);
  = is kept by nobody who waits for the next one

file control-plane/http/json-fields.ts
tests control-plane/http/kept-bytes.test.ts: texts
texts of JSON are held without being counted
  - this.#room.grow(bytesOfText(text));
  + void this.#room;
  = are counted while they are read, and as what they become

file control-plane/http/multipart.ts
tests control-plane/http/kept-bytes.test.ts: texts
texts of parts are held without being counted
  - this.#room.grow(bytesOfText(text));
  + void this.#room;
  = of parts are counted so, too

file control-plane/core/submission/upload-slot.ts
tests control-plane/core/submission/waiting-uploads.test.ts
a body is read on while its upload waits
  - if (body === undefined || this.#slots.mayEnter(use)) return await this.#slots.take(use);
  + if (body === undefined || body !== null) return await this.#slots.take(use);
  = a body whose upload waits for its slot is not read on, and comes whole afterwards
tests control-plane/core/submission/waiting-uploads.test.ts: a picture and its background
both pictures of a request gather at once
  - if (before !== upload) await before?.writeGathered();
  + void before;
  = gather one after the other, and lose no byte of either

file control-plane/mcp/mcp-interface.ts
tests control-plane/mcp/half-sent-messages.test.ts: the rate
reads admit a message with a picture
  - await (isLargeMessage(request) ? submissions : reads).call(this, request, reply);
  + await reads.call(this, request, reply);
  = of submissions admits a message that announces more than a small one

file control-plane/mcp/read-message.ts
tests control-plane/mcp/half-sent-messages.test.ts: the rate
reads admit a message that becomes long
  - if (wasSmall && receivedBytes > SMALL_MESSAGE_BYTES_MAX) await admitLarge();
  + void [wasSmall, admitLarge];
  = of submissions admits a message that becomes long, before the rest is read
tests control-plane/mcp/half-sent-messages.test.ts: half-sent messages
a small message may take half a minute
  - wholeMsMax: SMALL_MESSAGE_MS_MAX,
  + wholeMsMax: 10 * SMALL_MESSAGE_MS_MAX,
  = that are small have some seconds in all, in chunks too

file control-plane/mcp/call-tools.ts
tests control-plane/mcp/half-sent-messages.test.ts
get_job holds a slot of uploads while it waits
  - await calling.image.abort();
  + void calling.image;
  = get_job with a long text beside it holds no slot of uploads while it waits
`;
