/** The only file of the control plane that reads the process's environment. */
import type { Environment } from '@matting/program/env.ts';

/** For 32 look-ups for callers and two of the service; half of the threads resolve names. */
const THREADS_FOR_LOOKUPS = 67;

/**
 * Called before the first file is read, which starts the pool: sets enough threads for the names of
 * callers where the system's resolver may be asked, whose look-ups cannot be cancelled. A number that the
 * environment already has is kept.
 */
export function growThreadPool(env: NodeJS.ProcessEnv = process.env): void {
  const isInner = env.MATTING_ALLOW_PRIVATE_ADDRESSES === 'true' || env.MATTING_ALLOWED_NETWORKS;
  if (!isInner) return;
  env.UV_THREADPOOL_SIZE ??= String(THREADS_FOR_LOOKUPS);
}

export function wholeEnvironment(): Environment {
  return process.env;
}
