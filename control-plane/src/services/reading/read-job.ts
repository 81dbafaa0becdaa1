/** A caller reads one of its key's jobs. */
import { ContractError } from '#contract/errors.ts';
import type { Job } from '../../domain/job.ts';
import type { JobStore } from '../../store/jobs/job-store.ts';
import type { Caller } from '../account.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export class ReadJob {
  readonly #jobs: Pick<JobStore, 'findForKey'>;

  constructor(jobs: Pick<JobStore, 'findForKey'>) {
    this.#jobs = jobs;
  }

  /**
   * Another key's job, an unknown one and a malformed id are the same to the caller.
   * @throws ContractError JOB_NOT_FOUND, SERVICE_UNAVAILABLE
   */
  async read({ apiKeyId }: Caller, jobId: string): Promise<Job> {
    const job = UUID.test(jobId)
      ? await this.#jobs.findForKey(jobId.toLowerCase(), apiKeyId)
      : undefined;
    if (job === undefined) {
      throw new ContractError('JOB_NOT_FOUND', 'this API key has no job of that id');
    }
    return job;
  }
}
