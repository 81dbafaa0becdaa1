import type { JobStatus } from './job.ts';

export interface IdempotencyKey {
  /** SHA-256, hexadecimal. */
  readonly hash: string;
  /** How long its job answers for it after the job's end, ms. Absent: as long as the row exists. */
  readonly rememberedMs?: number;
}

/** Whether a job's key is free again. True stays true: a final job's times only pass. */
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
