import { setTimeout as delay } from 'node:timers/promises';

/** Whether `work` settled before the time was over or the signal aborted. */
export async function settledWithin(
  work: Promise<unknown>,
  waitMs: number,
  signal?: AbortSignal,
): Promise<boolean> {
  const stop = new AbortController();
  const both = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
  const timeUp = delay(waitMs, false, { signal: both }).catch(() => false);
  try {
    return await Promise.race([work.then(() => true), timeUp]);
  } finally {
    stop.abort();
  }
}
