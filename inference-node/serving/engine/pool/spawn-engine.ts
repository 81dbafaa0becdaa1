/** Starts a process that loads ONNX Runtime. */
import path from 'node:path';
import { Child, type SpawnChildOptions } from '../../process/child.ts';
import { RUNTIME_FOLDER_VARIABLE } from '../../providers/runtime-folder.ts';
import type { FromEngine } from '../engine-protocol.ts';

const PROGRAM = path.join(import.meta.dirname, '../child/engine-child.ts');

const ENGINE_ENV = {
  // glibc raises this threshold to the largest block freed and keeps what loading left. Held at its
  // first value, ISNet in fp32 is 740 MB resident, else 810 to 1000 MB, as fast.
  MALLOC_MMAP_THRESHOLD_: '131072',
  // Large blocks ask for huge pages, where the kernel gives them to who asks: 0.9 of ISNet's time by
  // OpenVINO on a Xeon with AMX, 0.93 by ONNX Runtime, in the same memory (docs/adr/0050).
  GLIBC_TUNABLES: 'glibc.malloc.hugetlb=1',
} as const;

export function spawnEngineChild(
  childEnv: Readonly<Record<string, string>>,
  options: Omit<SpawnChildOptions<FromEngine>, 'program' | 'args' | 'env' | 'execArgv'>,
): Child<FromEngine> {
  return spawnRuntimeChild(PROGRAM, childEnv, options);
}

/** A program that loads ONNX Runtime as engines do. */
export function spawnRuntimeChild<Incoming>(
  program: string,
  childEnv: Readonly<Record<string, string>>,
  options: Omit<SpawnChildOptions<Incoming>, 'program' | 'args' | 'env' | 'execArgv'>,
): Child<Incoming> {
  const { [RUNTIME_FOLDER_VARIABLE]: runtimeFolder, ...env } = childEnv;
  const args = runtimeFolder === undefined ? [] : [runtimeFolder];
  return new Child({ program, args, env: { ...ENGINE_ENV, ...env }, ...options });
}
