/** `models add` without a graph that is run: what a probe would find is made up. */
import { join } from 'node:path';
import type { AddContext } from '../adding/add-model.ts';
import type { Probe } from '../probing/probe.ts';

export const FOUND: Probe = {
  ...{ inputs: ['input: float32 [1, 3, 64, 64]'], outputs: ['output: float32 [1, 1, 64, 64]'] },
  graph: {
    ...{ precision: 'fp32', inputName: 'input', outputName: 'output' },
    ...{ inputWidth: 64, inputHeight: 64, inputType: 'float32', layout: 'nchw', dynamic: false },
  },
  ...{ multipleOf: 1, activation: 'none', range: [0, 1], constant: false },
  ...{ peakBytes: 2e9, loadedBytes: 1e9, seconds: 1.5, provider: 'cpu', warnings: [] },
  ...{ shown: ['0 to 1'], cutouts: [Buffer.from('cut-out')] },
};

/** Adds under a folder of its own. */
export function addingIn(folder: string, own: Partial<AddContext> = {}): AddContext {
  return {
    folders: {
      modelDir: join(folder, 'cache'),
      addedModelsDir: join(folder, 'models'),
    },
    ...{ cwd: folder, childEnv: {}, token: undefined, catalogue: [] },
    access: { env: {}, limits: { attemptsMax: 1 } },
    signal: new AbortController().signal,
    probe: async () => FOUND,
    prepare: async () => ({}) as never,
    ask: open => Promise.reject(new Error(`asked for ${open.join()}`)),
    say: () => undefined,
    onProgress: () => undefined,
    ...own,
  };
}
