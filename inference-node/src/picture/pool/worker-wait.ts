/**
 * How long an image admitted now waits for a picture worker, by what the node has measured: each
 * worker's rest, then the line in its order. Pure.
 */

/**
 * Of the time an image has been in a worker, what is left at least: one that outlasts the mean of
 * its size and format is not over at once. Estimates that ran out attracted images to just those
 * nodes, and made the p99 of waiting in a simulated fleet of 50 at 0.9 load 1.7 times an ideal
 * queue's instead of 1.15 (bench/dispatch-simulator).
 */
const OVERRUN_SHARE = 0.2;

export interface HeldWorker {
  /** Since the image came into the worker. */
  readonly elapsedMs: number;
  /** What its size and format let expect, from first to last. */
  readonly expectedMs: number;
}

/** @param waitingMs what each image in the line is expected to take. */
export function workerWaitMs(
  workers: number,
  held: readonly HeldWorker[],
  waitingMs: readonly number[],
): number {
  const freeInMs = held.map(({ elapsedMs, expectedMs }) =>
    Math.max(OVERRUN_SHARE * elapsedMs, expectedMs - elapsedMs),
  );
  while (freeInMs.length < workers) freeInMs.push(0);
  for (const ms of waitingMs) freeInMs[freeInMs.indexOf(Math.min(...freeInMs))] += ms;
  return Math.min(...freeInMs);
}
