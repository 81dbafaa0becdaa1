/** How many engines a node opens and with how many threads each. Pure. */
import type { ExecutionProvider } from '../models/prepared-model.ts';

export interface EngineLayout {
  readonly engines: number;
  readonly threadsPerEngine: number;
}

/**
 * Threads of one CPU engine. Beyond about this many, one picture's convolutions no longer fill them
 * and engines side by side do better.
 */
export const THREADS_PER_ENGINE_MAX = 16;

/**
 * GPU: one engine of one thread; its work is elsewhere, and more threads only spin. CPU in fp32:
 * one engine with all the threads, which on 2 cores beats two engines of one thread in latency and
 * throughput, and holds the weights once; on large machines several, the threads shared out evenly.
 *
 * @param cpuShare CPUs this process may use, fractions allowed (cpu-share.ts).
 */
export function chooseEngineLayout(provider: ExecutionProvider, cpuShare: number): EngineLayout {
  if (provider !== 'cpu') return { engines: 1, threadsPerEngine: 1 };
  // A thread over the quota is throttled together with those that wait for it.
  const threads = Math.max(1, Math.floor(cpuShare));
  const engines = Math.ceil(threads / THREADS_PER_ENGINE_MAX);
  return { engines, threadsPerEngine: Math.floor(threads / engines) };
}
