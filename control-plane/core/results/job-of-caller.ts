import type { Caller } from '@matting/accounts/keys/caller.ts';
import type { Job } from '../jobs/job.ts';
import type { JobStore } from '../jobs/job-store.ts';
import { noSuchJob } from './job-errors.ts';

export const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/**
 * Answers the same for another key's job, an unknown one and a malformed id.
 * @throws ContractError JOB_NOT_FOUND, SERVICE_UNAVAILABLE
 */
export async function readJobOfCaller(
  jobs: Pick<JobStore, 'findForKey'>,
  { apiKeyId }: Caller,
  jobId: string,
): Promise<Job> {
  const job = UUID.test(jobId) ? await jobs.findForKey(jobId.toLowerCase(), apiKeyId) : undefined;
  if (job !== undefined) return job;
  throw noSuchJob();
}
