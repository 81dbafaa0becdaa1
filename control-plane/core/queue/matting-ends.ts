import type { Database, Schema } from '@matting/database/database.ts';
import { isHeldBy } from '@matting/database/leases.ts';
import { keepStatement, nowPlusMs } from '@matting/database/statements.ts';
import { warningsOf } from '@matting/proto/contract/finishing.ts';
import {
  type Columns,
  closing,
  type EndOptions,
  type JobEnds,
  type PayloadEnds,
} from '@matting/queue/end-job.ts';
import type { JobState } from '@matting/queue/job.ts';
import type { Claim } from '@matting/queue/lease-rules.ts';
import type { SettledJob, SettledStep } from '@matting/queue/settled-steps.ts';
import { sql, type Transaction } from 'kysely';
import { keepFiles } from '../corrections/kept-files.ts';
import type { Job, ViewedJob } from '../jobs/job.ts';
import { fundingKindOf } from '../jobs/job-funding.ts';
import { readJob } from '../jobs/job-reading.ts';
import { failureColumns, inputColumns, resultColumns } from '../jobs/job-rows.ts';
import { clearLook } from '../jobs/looks.ts';
import { insertWebhook } from '../webhooks/outbox-store.ts';
import type { Queue } from './queue.ts';

export interface SettledMattingJob extends SettledJob {
  readonly format: Job['outputFormat'];
  readonly isCorrection: boolean;
}
export type SettledMattingStep = SettledStep<SettledMattingJob>;

export interface MattingEndOptions extends EndOptions<SettledMattingJob> {
  /** Seals the notification's body. It must be quick and have no effects: a transaction is open. */
  readonly renderOutboxBody: (job: ViewedJob) => string;
  /** Time between a job's end and the first notification; 0 by default. */
  readonly webhookFirstWaitMs?: number;
}

const CLEARED: Columns = {
  source_url: null,
  ...inputColumns(null),
  background_url: null,
  background: null,
  hints: null,
  hints_file: null,
  base_matte: null,
  callback_secret: null,
  callback_secret_key_id: null,
};

export function endsOf(options: MattingEndOptions): PayloadEnds<Job, SettledMattingJob> {
  return {
    read: readJob,
    fundingOf: fundingKindOf,
    cleared: CLEARED,
    failed: failureColumns,
    settled: ({ outputFormat, correction }) => ({
      format: outputFormat,
      isCorrection: correction !== null,
    }),
    async end(database, tx, job, close) {
      if (job.callback === null) {
        await close();
        return undefined;
      }
      const secret = await readCallbackSecret(tx, job.id);
      await close();
      return () => notify(database, tx, options, { jobId: job.id, ...secret });
    },
  };
}

const SUCCEEDS_FROM: JobState[] = ['running'];

type SuccessRow = Claim &
  ReturnType<typeof resultColumns> & {
    readonly resultTtlMs: number;
    readonly timings: string;
    readonly warned: 0 | 1;
  };

const SUCCEED = keepStatement<SuccessRow>(
  (database, { jobId, holder, fence, resultTtlMs, warned, ...columns }) => {
    const expiresAt = nowPlusMs(database.nowMs, resultTtlMs);
    return closing(database, jobId, SUCCEEDS_FROM, {
      ...CLEARED,
      ...columns,
      state: 'succeeded',
      expires_at: expiresAt,
      result_blob_expires_at: expiresAt,
      // A correction has none: the person who made it looks at its result anyway.
      look_until: sql`case when ${warned} = 1 and corrects is null then ${expiresAt} end`,
    }).where(isHeldBy({ holder, fence }));
  },
);

export type MattingEnds = JobEnds<Job, SettledMattingJob>;

export function succeedBy(database: Database, ends: MattingEnds): Queue['succeed'] {
  return (claim, { result, resultTtlMs, timings, matte }, giveUp) => {
    const { jobId, holder, fence } = claim;
    const warned = warningsOf(result.sight).length > 0 ? 1 : 0;
    const values = { jobId, holder, fence, ...resultColumns(result), resultTtlMs, warned } as const;
    const ending = {
      kind: 'settle',
      retryable: false,
      from: SUCCEEDS_FROM,
      statement: SUCCEED(database, { ...values, timings: JSON.stringify(timings) }),
      closed: async (tx: Transaction<Schema>, job: Job) => {
        if (job.correction !== null) await clearLook(tx, job.correction.of);
        if (matte !== undefined) await keepFiles(tx, job, matte);
      },
      happened: (job: Job) => job.state === 'succeeded' && job.result?.token === result.token,
    } as const;
    return ends.finish(claim, ending, giveUp);
  };
}

type CallbackSecret = Awaited<ReturnType<typeof readCallbackSecret>>;

async function notify(
  database: Database,
  tx: Transaction<Schema>,
  { renderOutboxBody, webhookFirstWaitMs = 0 }: MattingEndOptions,
  { jobId, ...secret }: CallbackSecret & { readonly jobId: string },
): Promise<void> {
  const ended = await readJob(database, tx, jobId);
  if (ended?.callback == null) throw new Error(`job ${jobId} lost its callback`);
  const { accountId } = ended;
  const address = { id: jobId, accountId, event: null, url: ended.callback.url };
  const webhook = { ...address, body: renderOutboxBody(ended), ...secret };
  await insertWebhook(database, tx, webhook, webhookFirstWaitMs);
}

function readCallbackSecret(tx: Transaction<Schema>, jobId: string) {
  return tx
    .selectFrom('jobs')
    .select(['callback_secret as secret', 'callback_secret_key_id as secretKeyId'])
    .where('id', '=', jobId)
    .executeTakeFirstOrThrow();
}
