/**
 * A result whose file is not where it should be, and what that means. Three things look alike, and
 * only one of them is a loss:
 *
 * | the row, read again   | the file          | results beside it    | then                        |
 * |-----------------------|-------------------|----------------------|-----------------------------|
 * | expired, or gone      | -                 | -                    | RESULT_EXPIRED              |
 * | its link is good      | there again       | -                    | it is read again            |
 * | its link is good      | gone              | most are gone too    | SERVICE_UNAVAILABLE: this   |
 * |                       |                   |                      | is not the storage they are |
 * |                       |                   |                      | in, or it lost many at once |
 * | its link is good      | gone              | most are there       | RESULT_LOST, and its row    |
 *
 * A disk that is not mounted or a prefix that was changed must not make a loss of every result:
 * what the operator can undo stays retryable, and is told as one incident. Where the files are gone
 * for good he says so (`credits repay-lost --all-missing`), and once more where most are gone
 * (`--even-most`): the command, too, may look at another storage than the service.
 */

import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { type Database, query, transact } from '@matting/database/database.ts';
import { isInserted, matchesOne, nowPlusMs, throughIndex } from '@matting/database/statements.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { NotNull } from 'kysely';
import type { Logger } from 'pino';
import { insertAuditEntry } from '../accounts/audit.ts';
import { publicState } from '../jobs/job.ts';
import type { JobStore } from '../jobs/job-store.ts';
import { CREDITS_PER_JOB, lostReferenceOf, SLOT_OF } from '../ledger/ledger.ts';
import { enterOperatorEntry, holdAccount } from '../ledger/ledger-writer.ts';
import type { BlobStore } from '../storage/blob-store.ts';

/** Looked at beside one that is gone: as many before it as behind. */
const NEIGHBOURS_EACH_WAY = 4;
/** After most of them were gone, so long no other result is judged. */
const SUSPECT_MS = 10_000;
const RETRY_AFTER_S = 60;

export const EXPIRED_LINK =
  'This result link has expired. Submit the image again under another Idempotency-Key.';

export interface LossObserver {
  resultLost(by: LossFinder): void;
  /** Many are gone at once: none of them counts as lost. */
  resultsMissing(): void;
}

interface LostResultsDependencies {
  readonly jobs: Pick<JobStore, 'find'>;
  readonly lostResults: Pick<LostResultStore, 'record' | 'known' | 'neighbours'>;
  readonly blobs: Pick<BlobStore, 'stat'>;
  readonly observer: LossObserver;
  readonly log: Pick<Logger, 'error'>;
  readonly now?: () => number;
}

type LossVerdict = 'there' | 'expired' | 'lost' | 'storage';

export class LostResults {
  readonly #dependencies: LostResultsDependencies;
  readonly #now: () => number;
  #suspectUntilMs = Number.NEGATIVE_INFINITY;

  constructor(dependencies: LostResultsDependencies) {
    this.#dependencies = dependencies;
    this.#now = dependencies.now ?? (() => performance.now());
  }

