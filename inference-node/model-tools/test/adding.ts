import { join } from 'node:path';
import type { AddContext } from '../adding/add-model.ts';
import type { Probe } from '../probing/probe-types.ts';

export const FOUND: Probe = {
  graph: {
    ...{ precision: 'fp32', inputName: 'input', outputName: 'output' },
    ...{ inputWidth: 64, inputHeight: 64, inputType: 'float32', layout: 'nchw', dynamic: false },
  },
  ...{ range: [0, 1], peakBytes: 2e9, loadedBytes: 1e9, seconds: 1.5, provider: 'cpu' },
  cutout: Buffer.from('cut-out'),
};

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
    say: () => undefined,
    onProgress: () => undefined,
    ...own,
  };
}
