/** A caller reads one of its key's jobs. */
import { ContractError } from '#contract/errors.ts';
import type { Job } from '../../domain/job.ts';
import type { JobStore } from '../../store/jobs/job-store.ts';
import type { Caller } from '../account.ts';
import type { DatabaseTurns } from '../database-turns.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export class ReadJob {
  readonly #jobs: Pick<JobStore, 'findForKey'>;
  readonly #turns: Pick<DatabaseTurns, 'ofAccount'>;

  constructor(jobs: Pick<JobStore, 'findForKey'>, turns: Pick<DatabaseTurns, 'ofAccount'>) {
    this.#jobs = jobs;
    this.#turns = turns;
  }

  /**
   * Another key's job, an unknown one and a malformed id are the same to the caller.
   * @throws ContractError JOB_NOT_FOUND, SERVICE_UNAVAILABLE
   */
  async read({ accountId, apiKeyId }: Caller, jobId: string): Promise<Job> {
    const find = () => this.#jobs.findForKey(jobId.toLowerCase(), apiKeyId);
    const job = UUID.test(jobId) ? await this.#turns.ofAccount(accountId, find) : undefined;
    if (job === undefined) {
      throw new ContractError('JOB_NOT_FOUND', 'this API key has no job of that id');
    }
    return job;
  }
}