  /** A loss is on record when this resolves. @throws ContractError SERVICE_UNAVAILABLE */
  async judge(jobId: string, by: LossFinder): Promise<LossVerdict> {
    const { jobs, lostResults, blobs } = this.#dependencies;
    const job = await jobs.find(jobId);
    const result = job?.result ?? null;
    if (job === undefined || result === null || publicState(job) !== 'succeeded') return 'expired';
    if ((await blobs.stat(result.blob)) !== undefined) return 'there';
    const known = await lostResults.known([jobId]);
    if (known.has(jobId)) return 'lost';
    const { accountId, expiresAtMs } = job;
    const gone = { jobId, accountId, blob: result.blob, expiresAtMs: expiresAtMs ?? 0 };
    if (await this.#isStorage(gone)) return 'storage';
    await this.#record(gone, by);
    return 'lost';
  }

  /** Undefined: the file is there after all. @throws as `judge` */
  async refusal(jobId: string, by: LossFinder): Promise<ContractError | undefined> {
    const verdict = await this.judge(jobId, by);
    switch (verdict) {
      case 'there':
        return undefined;
      case 'expired':
        return new ContractError('RESULT_EXPIRED', EXPIRED_LINK);
      case 'lost':
        return new ContractError(
          'RESULT_LOST',
          'The file of this result is lost, and the operator knows. Submit the image again under another Idempotency-Key.',
        );
      case 'storage': {
        const detail = 'The storage does not have its results at the moment.';
        return new ContractError('SERVICE_UNAVAILABLE', detail, { retryAfterS: RETRY_AFTER_S });
      }
    }
  }

  async #isStorage(gone: LiveResult): Promise<boolean> {
    if (this.#now() < this.#suspectUntilMs) return true;
    const { lostResults, blobs, observer, log } = this.#dependencies;
    const beside = await lostResults.neighbours(gone, NEIGHBOURS_EACH_WAY);
    const known = await lostResults.known(beside.map(({ jobId }) => jobId));
    const asked = beside.filter(({ jobId }) => !known.has(jobId));
    const found = await Promise.all(asked.map(({ blob }) => blobs.stat(blob)));
    const missing = found.filter(file => file === undefined).length;
    if (missing * 2 <= asked.length) return false;
    this.#suspectUntilMs = this.#now() + SUSPECT_MS;
    observer.resultsMissing();
    const fields = { jobId: gone.jobId, looked: asked.length, gone: missing };
    log.error(fields, 'results are missing from the storage');
    return true;
  }

  async #record({ jobId, accountId, blob }: LiveResult, by: LossFinder): Promise<void> {
    const { lostResults, observer, log } = this.#dependencies;
    const isNew = await lostResults.record({ jobId, accountId }, by, randomUUID());
    if (!isNew) return;
    observer.resultLost(by);
    log.error({ jobId, accountId, blob, foundBy: by }, 'a result is lost');
  }
}

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
/** Results of a page, and questions to the storage a second: 50 are 4 million a day. */
const PAGE_MAX = 10;
const RATE_MAX = 50;
/** What ends so soon is not looked at: the sweeper may remove it meanwhile. */
const AHEAD_MS = 60_000;

interface ResultLookDependencies {
  readonly lostResults: Pick<LostResultStore, 'live' | 'dueLook' | 'saveLook'>;
  readonly losses: Pick<LostResults, 'judge'>;
  readonly blobs: Pick<BlobStore, 'stat'>;
  readonly rest?: (ms: number) => Promise<unknown>;
}

/** The daily look whether every live result has its file; where most are gone, again in an hour. */
export function resultLookStep({
  lostResults,
  losses,
  blobs,
  rest = delay,
}: ResultLookDependencies) {
  return {
    name: 'look over results',
    async page(size: number) {
      const after = await lostResults.dueLook();
      if (after === undefined) return { done: 0, more: false };
      const limit = Math.min(size, PAGE_MAX);
      const page = await lostResults.live(after, AHEAD_MS, limit);
      let lost = 0;
      for (const { jobId, blob } of page) {
        if ((await blobs.stat(blob)) !== undefined) continue;
        const verdict = await losses.judge(jobId, 'look');
        if (verdict === 'storage') {
          await lostResults.saveLook({ inMs: HOUR_MS });
          return { done: lost, more: false };
        }
        if (verdict === 'lost') lost += 1;
      }
      const last = page.at(-1);
      const more = last !== undefined && page.length === limit;
      await lostResults.saveLook(
        more ? { after: { atMs: last.expiresAtMs, id: last.jobId } } : { inMs: DAY_MS },
      );
      if (more) await rest((page.length / RATE_MAX) * 1000);
      return { done: lost, more };
    },
  };
}

/*
 * Results whose files are gone while their links are good. One row a job, by whoever finds it:
 *
 * | settlement | means                                          | left by                        |
 * |------------|------------------------------------------------|--------------------------------|
 * | null       | found, and nothing was done about it           | settle, repay                  |
 * | returned   | its file was there again                       | record: it is gone once more   |
 * | unpaid     | nothing was charged for it                     | -                              |
 * | paid       | the credit was granted again                   | -                              |
 *
 * A row moves no money by itself. `repay` does, once a job, whatever became of the job's row.
 */

interface ResultPlace {
  readonly atMs: number;
  readonly id: string;
}

const FIRST_RESULT: ResultPlace = { atMs: 0, id: '' };

