/** These bound what strangers may hold of a port: places, seconds, guesses. */
import { mutationsOf } from './mutation.ts';

export const PORT_MUTATIONS = mutationsOf`
file program/semaphore.ts
tests program/test/semaphore.test.ts: keys of a semaphore
as many wait for a semaphore as come
  - if (own >= waitingMax - this.#waiting) throw refusal();
  + void [own, waitingMax, refusal];
  = whose callers all wait leave others room to wait
one key takes all of a semaphore
  - this.heldBy(use.key) < free
  + free > 0
  = that hold their share keep no other out

file program/ports/grpc-guard.ts
tests control-plane/core/nodes/registry-server.test.ts: a connection to the registry
strangers may have as many connections to a gRPC port as they like
  - if (this.#strangers > this.#bounds.strangersMax) this.#makeRoom();
  = without the token keeps no node out
tests inference-node/serving/grpc/strangers.test.ts: a call with a wrong token
a call without a token sends as much as one with a token before it is refused
  - initialWindowSize: STRANGER_WINDOW_BYTES,
  = that sends its file at once hears why, in messages of a megabyte

file program/ports/http-guard.ts
tests program/ports/test/http-guard.test.ts: bodies on their way
strangers may have as many bodies on their way as they like
  - if (bodies.size > max) this.#end(
  + if (bodies.size < 0) this.#end(
  = of the network with most of them go first, its oldest before the others
a body that is whole is taken for one that is on its way
  - this.#awaited.get(least)?.complete !== true
  + least !== null
  = that are whole and unread are never the ones to go
tests program/ports/test/http-guard.test.ts: a port with few places left
who is known makes room before strangers
  - this.#least(this.#strangers) ?? this.#least(this.#accounts)
  + this.#least(this.#accounts) ?? this.#least(this.#strangers)
  = asks accounts last, and of them the one with most

file control-plane/http/connections.ts
tests control-plane/portal/session/half-sent-forms.test.ts: half-sent forms on the public port
a connection whose body is awaited makes no room
  - room.awaitBody(request.raw, reply.raw, owner);
  + void [room, owner, reply];
  = from one network keep no caller with a key out, and no form that is sent

file control-plane/core/http/operator-app.ts
tests control-plane/portal/session/half-sent-forms.test.ts: half-sent forms on the operator's port
the operator's port awaits bodies without a bound
  - awaitBodies(app, room);
  + void [awaitBodies, room];
  = from one network keep no scraper and no key out

file control-plane/core/http/operator-app.ts
tests control-plane/core/http/operator-app.test.ts
metrics go to a page whose name leads here
  - isSentByService(headers) || !isOwnHost(headers.host ?? '', own)
  + isSentByService(headers)
  = metrics › need no key where their reader chose to ask
metrics go to a download of the service
  - isSentByService(headers) || !isOwnHost(headers.host ?? '', own)
  + !isOwnHost(headers.host ?? '', own)
  = metrics › need no key where their reader chose to ask

file inference-node/serving/node-state.ts
tests inference-node/serving/http-endpoints.test.ts
a node tells figures to everybody who was led to it
  - const isChosen = !isSentByService(headers) && isOwnHost(headers.host ?? '', ownHosts);
  + const isChosen = isOwnHost('', ownHosts) || headers !== undefined;
  = the HTTP side › tells figures to nobody who was led here by somebody else

file control-plane/http/bodies.ts
tests control-plane/portal/session/half-sent-forms.test.ts: half-sent forms on the public port
a form may take half a minute
  - return Math.min(ofDebtMs, this.#wholeByMs - nowMs);
  + return ofDebtMs;
  = have some seconds in all

file control-plane/portal/session/guard.ts
tests control-plane/portal/session/half-sent-forms.test.ts: half-sent forms on the public port
the bytes of a form without a cookie of ours are awaited
  - if (!isForm) return;
  + return;
  = are refused for what their headers say before a byte is awaited

file control-plane/http/request-headers.ts
tests control-plane/portal/test/attacks/people.test.ts: guesses
the port behind a forwarded address is a part of it
  - const address = ipv4 ?? ipv6 ?? entry;
  + const address = entry;
  +   if (ipv4 !== undefined) return ipv6 ?? entry;
  = takes the port that a proxy of ours has written for no part of the address

file control-plane/portal/playground/use-playground.ts
tests control-plane/portal/playground/playground.test.ts
an account holds every place of the playground
  - return await this.#uploading.run({ key: accountId }, async () => {
  + return await this.#uploading.run({ key: crypto.randomUUID() }, async () => {
  = an account that holds its share back leaves the others theirs

file control-plane/portal/sign-in/passwords.ts
tests control-plane/portal/sign-in/passwords.test.ts: slots of hashing
each address of a network has turns of its own at hashing
  - this.#strangers.run({ key: networkOf(address) }, work)
  + this.#strangers.run({ key: address }, work)
  = are shared by network: many addresses of one are one
who is known waits behind strangers for a hash
  - return knownId === undefined
  + return knownId === undefined || networkOf(knownId) !== undefined
  = of who is known are not behind those of strangers, from however many networks

file control-plane/portal/sign-in/sign-in-throttle.ts
tests control-plane/portal/people/links-and-passwords.test.ts: rows of the throttle on sqlite
a refused attempt to sign in leaves a row
  - if (waitMs > 0) return waitMs;
  + if (waitMs > 0 && rows.length === keys.length) return waitMs;
  = are made by attempts that are counted, and by none that is refused

file control-plane/portal/orders/ledger-history.ts
tests control-plane/portal/orders/ledger-and-payments.test.ts: exports whose readers are late
exports that nobody reads keep their places
  - && !this.#endLatest()
  = give their places to those of other accounts, the latest first

file control-plane/http/connections.ts
tests control-plane/core/http/sockets.test.ts
a body that is chunked in HTTP/1.0 is read, and what is behind it
  - if (isFramedOtherwise(request)) {
  + if (isFramedOtherwise(request) && request.url === undefined) {
  = bodies whose end something before us may see elsewhere

file program/ports/listening.ts
tests program/ports/test/listening.test.ts
a port takes more connections than there may be open files
  - Math.max(1, Math.min(wanted, Math.floor(filesMax * share)))
  + Math.max(1, wanted, filesMax * 0 + share * 0)
  = connections take their share of it, and no more than are wanted

file control-plane/portal/sign-in/sign-in-throttle.ts
tests control-plane/portal/sign-in/sign-in.test.ts: the throttle of sign-in on sqlite
sign-ins that succeed take hashes without an end
  - if (waitMs === 0) await this.#store.giveBack(keys);
  + void waitMs;
  +       await this.#store.giveBack(keys);
  = counts those that succeed, too, once there are very many of one mail

file inference-node/serving/grpc/callers.ts
tests inference-node/serving/grpc/callers.test.ts: tokens of files
a node whose last token went is open to all
  - return this.#isOpen ? FLEET : undefined;
  + return this.#known.length === 0 ? FLEET : undefined;
  = open the node to nobody when the last one goes
a token that was taken out of its file still opens the node
  - this.#known = [
  + this.#known = [
  +       ...this.#known,
  = work both while they change, and the old one no more once it is gone

file program/tls/tls-files.ts
tests program/tls/test/tls-files.test.ts: TLS files that change
an expired certificate takes the place of a good one
  - isExpired(next) && !isExpired(own)
  + isExpired(next) && isExpired(own)
  = are not used where the new certificate has expired and the old one has not
`;
