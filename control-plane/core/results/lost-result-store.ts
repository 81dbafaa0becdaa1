/**
 * Results whose files are gone while their links are valid, for `credits repay-lost`. A `paid` row
 * of `lost_results` records the repayment and ends the job's family, so that no correction makes
 * the repaid result again (docs/adr/0052).
 */

import { insertAuditEntry } from '@matting/accounts/audit-log.ts';
import { CREDITS_PER_JOB, lostReferenceOf } from '@matting/accounts/ledger/ledger.ts';
import {
  enterOperatorEntry,
  holdAccount,
  selectSettlement,
} from '@matting/accounts/ledger/ledger-writer.ts';
import { type Database, query, transact } from '@matting/database/database.ts';
import { throughIndex } from '@matting/database/statements.ts';
import { OPEN_STATES } from '@matting/queue/job.ts';
import type { NotNull } from 'kysely';
import { endKeeping, readCorrections, readResultsOfFamily } from '../corrections/family.ts';

interface ResultCursor {
  readonly atMs: number;
  readonly id: string;
}

export const FIRST_RESULT: ResultCursor = { atMs: 0, id: '' };

export type LiveResult = Awaited<ReturnType<typeof liveResults>>[number];
export type Loss = Pick<LiveResult, 'jobId' | 'accountId'>;

interface Repayment {
  readonly missing: ReadonlySet<string>;
  /** Made outside of the retried transaction. Undefined: a dry run. */
  readonly auditId: string | undefined;
}

type Repaid =
  | 'paid'
  /** Nothing was charged, or a correction has the result. */
  | 'unpaid'
  /** An open correction may make the result again, so nothing changed. */
  | 'correcting'
  | 'settled';

export type LostResultStore = ReturnType<typeof createLostResultStore>;

export function createLostResultStore(database: Database) {
  return {
    /** The result whose link expires last. */
    newest: async (butNot?: string): Promise<LiveResult | undefined> =>
      (await liveResults(database, 'desc', FIRST_RESULT, 2)).find(({ jobId }) => jobId !== butNot),
    /** In the order in which their links expire. */
    live: (after: ResultCursor, limit: number) => liveResults(database, 'asc', after, limit),
    corrections: (jobId: string) => query(database, db => readResultsOfFamily(db, jobId)),
    repay: (loss: Loss, repayment: Repayment) => repay(database, loss, repayment),
  };
}

const RESULTS = throughIndex('jobs', 'jobs_result_expiry');

function liveResults(
  database: Database,
  order: 'asc' | 'desc',
  after: ResultCursor,
  limit: number,
) {
  return query(database, db =>
    db
      .selectFrom(RESULTS[database.dialect])
      .select(['id as jobId', 'account_id as accountId', 'result_blob as blob'])
      .select('result_blob_expires_at as expiresAtMs')
      // The schema keeps both set together.
      .$narrowType<{ blob: NotNull; expiresAtMs: NotNull }>()
      .where('result_blob_expires_at', '>', database.nowMs)
      .where('result_blob_expires_at', '>=', after.atMs)
      .where(eb => eb.or([eb('result_blob_expires_at', '>', after.atMs), eb('id', '>', after.id)]))
      .orderBy('result_blob_expires_at', order)
      .orderBy('id', order)
      .limit(limit)
      .execute(),
  );
}

function repay(
  database: Database,
  { jobId, accountId }: Loss,
  { missing, auditId }: Repayment,
): Promise<Repaid> {
  return transact(database, async tx => {
    // The lock order of all credit movements.
    await holdAccount(database, tx, accountId);
    const charge = await selectSettlement(tx, { accountId, jobId })
      .select('kind')
      .executeTakeFirst();
    const corrections = await readCorrections(tx, jobId);
    if (corrections.some(({ state }) => OPEN_STATES.some(open => open === state))) {
      return 'correcting';
    }
    const isMadeAgain = corrections.some(
      ({ id, state }) => state === 'succeeded' && !missing.has(id),
    );
    if (charge?.kind !== 'charge' || isMadeAgain) return 'unpaid';
    const row = await tx
      .selectFrom('lost_results')
      .select('settlement')
      .where('job_id', '=', jobId)
      .executeTakeFirst();
    if (row?.settlement === 'paid') return 'settled';
    if (auditId === undefined) return 'paid';
    // Releases up to 0.3.0 may have left an unpaid row.
    await tx.deleteFrom('lost_results').where('job_id', '=', jobId).execute();
    const now = { found_at: database.nowMs, settled_at: database.nowMs };
    const by = { finding_id: auditId, found_by: 'operator', settlement: 'paid' } as const;
    const values = { job_id: jobId, account_id: accountId, ...by, ...now };
    await tx.insertInto('lost_results').values(values).execute();
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
    return 'paid';
  });
}
