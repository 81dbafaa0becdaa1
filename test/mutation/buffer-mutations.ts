/** Memory that images use one after the other in a node. */
import { mutationsOf } from './mutation.ts';

export const BUFFER_MUTATIONS = mutationsOf`
file inference-node/serving/process/frames.ts
tests inference-node/serving/process/frames.test.ts
memory that is given back twice goes to two images
  - if (!this.#lent.delete(buffer)) return;
  + this.#lent.delete(buffer);
  = no two users have the same buffer

file inference-node/serving/picture/pool/open-picture-pool.ts
tests inference-node/serving/shared-buffers.test.ts
an image's memory is the next one's while its engine has yet to read it
  - this.#modelInputs.push(...parts);
  + for (const part of parts) this.#pool.giveBack(part);
  = each matte is of its own picture, beside callers that go and children that die
`;
