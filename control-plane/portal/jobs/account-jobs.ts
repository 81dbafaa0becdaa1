/** An account sees only its own jobs: those of all its keys and its playground. */

import { randomUUID } from 'node:crypto';
import type { Actor } from '@matting/accounts/audit-log.ts';
import type { OperatorServices } from '@matting/core/http/app-services.ts';
import type { Job } from '@matting/core/jobs/job.ts';
import { notificationCursor } from '@matting/core/operator/operate-webhooks.ts';
import type { CoreStores } from '@matting/core/package.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import { Semaphore } from '@matting/program/semaphore.ts';
import { unavailable } from '@matting/proto/contract/errors.ts';
import { FINAL_STATES, OPEN_STATES } from '@matting/queue/job.ts';
import { pageOf } from '../page/paging.ts';
import type { OperatorNotification } from './webhook-list.ts';

const GROUPS = {
  all: [...OPEN_STATES, ...FINAL_STATES],
  open: OPEN_STATES,
  succeeded: ['succeeded'],
  look: [],
  failed: ['failed'],
} as const satisfies Record<string, readonly Job['state'][]>;

type AccountJobGroup = keyof typeof GROUPS;
export const ACCOUNT_JOB_GROUPS = Object.keys(GROUPS) as readonly AccountJobGroup[];
export const DAYS_LISTED = [1, 7, 30] as const;
type DaysListed = (typeof DAYS_LISTED)[number];
const ACCOUNT_JOBS_PAGE = 50;
const KEYS_OFFERED_MAX = 200;
/** Bounded, since an archive reads up to 40 pages of the list before its first byte. */
const ARCHIVES_AT_ONCE_MAX = 16;
const ARCHIVES_RETRY_AFTER_S = 10;

export interface AccountJobQuestion {
  readonly group: AccountJobGroup;
  readonly apiKeyId: string | undefined;
  readonly days: DaysListed;
  /** A reference, or at least eight digits of an id. */
  readonly search: string | undefined;
  /** The `cursor` of the previous page's last job. Other texts give the first page. */
  readonly after: string | undefined;
}

export interface JobKey {
  readonly id: string;
  readonly name: string;
  readonly isPlayground: boolean;
}

type NotificationSummary = Awaited<ReturnType<CoreStores['outbox']['list']>>[number];

export interface AccountJob {
  readonly job: Job;
  readonly notification: NotificationSummary | undefined;
}

export type NotificationView = Pick<
  NotificationSummary,
  'receiver' | 'status' | 'attempts' | 'log' | 'lastFailure' | 'nextAttemptAtMs' | 'secretEraseAtMs'
>;

interface AccountJobsDependencies {
  readonly jobs: Pick<CoreStores['jobs'], 'find' | 'list' | 'noteLooked' | 'search'>;
  readonly apiKeys: Pick<CoreStores['apiKeys'], 'find' | 'listNewest'>;
  readonly playground: { findKey(accountId: string): Promise<string | undefined> };
  readonly outbox: Pick<CoreStores['outbox'], 'list'>;
  readonly operateWebhooks: Pick<OperatorServices['operateWebhooks'], 'list' | 'resend'>;
}

export class AccountJobs {
  readonly archives = new Semaphore({
    max: ARCHIVES_AT_ONCE_MAX,
    waitingMax: 0,
    refusal: () => unavailable('Too many archives are downloaded at once.', ARCHIVES_RETRY_AFTER_S),
  });
  readonly #dependencies: AccountJobsDependencies;

  constructor(dependencies: AccountJobsDependencies) {
    this.#dependencies = dependencies;
  }

  /** Open jobs first, by their position in the queue, then final jobs, the latest first. */
  async list(accountId: string, question: AccountJobQuestion) {
    const { jobs } = this.#dependencies;
    const { group, apiKeyId, days, after, search } = question;
    if (search !== undefined) {
      const apiKeyIds = (await this.keys(accountId)).map(({ id }) => id);
      if (apiKeyIds.length === 0) return { jobs: [], next: undefined };
      const query = { accountId, apiKeyIds, text: search, limit: ACCOUNT_JOBS_PAGE };
      return { jobs: await jobs.search(query), next: undefined };
    }
    // Otherwise the database would read all jobs of another account's key.
    if (apiKeyId !== undefined && !(await this.#isKeyOf(accountId, apiKeyId))) {
      return { jobs: [], next: undefined };
    }
    const filter = {
      states: GROUPS[group],
      accountId,
      apiKeyId,
      endedWithinMs: days * DAY_MS,
      limit: ACCOUNT_JOBS_PAGE + 1,
      after,
      look: group === 'look',
    };
    const { rows, last } = pageOf(await jobs.list(filter), ACCOUNT_JOBS_PAGE);
    return { jobs: rows, next: last?.cursor };
  }

  async #isKeyOf(accountId: string, apiKeyId: string): Promise<boolean> {
    const { apiKeys, playground } = this.#dependencies;
    const own = await apiKeys.find(apiKeyId, accountId);
    return own !== undefined || (await playground.findKey(accountId)) === apiKeyId;
  }

  async keys(accountId: string): Promise<readonly JobKey[]> {
    const { apiKeys, playground } = this.#dependencies;
    const internal = await playground.findKey(accountId);
    const own = await apiKeys.listNewest(accountId, KEYS_OFFERED_MAX);
    return [
      ...(internal === undefined ? [] : [{ id: internal, name: '', isPlayground: true }]),
      ...own.map(({ id, name }) => ({ id, name, isPlayground: false })),
    ];
  }

  /**
   * Webhooks of jobs and of the account's events, the newest first.
   * @throws ContractError INVALID_REQUEST: `after` is not the `next` of an earlier page
   */
  async webhooks(
    accountId: string,
    filter: {
      readonly status: OperatorNotification['status'] | undefined;
      readonly after: string | undefined;
    },
  ) {
    const { operateWebhooks } = this.#dependencies;
    const limit = ACCOUNT_JOBS_PAGE + 1;
    const { rows: found, last } = pageOf(
      await operateWebhooks.list({ ...filter, accountId, limit }),
      ACCOUNT_JOBS_PAGE,
    );
    return { found, next: last && notificationCursor(last) };
  }

  async find(accountId: string, jobId: string): Promise<AccountJob | undefined> {
    const { jobs, outbox } = this.#dependencies;
    const job = await jobs.find(jobId);
    if (job?.accountId !== accountId) return undefined;
    const hasOne = job.callback !== null && job.finishedAtMs !== null;
    const [notification] = hasOne ? await outbox.list({ jobId, limit: 1 }) : [];
    return { job, notification };
  }

  async noteLooked(accountId: string, jobId: string): Promise<void> {
    await this.#dependencies.jobs.noteLooked(accountId, jobId);
  }

  async resend(accountId: string, jobId: string, actor: Actor) {
    const { operateWebhooks } = this.#dependencies;
    if ((await this.find(accountId, jobId)) === undefined) return 'no-job' as const;
    const entry = { id: randomUUID(), accountId, actor, action: 'job.resent', subject: jobId };
    return await operateWebhooks.resend(jobId, entry);
  }
}
