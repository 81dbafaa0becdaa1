import { addAbortListener } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';

/** @returns true: `work` settled first, before the time was over or the signal aborted */
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

/** Rejects with the signal's reason if that comes first. */
export async function raceAbort<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  using _rejecting = addAbortListener(signal, () => reject(signal.reason));
  return await Promise.race([promise, aborted]);
}

export async function within<T>(
  work: Promise<T>,
  waitMs: number,
  tooLate: () => Error,
): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  using _timer = setTimeout(() => reject(tooLate()), waitMs);
  return await Promise.race([work, late]);
}
