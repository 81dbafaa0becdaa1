/** The jobs this replica works on, and whose they are. */
import type { Shares } from '../../domain/dispatch/job-turns.ts';
import type { ClaimableJob } from '../../store/jobs/job-store.ts';

export interface Run {
  readonly job: ClaimableJob;
  done: Promise<void>;
}

export class RunningJobs {
  readonly #runs = new Map<string, Run>();

  get size(): number {
    return this.#runs.size;
  }

  has(jobId: string): boolean {
    return this.#runs.has(jobId);
  }

  add(run: Run): void {
    this.#runs.set(run.job.id, run);
  }

  delete({ job }: Run): void {
    this.#runs.delete(job.id);
  }

  /** Resolves when all that run now have ended. */
  async ended(): Promise<void> {
    await Promise.all([...this.#runs.values()].map(run => run.done));
  }

  /** For whose turn is next. */
  shares(): Shares {
    const accounts = new Map<string, number>();
    const apiKeys = new Map<string, number>();
    for (const { job } of this.#runs.values()) {
      accounts.set(job.accountId, (accounts.get(job.accountId) ?? 0) + 1);
      apiKeys.set(job.apiKeyId, (apiKeys.get(job.apiKeyId) ?? 0) + 1);
    }
    return { accounts, apiKeys };
  }
}
