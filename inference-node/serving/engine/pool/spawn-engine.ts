import path from 'node:path';
import { Child, type SpawnChildOptions } from '../../process/child.ts';
import { C_INTERFACE_VARIABLE } from '../../providers/c-interface.ts';
import { RUNTIME_FOLDER_VARIABLE } from '../../providers/runtime-folder.ts';
import type { FromEngine } from '../engine-protocol.ts';

const PROGRAM = path.join(import.meta.dirname, '../child/engine-child.ts');

const ENGINE_ENV = {
  // A fixed threshold: otherwise glibc raises it to the largest freed block, and keeps the memory
  // that loading freed. ISNet in fp32 is then 740 MB resident instead of 810 to 1000 MB, and as
  // fast.
  MALLOC_MMAP_THRESHOLD_: '131072',
  // Requests huge pages for large blocks. ISNet on a Xeon with AMX, in the same memory: 0.9 of the
  // time by OpenVINO, 0.93 by ONNX Runtime (docs/adr/0050).
  GLIBC_TUNABLES: 'glibc.malloc.hugetlb=1',
} as const;

export function spawnEngineChild(
  childEnv: Readonly<Record<string, string>>,
  options: Omit<SpawnChildOptions<FromEngine>, 'program' | 'args' | 'env' | 'execArgv'>,
): Child<FromEngine> {
  return spawnRuntimeChild(PROGRAM, childEnv, options);
}

export function spawnRuntimeChild<Incoming>(
  program: string,
  childEnv: Readonly<Record<string, string>>,
  options: Omit<SpawnChildOptions<Incoming>, 'program' | 'args' | 'env' | 'execArgv'>,
): Child<Incoming> {
  const { [RUNTIME_FOLDER_VARIABLE]: runtimeFolder, ...env } = childEnv;
  const args = runtimeFolder === undefined ? [] : [runtimeFolder];
  // ONNX Runtime keeps handles and memory of CUDA for every thread that ran a graph.
  const threads = C_INTERFACE_VARIABLE in env ? { UV_THREADPOOL_SIZE: '1' } : {};
  return new Child({ program, args, env: { ...ENGINE_ENV, ...threads, ...env }, ...options });
}
