import type { JobStatus } from './job.ts';

export interface IdempotencyKey {
  /** SHA-256, hexadecimal. */
  readonly hash: string;
  /**
   * After its end, the job answers for the key this long, in ms. Absent: as long as its row exists.
   */
  readonly rememberedMs?: number;
}

/**
 * Whether a job's key is free again. Once true, it stays true: a final job's times do not change.
 */
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
