import type { Environment } from '@matting/program/env.ts';

/** libuv looks up host names on half of its threads, rounded up: 34, of which callers get 32. */
const THREADS_FOR_LOOKUPS = 67;

/**
 * Gives libuv enough threads to look up callers' host names by the system, which cannot cancel a
 * look-up. Call it before the first file is read, which starts the threads. Keeps a
 * `UV_THREADPOOL_SIZE` that is set.
 */
export function growThreadPool(env: NodeJS.ProcessEnv = process.env): void {
  const isInner = env.MATTING_ALLOW_PRIVATE_ADDRESSES === 'true' || env.MATTING_ALLOWED_NETWORKS;
  if (!isInner) return;
  env.UV_THREADPOOL_SIZE ??= String(THREADS_FOR_LOOKUPS);
}

export function wholeEnvironment(): Environment {
  return process.env;
}
