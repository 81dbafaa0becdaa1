import { publicPrefix } from '@matting/accounts/keys/api-key-token.ts';
import { isoTime } from '@matting/program/iso-time.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import {
  FINAL_STATES,
  isUnpaid,
  type JobState,
  modeOf,
  OPEN_STATES,
  publicState,
  type QueueJob,
  UNPAID,
} from '@matting/queue/job.ts';
import type { HourOfJobs } from '../jobs/job-activity.ts';
import { isJobCursor } from '../jobs/job-lists.ts';
import type { JobOutcome } from '../jobs/job-outcome.ts';
import type { JobRequest } from '../jobs/job-request.ts';
import { JOB_RETENTION_DAYS_MAX } from '../retention/retention.ts';
import type { StoresWithoutEnds } from '../stores.ts';
import { requireAccount } from './operate-accounts.ts';

const GROUPS = {
  open: OPEN_STATES,
  queued: ['accepted', 'fetching', 'ready'],
  processing: ['running'],
  final: FINAL_STATES,
  succeeded: ['succeeded'],
  failed: ['failed'],
} as const satisfies Record<string, readonly JobState[]>;

export type JobGroup = keyof typeof GROUPS;
export const JOB_GROUPS = Object.keys(GROUPS) as readonly JobGroup[];

export const JOBS_LISTED_MAX = 1000;
export const JOBS_LISTED_DEFAULT = 100;
/** The maximum of MATTING_JOB_RETENTION_DAYS. */
export const ENDED_WITHIN_HOURS_MAX = JOB_RETENTION_DAYS_MAX * 24;
export const ENDED_WITHIN_HOURS_DEFAULT = 24;
const HOUR_MS = 3_600_000;

export interface JobQuestion {
  readonly group: JobGroup;
  readonly account?: string | undefined;
  readonly endedWithinHours: number;
  readonly limit: number;
  /** `cursor` of the previous page's last job; undefined: the first page. */
  readonly after?: string | undefined;
}

export class OperateJobs {
  readonly #stores: Pick<StoresWithoutEnds, 'jobs' | 'queue' | 'accounts'>;

  constructor(stores: Pick<StoresWithoutEnds, 'jobs' | 'queue' | 'accounts'>) {
    this.#stores = stores;
  }

  /** @throws ContractError NOT_FOUND: no such account; INVALID_REQUEST: a wrong `after` */
  async list(question: JobQuestion): Promise<(OperatorJob & { readonly cursor: string })[]> {
    const { account, after } = question;
    if (after !== undefined && !isJobCursor(after)) {
      const fieldErrors = [{ field: 'after', detail: 'must be the cursor of a listed job' }];
      throw new ContractError('INVALID_REQUEST', 'The query is not valid. Correct after.', {
        fieldErrors,
      });
    }
    const only = account === undefined ? undefined : await requireAccount(this.#stores, account);
    const jobs = await this.#stores.jobs.list({
      states: GROUPS[question.group],
      accountId: only?.id,
      endedWithinMs: question.endedWithinHours * HOUR_MS,
      limit: question.limit,
      after,
    });
    return jobs.map(job => ({ ...viewJob(job), cursor: job.cursor }));
  }

  /** The current hour comes last. */
  lastHours(): Promise<HourOfJobs[]> {
    return this.#stores.jobs.lastHours();
  }

  async show(jobId: string): Promise<OperatorJob> {
    const job = await this.#stores.jobs.find(jobId.toLowerCase());
    if (job === undefined) throw notFound(jobId);
    return viewJob(job);
  }

  /**
   * Ends the lease of an open job, so that the next dispatcher with room claims it. The holder can
   * no longer finish it, and no attempt counts as lost.
   * @returns lease_ended: false if no replica held the job, which then waits anyway
   * @throws ContractError JOB_NOT_FOUND, JOB_FINAL
   */
  async retry(jobId: string) {
    const id = jobId.toLowerCase();
    const ending = await this.#stores.queue.endLease(id);
    switch (ending.kind) {
      case 'ended':
        return { job_id: id, lease_ended: true, holder: ending.holder };
      case 'not-leased':
        return { job_id: id, lease_ended: false, holder: null };
      case 'final':
        throw new ContractError(
          'JOB_FINAL',
          `The job has ${ending.state} and cannot run again. Its input is erased and its credit is ` +
            `${ending.state === 'succeeded' ? 'charged' : 'returned'}.`,
        );
      case 'unknown':
        throw notFound(jobId);
    }
  }
}

function notFound(jobId: string): ContractError {
  return new ContractError('JOB_NOT_FOUND', `There is no job "${jobId}".`);
}

export type OperatorJob = ReturnType<typeof viewJob>;

type OperatedJob = QueueJob & JobOutcome & Pick<JobRequest, 'reference' | 'input' | 'outputFormat'>;

/** Leaves out the result's link and the source. */
function viewJob(job: OperatedJob) {
  const { input, result, lease } = job;
  return {
    job_id: job.id,
    reference: job.reference,
    batch_id: job.group?.id ?? null,
    status: publicState(job),
    state: job.state,
    account_id: job.accountId,
    key: publicPrefix(job.apiKeyId),
    mode: modeOf(job),
    [UNPAID]: isUnpaid(job),
    created_at: isoTime(job.createdAtMs),
    started_at: isoTime(job.startedAtMs),
    finished_at: isoTime(job.finishedAtMs),
    expires_at: isoTime(job.expiresAtMs),
    input: input && {
      format: input.format,
      bytes: input.bytes,
      width: input.width,
      height: input.height,
    },
    output_format: job.outputFormat,
    result: result && { bytes: result.bytes, width: result.width, height: result.height },
    error: job.failure,
    lease: lease && { holder: lease.holder, expires_at: isoTime(lease.expiresAtMs) },
    fence: job.fence,
    lost_attempts: job.lostAttempts,
    takeovers: job.takeovers,
    timings: job.timings,
  };
}

const QUEUED_ACCOUNTS_MAX = 50;

export class ReadQueue {
  readonly #stores: Pick<StoresWithoutEnds, 'queue' | 'accounts'>;
  readonly #megapixelsMax: number;

  constructor(stores: Pick<StoresWithoutEnds, 'queue' | 'accounts'>, megapixelsMax: number) {
    this.#stores = stores;
    this.#megapixelsMax = megapixelsMax;
  }

  /** `oldestAgeMs` is 0 if nothing waits; `accountCount` includes accounts that are not shown. */
  async read() {
    const { jobs, cost: megapixels, oldestAgeMs, byAccount } = await this.#stores.queue.queued();
    const largest = [...byAccount]
      .sort(([, a], [, b]) => b.cost - a.cost)
      .slice(0, QUEUED_ACCOUNTS_MAX);
    const names = await this.#stores.accounts.namesOf(largest.map(([id]) => id));
    return {
      jobs,
      megapixels,
      megapixelsMax: this.#megapixelsMax,
      oldestAgeMs,
      accountCount: byAccount.size,
      accounts: largest.map(([accountId, queue]) => {
        const name = names.get(accountId) ?? accountId;
        return { accountId, name, jobs: queue.jobs, megapixels: queue.cost };
      }),
    };
  }
}
