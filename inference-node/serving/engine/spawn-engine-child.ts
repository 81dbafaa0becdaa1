/** Starts an engine's process. Nothing of our environment reaches it but what is named. */
import path from 'node:path';
import { Child, type SpawnChildOptions } from '../process/child.ts';
import { type FromEngine, RUNTIME_FOLDER_VARIABLE } from './engine-protocol.ts';

const PROGRAM = path.join(import.meta.dirname, 'child/engine-child.ts');

const ENGINE_ENV = {
  // glibc raises this threshold to the largest block freed and then keeps what loading left behind.
  // Held at its first value, ISNet in fp32 is 740 MB resident in every run, left free 810 to 1000
  // MB, as fast.
  MALLOC_MMAP_THRESHOLD_: '131072',
} as const;

export function spawnEngineChild(
  childEnv: Readonly<Record<string, string>>,
  options: Omit<SpawnChildOptions<FromEngine>, 'program' | 'args' | 'env' | 'execArgv'>,
): Child<FromEngine> {
  const { [RUNTIME_FOLDER_VARIABLE]: runtimeFolder, ...env } = childEnv;
  const args = runtimeFolder === undefined ? [] : [runtimeFolder];
  return new Child({ program: PROGRAM, args, env: { ...ENGINE_ENV, ...env }, ...options });
}
