/** The client: what keeps a picture that is tried again from being paid again. */
import { inFile, type Mutation } from './mutation.ts';

const inFaults = inFile('client/test/client-faults.test.ts');

export const CLIENT_MUTATIONS: readonly Mutation[] = [
  {
    name: 'a failure that passes is submitted again under a new key',
    file: 'client/src/client.ts',
    find: 'this.#post(PATHS.matting, submission, idempotencyKey, patience)',
    replace: 'this.#post(PATHS.matting, submission, newKey(), patience)',
    caughtBy: inFaults('a failure that passes is submitted again, under the same key'),
  },
  {
    name: 'the client waits as it likes, whatever it is told',
    file: 'client/src/patience.ts',
    find: 'error.retryAfterMs ?? backoff.next()',
    replace: 'backoff.next()',
    caughtBy: inFaults('it waits as long as it is told'),
  },
  {
    name: 'a picture that broke off is taken for whole',
    file: 'client/src/result-file.ts',
    find: 'if (sizeBytes !== undefined && this.#received !== sizeBytes) {',
    replace: 'if (sizeBytes === -1) {',
    caughtBy: inFaults('an answer that ends early is not taken for whole'),
  },
];
