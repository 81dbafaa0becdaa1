/** Files that travel between nodes and the object storage. */
import { inFile, type Mutation } from './mutation.ts';

const ORIGINS = 'inference-node/src/direct/direct-origins.ts';
const CLIENT = 'inference-node/src/direct/storage-client.ts';
const FILES = 'inference-node/src/direct/direct-files.ts';

const inOrigins = inFile('inference-node/test/direct/direct-origins.test.ts');
const inGet = inFile('inference-node/test/direct/storage-client.test.ts', 'a file that is got');
const inCall = inFile('inference-node/test/direct/direct-matte.test.ts', 'a direct call');

export const DIRECT_MUTATIONS: readonly Mutation[] = [
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
    replace: 'if (filled + piece.length > into.length) break;',
    caughtBy: inGet(
      'longer than declared, without saying so is a fault of the storage, after 1 tries',
    ),
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