export type LiveResult = Awaited<ReturnType<typeof liveResults>>[number];
type Loss = Pick<LiveResult, 'jobId' | 'accountId'>;

export const LOSS_FINDERS = ['download', 'replay', 'look', 'operator'] as const;
type LossFinder = (typeof LOSS_FINDERS)[number];

type Repayment =
  | 'paid'
  /** Nothing was charged: a picture of the playground. */
  | 'unpaid'
  | 'settled';

type LostResultStore = ReturnType<typeof createLostResultStore>;

const SWEEP_ID = 'sweep';

export function createLostResultStore(database: Database) {
  return {
    /**
     * True: found now, first or again after its file had returned.
     * @param findingId made up outside of what is tried again
     */
    record: (loss: Loss, by: LossFinder, findingId: string) =>
      record(database, loss, by, findingId),
    async known(jobIds: readonly string[]): Promise<ReadonlySet<string>> {
      if (jobIds.length === 0) return new Set();
      const rows = await query(database, db =>
        db
          .selectFrom('lost_results')
          .select(['job_id', 'settlement'])
          .where('job_id', 'in', jobIds)
          .execute(),
      );
      const lost = rows.filter(({ settlement }) => settlement !== 'returned');
      return new Set(lost.map(row => row.job_id));
    },
    /** Live results whose links end next before and after that one, at most `count` each way. */
    neighbours: (of: Pick<LiveResult, 'jobId' | 'expiresAtMs'>, count: number) =>
      neighboursOf(database, of, count),
    /** In the order in which links end; without those that end within `aheadMs`. */
    live: (after: ResultPlace, aheadMs: number, limit: number) =>
      liveResults(database, after, aheadMs, limit),
    open: (after: ResultPlace, limit: number) => open(database, after, limit),
    returned: (jobId: string): Promise<boolean> =>
      query(database, db =>
        matchesOne(
          db
            .updateTable('lost_results')
            .set({ settlement: 'returned', settled_at: database.nowMs })
            .where('job_id', '=', jobId)
            .where('settled_at', 'is', null),
        ),
      ),
    /** Grants the credit that the job was charged, once, and says so in the account's log. */
    repay: (jobId: string, auditId: string) => repay(database, jobId, auditId),
    dueLook: () => dueLook(database),
    /** @param next where it goes on, or when the next one begins */
    async saveLook(next: { readonly after: ResultPlace } | { readonly inMs: number }) {
      const columns =
        'after' in next
          ? { look_after_at: next.after.atMs, look_after_id: next.after.id }
          : {
              look_due_at: nowPlusMs(database.nowMs, next.inMs),
              look_after_at: null,
              look_after_id: null,
            };
      await query(database, db =>
        db.updateTable('sweeps').set(columns).where('id', '=', SWEEP_ID).execute(),
      );
    },
  };
}

function liveResults(database: Database, after: ResultPlace, aheadMs: number, limit: number) {
  return query(database, db =>
    results(database, db, 'asc', limit)
      .where('result_blob_expires_at', '>', nowPlusMs(database.nowMs, aheadMs))
      .where('result_blob_expires_at', '>=', after.atMs)
      .where(eb => eb.or([eb('result_blob_expires_at', '>', after.atMs), eb('id', '>', after.id)]))
      .execute(),
  );
}

async function neighboursOf(
  database: Database,
  { jobId, expiresAtMs }: Pick<LiveResult, 'jobId' | 'expiresAtMs'>,
  count: number,
): Promise<LiveResult[]> {
  const before = await query(database, db =>
    results(database, db, 'desc', count)
      .where('result_blob_expires_at', '>', database.nowMs)
      .where('result_blob_expires_at', '<=', expiresAtMs)
      .where('id', '!=', jobId)
      .execute(),
  );
  const behind = await query(database, db =>
    results(database, db, 'asc', count)
      .where('result_blob_expires_at', '>', database.nowMs)
      .where('result_blob_expires_at', '>', expiresAtMs)
      .execute(),
  );
  return [...before, ...behind];
}

