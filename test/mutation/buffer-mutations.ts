/** Memory that images use one after the other in a node. */
import { inFile, type Mutation } from './mutation.ts';

export const BUFFER_MUTATIONS: readonly Mutation[] = [
  {
    name: 'memory that is given back twice goes to two images',
    file: 'inference-node/src/process/buffer-pool.ts',
    find: 'if (!this.#lent.delete(buffer)) return;',
    replace: 'this.#lent.delete(buffer);',
    caughtBy: inFile('inference-node/test/process/buffer-pool.test.ts')(
      'no two users have the same buffer',
    ),
  },
  {
    name: "an image's memory is the next one's while its engine has yet to read it",
    file: 'inference-node/src/picture/pool/open-picture-pool.ts',
    find: 'this.#modelInputs.push(...parts);',
    replace: 'for (const part of parts) this.#pool.giveBack(part);',
    caughtBy: inFile('inference-node/test/shell/shared-buffers.test.ts')(
      'each matte is of its own picture, beside callers that go and children that die',
    ),
  },
];
