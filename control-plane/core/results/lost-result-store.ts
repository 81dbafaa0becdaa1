/**
 * Results whose files are gone while their links are good. One row a job, by whoever finds it:
 *
 * | settlement | means                                          | left by                        |
 * |------------|------------------------------------------------|--------------------------------|
 * | null       | found, and nothing was done about it           | settle, repay                  |
 * | returned   | its file was there again                       | record: it is gone once more   |
 * | unpaid     | nothing was charged for it, or a correction    | -                              |
 * |            | made it again after it was found               |                                |
 * | paid       | the credit was granted again                   | -                              |
 *
 * A row moves no money by itself. `repay` does, once a job, whatever became of the job's row. It
 * ends the job's family: no correction makes the result again that was paid back (docs/adr/0052).
 */

import { type Database, query, transact } from '@matting/database/database.ts';
import { isInserted, matchesOne, nowPlusMs, throughIndex } from '@matting/database/statements.ts';
import type { NotNull } from 'kysely';
import { insertAuditEntry } from '../accounts/audit.ts';
import { endKeeping, readCorrections } from '../corrections/family.ts';
import { OPEN_STATES } from '../jobs/job.ts';
import { CREDITS_PER_JOB, lostReferenceOf, SLOT_OF } from '../ledger/ledger.ts';
import { enterOperatorEntry, holdAccount } from '../ledger/ledger-writer.ts';

/** The cursor is where a page of a list ends: the instant and the job of its last row. */
interface ResultCursor {
  readonly atMs: number;
  readonly id: string;
}

export const FIRST_RESULT: ResultCursor = { atMs: 0, id: '' };

export type LiveResult = Awaited<ReturnType<typeof liveResults>>[number];
type Loss = Pick<LiveResult, 'jobId' | 'accountId'>;

export const LOSS_FINDERS = ['download', 'replay', 'look', 'operator'] as const;
export type LossFinder = (typeof LOSS_FINDERS)[number];

type Repayment =
  | 'paid'
  /** Nothing was charged, or a correction made the result again. */
  | 'unpaid'
  /** A correction is open, and may make the result again: nothing changed. */
  | 'correcting'
  | 'settled';

export type LostResultStore = ReturnType<typeof createLostResultStore>;

const SWEEP_ID = 'sweep';
/** Results read to find the newest that is not on record as lost. */
const NEWEST_READ = 8;

export function createLostResultStore(database: Database) {
  return {
    /**
     * True: found now, first or again after its file had returned.
     * @param findingId made up outside of what is tried again
     */
    record: (loss: Loss, by: LossFinder, findingId: string) =>
      record(database, loss, by, findingId),
    known: (jobIds: readonly string[]) => known(database, jobIds),
    /**
     * The blob of the live result whose link ends last, without results on record as lost.
     * Undefined: there is no other, or the last NEWEST_READ are all on record.
     */
    newest: (butNot?: string) => newest(database, butNot),
    /** Lists results in the order in which links end, without those that end within `aheadMs`. */
    live: (after: ResultCursor, aheadMs: number, limit: number) =>
      liveResults(database, after, aheadMs, limit),
    open: (after: ResultCursor, limit: number) => open(database, after, limit),
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
    /** Grants the credit that the job was charged, once, and enters it in the account's log. */
    repay: (jobId: string, auditId: string) => repay(database, jobId, auditId),
    dueLook: () => dueLook(database),
    /** @param next where the look continues, or when the next one begins */
    async saveLook(next: { readonly after: ResultCursor } | { readonly inMs: number }) {
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

function liveResults(database: Database, after: ResultCursor, aheadMs: number, limit: number) {
  return query(database, db =>
    results(database, db, 'asc', limit)
      .where('result_blob_expires_at', '>', nowPlusMs(database.nowMs, aheadMs))
      .where('result_blob_expires_at', '>=', after.atMs)
      .where(eb => eb.or([eb('result_blob_expires_at', '>', after.atMs), eb('id', '>', after.id)]))
      .execute(),
  );
}

async function newest(database: Database, butNot: string | undefined): Promise<string | undefined> {
  const rows = await query(database, db =>
    results(database, db, 'desc', NEWEST_READ)
      .where('result_blob_expires_at', '>', database.nowMs)
      .execute(),
  );
  const lost = await known(
    database,
    rows.map(({ jobId }) => jobId),
  );
  return rows.find(({ jobId }) => jobId !== butNot && !lost.has(jobId))?.blob;
}

async function known(database: Database, jobIds: readonly string[]): Promise<ReadonlySet<string>> {
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

async function dueLook(database: Database): Promise<ResultCursor | undefined> {
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

function open(database: Database, after: ResultCursor, limit: number) {
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
      .select(['account_id', 'found_at'])
      .where('job_id', '=', jobId)
      .executeTakeFirst();
    if (found === undefined) return 'settled';
    const accountId = found.account_id;
    // Everybody who moves credits locks in this order. Of two at once, the later finds the row
    // settled.
    await holdAccount(database, tx, accountId);
    const charge = await tx
      .selectFrom('ledger_entries')
      .select('kind')
      .where('account_id', '=', accountId)
      .where('slot', '=', SLOT_OF.charge)
      .where('reference', '=', jobId)
      .executeTakeFirst();
    const corrections = await readCorrections(tx, jobId);
    if (corrections.some(({ state }) => OPEN_STATES.some(open => open === state))) {
      return 'correcting';
    }
    const isMadeAgain = corrections.some(
      ({ state, created_at }) => state === 'succeeded' && created_at >= found.found_at,
    );
    const repayment = charge?.kind === 'charge' && !isMadeAgain ? 'paid' : 'unpaid';
    const settled = await matchesOne(
      tx
        .updateTable('lost_results')
        .set({ settlement: repayment, settled_at: database.nowMs })
        .where('job_id', '=', jobId)
        .where('settled_at', 'is', null),
    );
    if (!settled) return 'settled';
    if (repayment === 'unpaid') return repayment;
    await endKeeping(database, tx, [jobId, ...corrections.map(({ id }) => id)]);
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