function results(
  { dialect }: Database,
  db: Database['kysely'],
  order: 'asc' | 'desc',
  limit: number,
) {
  return (
    db
      .selectFrom(RESULTS[dialect])
      .select(['id as jobId', 'account_id as accountId', 'result_blob as blob'])
      .select('result_blob_expires_at as expiresAtMs')
      // The condition on the one is a condition on the other: the schema keeps them set together.
      .$narrowType<{ blob: NotNull; expiresAtMs: NotNull }>()
      .orderBy('result_blob_expires_at', order)
      .orderBy('id', order)
      .limit(limit)
  );
}

const RESULTS = throughIndex('jobs', 'jobs_result_expiry');

async function dueLook(database: Database): Promise<ResultPlace | undefined> {
  const row = await query(database, db =>
    db
      .selectFrom('sweeps')
      .select(['look_due_at', 'look_after_at', 'look_after_id'])
      .select(() => database.nowMs.as('read_at'))
      .where('id', '=', SWEEP_ID)
      .executeTakeFirst(),
  );
  if (row === undefined || (row.look_due_at ?? 0) > row.read_at) return undefined;
  return { atMs: row.look_after_at ?? 0, id: row.look_after_id ?? '' };
}

async function record(
  database: Database,
  { jobId, accountId }: Loss,
  by: LossFinder,
  findingId: string,
): Promise<boolean> {
  const found = { finding_id: findingId, found_by: by, found_at: database.nowMs };
  const values = { job_id: jobId, account_id: accountId, ...found };
  const insert = query(database, db => db.insertInto('lost_results').values(values).execute());
  if (await isInserted(insert)) return true;
  await query(database, db =>
    db
      .updateTable('lost_results')
      .set({ ...found, settlement: null, settled_at: null })
      .where('job_id', '=', jobId)
      .where('settlement', '=', 'returned')
      .execute(),
  );
  // Ours too where the answer to one of them was lost.
  const row = await query(database, db =>
    db
      .selectFrom('lost_results')
      .select('finding_id')
      .where('job_id', '=', jobId)
      .executeTakeFirst(),
  );
  return row?.finding_id === findingId;
}

function open(database: Database, after: ResultPlace, limit: number) {
  return query(database, db =>
    db
      .selectFrom('lost_results')
      .select(['job_id as jobId', 'account_id as accountId', 'found_at as foundAtMs'])
      .where('settled_at', 'is', null)
      .where('found_at', '>=', after.atMs)
      .where(eb => eb.or([eb('found_at', '>', after.atMs), eb('job_id', '>', after.id)]))
      .orderBy('found_at')
      .orderBy('job_id')
      .limit(limit)
      .execute(),
  );
}

function repay(database: Database, jobId: string, auditId: string): Promise<Repayment> {
  return transact(database, async tx => {
    const found = await tx
      .selectFrom('lost_results')
      .select('account_id')
      .where('job_id', '=', jobId)
      .executeTakeFirst();
    if (found === undefined) return 'settled';
    const accountId = found.account_id;
    // In the order of all who move credits. Two at once: the later one finds the row settled.
    await holdAccount(database, tx, accountId);
    const charge = await tx
      .selectFrom('ledger_entries')
      .select('kind')
      .where('account_id', '=', accountId)
      .where('slot', '=', SLOT_OF.charge)
      .where('reference', '=', jobId)
      .executeTakeFirst();
    const repayment = charge?.kind === 'charge' ? 'paid' : 'unpaid';
    const settled = await matchesOne(
      tx
        .updateTable('lost_results')
        .set({ settlement: repayment, settled_at: database.nowMs })
        .where('job_id', '=', jobId)
        .where('settled_at', 'is', null),
    );
    if (!settled) return 'settled';
    if (repayment === 'unpaid') return repayment;
    const reference = lostReferenceOf(jobId);
    const entry = { kind: 'grant', accountId, amount: CREDITS_PER_JOB, reference } as const;
    await enterOperatorEntry(database, tx, entry);
    await insertAuditEntry(database, tx, {
      id: auditId,
      accountId,
      actor: { kind: 'operator' },
      action: 'credits.granted',
      subject: reference,
      after: { credits: CREDITS_PER_JOB },
    });
    return repayment;
  });
}

const PAGE = 200;
const HANDS = 4;

interface RepayDependencies {
  readonly jobs: Pick<JobStore, 'find'>;
  readonly lostResults: LostResultStore;
  readonly hasFile: (blob: string) => Promise<boolean>;
}

