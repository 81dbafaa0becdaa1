/**
 * The rows of ledger_audits: how the last audits ended, up to where jobs were compared, and where a
 * full audit stands, so that one that was interrupted goes on.
 *
 * | full audit | its row                  | left by                                             |
 * |------------|--------------------------|-----------------------------------------------------|
 * | none       | run_id null              | begin                                               |
 * | runs       | run_id, saved_at renewed | finish (none); its process ends (interrupted)       |
 * | interrupted| saved_at grows old       | begin, TAKE_OVER_MS after saved_at: it runs again   |
 *
 * A process that takes one over writes its own run_id; a slow predecessor then saves nothing more.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { ContractError } from '#contract/errors.ts';
import type { Database } from '../database/connect.ts';
import { query } from '../database/transact.ts';
import { isInserted, matchesOne } from '../database/values.ts';
import type { LedgerAuditKind } from './ledger.ts';

/** An audit that saved nothing for this long was interrupted; ten times what a page takes. */
export const TAKE_OVER_MS = 30_000;
const TAKE_OVER_POLL_MS = 500;

export interface LedgerProblem {
  readonly accountId: string;
  /** null: about the account as a whole. */
  readonly jobId: string | null;
  readonly problem: string;
}

/** Where an audit stands. */
export interface AuditProgress {
  /** The database's clock. */
  readonly startedAtMs: number;
  readonly phase: 'accounts' | 'jobs';
  /** The last account, or job, that is done; empty: none. */
  readonly after: string;
  readonly accounts: number;
  readonly entries: number;
  readonly jobs: number;
  /** Those that are listed, and how many there are. */
  readonly problems: readonly LedgerProblem[];
  readonly problemCount: number;
}

/** How the audits of each kind ended that went through the whole ledger; `ageMs`: since then. */
export async function readLastAudits(database: Database) {
  const rows = await query(database, db =>
    db
      .selectFrom('ledger_audits')
      .select(['kind', 'last_finished_at', 'last_problems', database.nowMs.as('now')])
      .orderBy('kind')
      .execute(),
  );
  return rows.flatMap(({ kind, last_finished_at: finishedAt, last_problems: problems, now }) =>
    finishedAt === null || problems === null
      ? []
      : [{ kind, ageMs: Math.max(0, now - finishedAt), problems }],
  );
}

/**
 * Begins a full audit, or goes on with one that was interrupted.
 * @param takeOverMs how long nothing was saved of one that was
 * @returns its id, and where it begins or goes on
 * @throws ContractError SERVICE_UNAVAILABLE: another process is at one.
 */
export async function beginFullRun(database: Database, start: AuditProgress, takeOverMs: number) {
  await ensureRow(database, 'full');
  const id = randomUUID();
  const giveUpAt = performance.now() + 2 * takeOverMs;
  for (;;) {
    const row = await query(database, db =>
      db
        .selectFrom('ledger_audits')
        .select(['run_id', 'saved_at', 'progress', database.nowMs.as('now')])
        .where('kind', '=', 'full')
        .executeTakeFirstOrThrow(),
    );
    const { run_id: runId, saved_at: savedAt } = row;
    const progress = row.progress === null ? start : (JSON.parse(row.progress) as AuditProgress);
    // Ours already where the answer to our own update was lost.
    if (runId === id) return { id, progress };
    if (savedAt === null || savedAt + takeOverMs <= row.now) {
      if (await saveRun(database, runId, id, progress)) return { id, progress };
    } else if (performance.now() >= giveUpAt) {
      throw new ContractError('SERVICE_UNAVAILABLE', 'another full check of the ledger runs');
    } else {
      await delay(TAKE_OVER_POLL_MS);
    }
  }
}

/** @throws ContractError SERVICE_UNAVAILABLE: it was taken over; it must end. */
export async function saveFullRun(
  database: Database,
  id: string,
  progress: AuditProgress,
): Promise<void> {
  if (await saveRun(database, id, id, progress)) return;
  const detail = 'this full check stood still and another one has taken its place';
  throw new ContractError('SERVICE_UNAVAILABLE', detail);
}

/** False: the run is not, or no longer, this one's. */
function saveRun(
  database: Database,
  heldBy: string | null,
  id: string,
  progress: AuditProgress,
): Promise<boolean> {
  return query(database, db =>
    matchesOne(
      db
        .updateTable('ledger_audits')
        .set({ run_id: id, saved_at: database.nowMs, progress: JSON.stringify(progress) })
        .where('kind', '=', 'full')
        .where('run_id', heldBy === null ? 'is' : '=', heldBy),
    ),
  );
}

/**
 * An audit went through everything, in one go or several.
 * @param runId of a full one; said a second time, because the answer was lost, it changes nothing
 */
export async function finishRun(
  database: Database,
  { startedAtMs, problemCount }: AuditProgress,
  runId?: string,
): Promise<void> {
  const kind: LedgerAuditKind = runId === undefined ? 'incremental' : 'full';
  await ensureRow(database, kind);
  await query(database, db =>
    db
      .updateTable('ledger_audits')
      .set({
        ...{ run_id: null, saved_at: null, progress: null, last_started_at: startedAtMs },
        last_finished_at: database.nowMs,
        last_problems: problemCount,
      })
      .where('kind', '=', kind)
      .where('run_id', runId === undefined ? 'is' : '=', runId ?? null)
      .execute(),
  );
}

/** Final jobs that ended before were compared with the ledger by an incremental audit. */
export async function readJobsMarkMs(database: Database): Promise<number> {
  const row = await query(database, db =>
    db
      .selectFrom('ledger_audits')
      .select('jobs_checked_to')
      .where('kind', '=', 'incremental')
      .executeTakeFirst(),
  );
  return row?.jobs_checked_to ?? 0;
}

/** Moves it on, never back. */
export async function moveJobsMark(database: Database, toMs: number): Promise<void> {
  await ensureRow(database, 'incremental');
  await query(database, db =>
    db
      .updateTable('ledger_audits')
      .set({ jobs_checked_to: toMs })
      .where('kind', '=', 'incremental')
      .where('jobs_checked_to', '<', toMs)
      .execute(),
  );
}

function ensureRow(database: Database, kind: LedgerAuditKind): Promise<boolean> {
  const values = { kind, jobs_checked_to: 0 };
  return isInserted(query(database, db => db.insertInto('ledger_audits').values(values).execute()));
}
