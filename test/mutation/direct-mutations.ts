/** Files that travel between nodes and the object storage. */
import { mutationsOf } from './mutation.ts';

export const DIRECT_MUTATIONS = mutationsOf`
file control-plane/object-storage/bucket/bucket-signing.ts
tests control-plane/object-storage/bucket/bucket-parts.test.ts: the kept signer: a store by its path
URLs are signed otherwise than the SDK signs them
  - again !== undefined && isSame(again, url)
  + again !== undefined
  = leaves to the SDK what it would sign otherwise

file control-plane/core/attempts/result-blob.ts
tests control-plane/core/attempts/attempts.test.ts: a result that is streamed
a streamed result is charged whatever the storage has of it
  - await this.#requireStored(result);
  = is not charged where the storage took it and has nothing of it

file inference-node/serving/direct/direct-files.ts
tests inference-node/serving/direct/direct-matte.test.ts: a direct call
a node takes references from any caller
  - if (!isFleet) {
  + if (false as boolean) {
  = of a caller with a token of its own is refused, and so is an origin that isn't listed
a node takes files from any origin
  - if (this.origins.includes(origin)) return origin;
  + if (this.origins.length > 0) return origin;
  = of a caller with a token of its own is refused, and so is an origin that isn't listed
bytes from the storage are not checked
  - if (createHash('sha256').update(file).digest().equals(expected)) return file;
  + if (createHash('sha256').update(file).digest().length > 0) return file;
  = blames the storage, never the image, for bytes that are not the declared ones

file inference-node/serving/direct/direct-origins.ts
tests inference-node/serving/direct/storage-client.test.ts
a reference may lead to another host than the header named
  - if (url === null || url.origin !== origin)
  + if (url === null)
  = a reference › to anywhere but the origin is refused
a result is put with any header
  - SIGNED_HEADER.test(lower) && HEADER_VALUE.test(value)
  + HEADER_VALUE.test(value)
  = headers of a place › are no others

file inference-node/serving/direct/storage-client.ts
tests inference-node/serving/direct/storage-client.test.ts: a file that is got
more bytes than were declared are taken
  - if (filled + piece.length > into.length) throw otherLength();
  + if (filled + piece.length > into.length) return undefined;
  = longer than declared, without saying so is a fault of the storage, after 1 tries

file control-plane/object-storage/direct/direct-attempts.ts
tests control-plane/object-storage/direct/direct.test.ts: a result that is not what was placed
a result that the storage has not is taken
  - if (stored === undefined) return 'the storage has no result';
  + if (stored === undefined) return undefined;
  = that was never put is not taken, and the job is done under another fence
a result that was altered in the storage is taken
  - if (sha256 !== placed.sha256)
  + if (sha256.length !== placed.sha256.length)
  = altered in the store is not taken, and the job is done under another fence
a result of another format is taken
  - if (head?.format !== this.#order.format)
  + if (head === undefined)
  = of another format is not taken, and the job is done under another fence
a result of another size than it is said to have is taken
  - if (head.width !== announced.width || head.height !== announced.height)
  + if (head.width === 0)
  = of another size than announced is not taken, and the job is done under another fence

file control-plane/core/dispatch/job-run.ts
tests control-plane/object-storage/direct/direct.test.ts: a node that cannot reach the storage
two attempts have one place
  - return next.kind === 'another-node' && direct?.placed ? { kind: 'given-back' } : next;
  + return next;
  = for the result has the picture streamed under another fence
a job whose node could not reach the storage goes the same way again
  - paths?.failed(direct.elsewhere ? undefined : offer, held.job.id);
  + void paths;
  = has the picture streamed at once, and the next ones too, for a while

file control-plane/core/nodes/matte-client-call.ts
tests control-plane/core/nodes/node-client.test.ts: a direct call
a result counts by the word of the node
  - if (wrong !== undefined) throw brokenAnswer(wrong);
  + void wrong;
  = whose result is not what the storage has is the node's fault
`;
