/**
 * The two ranges of jobs.queue_at. A job that every node can do stands at its position
 * (domain/dispatch/job-turns.ts), above 0; one with finishing FINISHING_SHIFT_MS before it, below
 * 0. Control planes from before finishing read the queue from 0 up: they would make such a job's
 * picture without it, and so they never see it. Within a range smaller goes first.
 */

/** More than any time in milliseconds for the next 30,000 years; sums stay exact integers. */
const FINISHING_SHIFT_MS = 10 ** 15;

/** Every queue_at of an open job is larger. */
export const QUEUE_AT_MIN = -FINISHING_SHIFT_MS;

/** How far from its position a job is stored. */
export function queueShiftMs(hasFinishing: boolean): number {
  return hasFinishing ? -FINISHING_SHIFT_MS : 0;
}

/** The position that is stored as `queueAt`, in either range. */
export function positionOf(queueAt: number): number {
  return queueAt < 0 ? queueAt + FINISHING_SHIFT_MS : queueAt;
}
