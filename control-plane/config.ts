import type { Environment } from '@matting/program/env.ts';

/** For 32 look-ups for callers and two of the service; look-ups get half of the threads. */
const THREADS_FOR_LOOKUPS = 67;

/**
 * Gives libuv's pool enough threads for callers' names, whose look-ups by the system cannot be
 * cancelled. Call it before the first file is read, which starts the pool. An existing setting
 * wins.
 */
export function growThreadPool(env: NodeJS.ProcessEnv = process.env): void {
  const isInner = env.MATTING_ALLOW_PRIVATE_ADDRESSES === 'true' || env.MATTING_ALLOWED_NETWORKS;
  if (!isInner) return;
  env.UV_THREADPOOL_SIZE ??= String(THREADS_FOR_LOOKUPS);
}

export function wholeEnvironment(): Environment {
  return process.env;
}
