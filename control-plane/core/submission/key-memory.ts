/**
 * How long a job answers for a key that the service derived from the request, and which so belongs
 * to no image for good. Pure; the store repeats the rule in the statement that frees the key.
 */
import { isFinal, type Job } from '../jobs/job.ts';

/**
 * Whether the job has ended and its time is over, counted from its submission by the database's
 * clock; or its result has expired. An open job answers however old it is.
 */
export function isForgotten(
  job: Pick<Job, 'state' | 'createdAtMs' | 'expiresAtMs' | 'readAtMs'>,
  rememberedMs: number,
): boolean {
  if (!isFinal(job)) return false;
  const { createdAtMs, expiresAtMs, readAtMs } = job;
  return (
    readAtMs - createdAtMs >= rememberedMs || (expiresAtMs !== null && readAtMs >= expiresAtMs)
  );
}
