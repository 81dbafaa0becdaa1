/** Adds a model in its own process, which reports its progress and stops there. */
import { addModel } from '../adding/add-model.ts';
import { addingIn, FOUND } from './adding.ts';

const [target = '', folder = '', stage] = process.argv.slice(2);

async function at(reached: string): Promise<void> {
  process.stdout.write(`${reached}\n`);
  if (reached === stage) await new Promise(resolve => setTimeout(resolve, 600_000));
}

const normalisation = { mean: [0, 0, 0], std: [255, 255, 255] } as const;
const options = { facts: { normalisation, activation: 'none' }, licence: {} } as const;
await addModel(
  target,
  options,
  addingIn(folder, {
    onProgress: () => void at('download'),
    probe: async () => {
      await at('probe');
      return FOUND;
    },
    prepare: async () => {
      await at('prepare');
      return {} as never;
    },
  }),
);
await at('whole');
