/** An Idempotency-Key, and how long it answers. */
import type { JobStatus } from './job.ts';

export interface IdempotencyKey {
  /** SHA-256, hexadecimal. */
  readonly hash: string;
  /** How long its job answers for it, from the job's end on, ms; absent: as long as its row. */
  readonly rememberedMs?: number;
}

/** Whether a job no longer answers for its key. That stays so: a final job's times only pass. */
export function isForgotten(
  {
    finishedAtMs,
    expiresAtMs,
    readAtMs,
  }: Pick<JobStatus, 'finishedAtMs' | 'expiresAtMs' | 'readAtMs'>,
  { rememberedMs = Number.POSITIVE_INFINITY }: IdempotencyKey,
): boolean {
  if (finishedAtMs === null || rememberedMs === Number.POSITIVE_INFINITY) return false;
  const isExpired = expiresAtMs !== null && readAtMs >= expiresAtMs;
  return isExpired || readAtMs - finishedAtMs >= rememberedMs;
}
