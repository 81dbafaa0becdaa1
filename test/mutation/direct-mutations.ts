/** Files that travel between nodes and the object storage. */
import { inFile, type Mutation } from './mutation.ts';

const ORIGINS = 'inference-node/src/direct/direct-origins.ts';
const CLIENT = 'inference-node/src/direct/storage-client.ts';
const FILES = 'inference-node/src/direct/direct-files.ts';

const ATTEMPT = 'control-plane/src/services/direct/direct-attempt.ts';
const JOB_RUN = 'control-plane/src/services/dispatch/job-run.ts';
const EXCHANGE = 'control-plane/src/nodes/matte-exchange.ts';

const DISPATCH_TESTS = 'control-plane/test/services/dispatch/direct.test.ts';
const inLies = inFile(DISPATCH_TESTS, 'a result that is not what was placed');
const inUnreachable = inFile(DISPATCH_TESTS, 'a node that cannot reach the storage');
const inClient = inFile('control-plane/test/nodes/direct-call.test.ts', 'a direct call');
const ANOTHER_FENCE = 'is not taken, and the job is done under another fence';
const inOrigins = inFile('inference-node/test/direct/direct-origins.test.ts');
const inGet = inFile('inference-node/test/direct/storage-client.test.ts', 'a file that is got');
const inCall = inFile('inference-node/test/direct/direct-matte.test.ts', 'a direct call');

export const DIRECT_MUTATIONS: readonly Mutation[] = [
  {
    name: 'URLs are signed otherwise than the SDK signs them',
    file: 'control-plane/src/storage/bucket/bucket-presigner.ts',
    find: 'again !== undefined && isSame(again, url)',
    replace: 'again !== undefined',
    caughtBy: inFile(
      'control-plane/test/storage/bucket/bucket-presigner.test.ts',
      'the kept signer: a store by its path',
    )('leaves to the SDK what it would sign otherwise'),
  },
  {
    name: 'a streamed result is charged whatever the storage has of it',
    file: 'control-plane/src/services/dispatch/result-sink.ts',
    find: 'await this.#requireStored(result);',
    replace: '',
    caughtBy: inFile(
      'control-plane/test/services/dispatch/attempts.test.ts',
      'a result that is streamed',
    )('is not charged where the storage took it and has nothing of it'),
  },
  {
    name: 'a node takes references from any caller',
    file: FILES,
    find: 'if (!isFleet) {',
    replace: 'if (false as boolean) {',
    caughtBy: inCall(
      "of a caller with a token of its own is refused, and so is an origin that isn't listed",
    ),
  },
  {
    name: 'a node takes files from any origin',
    file: FILES,
    find: 'if (this.origins.includes(origin)) return origin;',
    replace: 'if (this.origins.length > 0) return origin;',
    caughtBy: inCall(
      "of a caller with a token of its own is refused, and so is an origin that isn't listed",
    ),
  },
  {
    name: 'a reference may lead to another host than the header named',
    file: ORIGINS,
    find: 'if (url === null || url.origin !== origin)',
    replace: 'if (url === null)',
    caughtBy: inOrigins('a reference is not https://169.254.169.254/latest/meta-data'),
  },
  {
    name: 'a result is put with any header',
    file: ORIGINS,
    find: 'SIGNED_HEADER.test(lower) && HEADER_VALUE.test(value)',
    replace: 'HEADER_VALUE.test(value)',
    caughtBy: inOrigins('headers of a place are not {"authorization":"Bearer x"}'),
  },
  {
    name: 'more bytes than were declared are taken',
    file: CLIENT,
    find: 'if (filled + piece.length > into.length) throw otherLength();',
    replace: 'if (filled + piece.length > into.length) return undefined;',
    caughtBy: inGet(
      'longer than declared, without saying so is a fault of the storage, after 1 tries',
    ),
  },
  {
    name: 'a result that the storage has not is taken',
    file: ATTEMPT,
    find: "if (stored === undefined) return 'the storage has no result';",
    replace: 'if (stored === undefined) return undefined;',
    caughtBy: inLies(`that was never put ${ANOTHER_FENCE}`),
  },
  {
    name: 'a result that was altered in the storage is taken',
    file: ATTEMPT,
    find: 'if (sha256 !== placed.sha256)',
    replace: 'if (sha256.length !== placed.sha256.length)',
    caughtBy: inLies(`altered in the store ${ANOTHER_FENCE}`),
  },
  {
    name: 'a result of another format is taken',
    file: ATTEMPT,
    find: 'if (head?.format !== this.#order.format)',
    replace: 'if (head === undefined)',
    caughtBy: inLies(`of another format ${ANOTHER_FENCE}`),
  },
  {
    name: 'a result of another size than it is said to have is taken',
    file: ATTEMPT,
    find: 'if (head.width !== announced.width || head.height !== announced.height)',
    replace: 'if (head.width === 0)',
    caughtBy: inLies(`of another size than announced ${ANOTHER_FENCE}`),
  },
  {
    name: 'two attempts have one place',
    file: JOB_RUN,
    find: "return next.kind === 'another-node' && direct?.placed ? { kind: 'given-back' } : next;",
    replace: 'return next;',
    caughtBy: inUnreachable('for the result has the picture streamed under another fence'),
  },
  {
    name: 'a job whose node could not reach the storage goes the same way again',
    file: JOB_RUN,
    find: 'paths?.failed(direct.elsewhere ? undefined : offer, held.job.id);',
    replace: 'void paths;',
    caughtBy: inUnreachable('has the picture streamed at once, and the next ones too, for a while'),
  },
  {
    name: 'a result counts by the word of the node',
    file: EXCHANGE,
    find: 'if (wrong !== undefined) throw brokenAnswer(wrong);',
    replace: 'void wrong;',
    caughtBy: inClient("whose result is not what the storage has is the node's fault"),
  },
  {
    name: 'bytes from the storage are not checked',
    file: FILES,
    find: "if (createHash('sha256').update(file).digest().equals(expected)) return file;",
    replace: "if (createHash('sha256').update(file).digest().length > 0) return file;",
    caughtBy: inCall(
      'blames the storage, never the image, for bytes that are not the declared ones',
    ),
  },
];
