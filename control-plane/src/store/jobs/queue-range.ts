/**
 * The three ranges of jobs.queue_at. A job that every node can do stands at its position
 * (domain/dispatch/job-turns.ts), above 0; one with finishing FINISHING_SHIFT_MS before it, below
 * 0. Control planes from before finishing read the queue from 0 up: they would make such a job's
 * picture without it, and so they never see it. Within a range smaller goes first.
 *
 * Jobs of the playground all stand at 0, where no control plane from before them looks: it would
 * end one with the reserved credit of another job. Behind everything that is paid for they go by
 * their age; there are few of them (domain/playground.ts).
 */

/** More than any time in milliseconds for the next 30,000 years; sums stay exact integers. */
const FINISHING_SHIFT_MS = 10 ** 15;

/** Every queue_at of an open job is larger. */
export const QUEUE_AT_MIN = -FINISHING_SHIFT_MS;

/** queue_at of every open job of the playground. */
export const PLAYGROUND_QUEUE_AT = 0;

/** Their position: behind every other. */
export const PLAYGROUND_POSITION_MS = FINISHING_SHIFT_MS - 1;

export type QueueRange = 'plain' | 'finishing' | 'playground';
export const QUEUE_RANGES = ['plain', 'finishing', 'playground'] as const;

/** How queue_at compares with 0 in a range. */
export const COMPARED_WITH_ZERO = { plain: '>', finishing: '<', playground: '=' } as const;

/** How far from its position a job is stored. */
export function queueShiftMs(range: QueueRange): number {
  if (range === 'playground') return PLAYGROUND_QUEUE_AT - PLAYGROUND_POSITION_MS;
  return range === 'finishing' ? -FINISHING_SHIFT_MS : 0;
}

/** The position that is stored as `queueAt`, in any range. */
export function positionOf(queueAt: number): number {
  if (queueAt === PLAYGROUND_QUEUE_AT) return PLAYGROUND_POSITION_MS;
  return queueAt < 0 ? queueAt + FINISHING_SHIFT_MS : queueAt;
}
