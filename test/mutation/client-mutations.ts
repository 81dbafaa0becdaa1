/** The client: what keeps a picture that is tried again from being paid again. */
import { mutationsOf } from './mutation.ts';

export const CLIENT_MUTATIONS = mutationsOf`
file client/src/client.ts
tests test/client/client-faults.test.ts
a failure that passes is submitted again under a new key
  - this.#post(PATHS.matting, submission, idempotencyKey, patience)
  + this.#post(PATHS.matting, submission, newKey(), patience)
  = a failure that passes is submitted again, under the same key

file client/src/patience.ts
tests test/client/client-faults.test.ts
the client waits as it likes, whatever it is told
  - error.retryAfterMs ?? backoff.next()
  + backoff.next()
  = it waits as long as it is told

file client/src/result-file.ts
tests test/client/client-faults.test.ts
a picture that broke off is taken for whole
  - if (sizeBytes !== undefined && this.#received !== sizeBytes) {
  + if (sizeBytes === -1) {
  = an answer that ends early is not taken for whole
`;