interface RepayOptions {
  readonly dryRun: boolean;
  /** Looks at every live result first, and takes what is gone for lost. */
  readonly all: boolean;
  /** Also where that is most of them. */
  readonly evenMost: boolean;
}

/** Most live results are not in the storage that was looked at: nothing was put on record. */
export class MostMissingError extends Error {
  readonly missing: number;
  readonly looked: number;

  constructor({ missing, looked }: { readonly missing: number; readonly looked: number }) {
    super(`${missing} of ${looked} results are missing`);
    this.missing = missing;
    this.looked = looked;
  }
}

/** As few may be gone whatever share they are: who has three results can lose two. */
const MISSING_FEW_MAX = 5;

/**
 * `credits repay-lost`: gives the credit of each lost result back, once, unless its file is there
 * again. `repaid`: jobs whose credit was granted again; with a dry run those whose would be.
 * `unpaid`: nothing was charged for them; 0 with a dry run. `looked` and `found`: 0 without `all`.
 * @throws ContractError SERVICE_UNAVAILABLE: what was done until then stays; say it again.
 *   MostMissingError, before anything is done
 */
export async function repayLost(dependencies: RepayDependencies, options: RepayOptions) {
  if (options.all && !options.evenMost) await requireFewMissing(dependencies);
  const look = options.all
    ? await lookAtAll(dependencies, options)
    : { looked: 0, found: 0, due: 0 };
  const settled = { repaid: look.due, returned: 0, unpaid: 0 };
  const { lostResults } = dependencies;
  let after = FIRST_RESULT;
  for (;;) {
    const page = await lostResults.open(after, PAGE);
    for (const { jobId } of page) {
      const outcome = await settleLoss(dependencies, jobId, options);
      if (outcome !== 'settled') settled[outcome] += 1;
    }
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE) break;
    after = { atMs: last.foundAtMs, id: last.jobId };
  }
  return { ...settled, looked: look.looked, found: look.found };
}

async function settleLoss(
  dependencies: RepayDependencies,
  jobId: string,
  { dryRun }: RepayOptions,
): Promise<'repaid' | 'returned' | 'unpaid' | 'settled'> {
  const { lostResults } = dependencies;
  if (await isThere(dependencies, jobId)) {
    if (!dryRun && !(await lostResults.returned(jobId))) return 'settled';
    return 'returned';
  }
  if (dryRun) return 'repaid';
  const repayment = await lostResults.repay(jobId, randomUUID());
  return repayment === 'paid' ? 'repaid' : repayment;
}

async function isThere({ jobs, hasFile }: RepayDependencies, jobId: string): Promise<boolean> {
  const job = await jobs.find(jobId);
  if (job === undefined || job.result === null || publicState(job) !== 'succeeded') return false;
  return await hasFile(job.result.blob);
}

/** Looks at all before any of them is on record. @throws MostMissingError */
async function requireFewMissing(dependencies: RepayDependencies): Promise<void> {
  const { looked, known, found: missing } = await lookAtAll(dependencies, { dryRun: true });
  const judged = looked - known;
  if (missing > MISSING_FEW_MAX && missing * 2 > judged) {
    throw new MostMissingError({ missing, looked: judged });
  }
}

/** `due`: would be on record but for the dry run. `known`: were on record before. */
async function lookAtAll(
  { lostResults, hasFile }: RepayDependencies,
  { dryRun }: Pick<RepayOptions, 'dryRun'>,
) {
  const counts = { looked: 0, known: 0, found: 0, due: 0 };
  let after = FIRST_RESULT;
  for (;;) {
    const page = await lostResults.live(after, 0, PAGE);
    const known = await lostResults.known(page.map(({ jobId }) => jobId));
    const left = page.values();
    const lookAtSome = async () => {
      for (const { jobId, accountId, blob } of left) {
        counts.looked += 1;
        if (known.has(jobId)) counts.known += 1;
        if (known.has(jobId) || (await hasFile(blob))) continue;
        counts.found += 1;
        if (dryRun) counts.due += 1;
        else await lostResults.record({ jobId, accountId }, 'operator', randomUUID());
      }
    };
    await Promise.all(Array.from({ length: HANDS }, lookAtSome));
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE) return counts;
    after = { atMs: last.expiresAtMs, id: last.jobId };
  }
}
