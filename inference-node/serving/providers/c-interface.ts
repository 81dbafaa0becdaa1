/** ONNX Runtime's C interface in place of its binding, for engines on a GPU (docs/gpu.md). */
import path from 'node:path';
import { packageFolder, RUNTIME_FILES } from './provider-files.ts';
import { RUNTIME_FOLDER_VARIABLE } from './runtime-folder.ts';

/** In `childEnv`: the engines' session uses the C interface with these options, by commas. */
export const C_INTERFACE_VARIABLE = 'ENGINE_C_INTERFACE';

/**
 * nhwc: CUDA's kernels take channels last, as its tensor cores do. blocking-waits: a thread that
 * waits for the GPU sleeps, where it otherwise spins.
 */
const C_INTERFACE_OPTIONS = ['nhwc', 'blocking-waits'] as const;
/** Those of a node. */
export const NODE_C_INTERFACE = C_INTERFACE_OPTIONS.join();

export interface CInterface {
  readonly library: string;
  readonly nhwc: boolean;
  readonly blockingWaits: boolean;
}

export function cInterfaceOf(childEnv: Readonly<Record<string, string>>): CInterface | undefined {
  const options = childEnv[C_INTERFACE_VARIABLE]?.split(',');
  if (options === undefined) return undefined;
  const [, library] = RUNTIME_FILES;
  return {
    library: path.join(childEnv[RUNTIME_FOLDER_VARIABLE] ?? packageFolder(), library),
    nhwc: options.includes('nhwc'),
    blockingWaits: options.includes('blocking-waits'),
  };
}
