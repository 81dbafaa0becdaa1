import type { JobStatus } from './job.ts';

export interface IdempotencyKey {
  /** SHA-256, hexadecimal. */
  readonly hash: string;
  /** How long the key leads to the job after the job's end, in ms. Absent: while its row exists. */
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
