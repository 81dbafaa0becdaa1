/**
 * The files that a job keeps for its corrections: its input and its node's matte (docs/adr/0052),
 * from the job's end until the first job's result expires. Jobs of a family share files, so a file
 * is removed only when no row names it.
 */
import { type Database, type Db, type Schema, transact } from '@matting/database/database.ts';
import type { Selectable, Transaction } from 'kysely';
import { jobOfKept } from '../jobs/blob-names.ts';
import type { Job } from '../jobs/job.ts';
import type { JobKept, StoredMatte } from '../jobs/job-family.ts';
import { jsonFrom, keptFromRow } from '../jobs/job-rows.ts';

export const KEPT_COLUMNS = ['kept_until', 'kept_input', 'kept_matte'] as const;
const NOTHING_KEPT = { kept_until: null, kept_input: null, kept_matte: null };

type KeptRow = Pick<Selectable<Schema['jobs']>, (typeof KEPT_COLUMNS)[number]>;

export const blobsOfRow = (row: KeptRow) => blobsOfKept(keptFromRow(row));

export const keptUntilOf = (row: KeptRow) => row.kept_until ?? 0;

export function blobsOfKept(kept: JobKept | null): string[] {
  return [kept?.input, kept?.matte].flatMap(file => file?.blob ?? []);
}

/**
 * Keeps files as long as the first job does. A correction gets the first job's `result_models`,
 * even if a model ran on crops.
 */
export async function keepFiles(
  tx: Transaction<Schema>,
  job: Pick<Job, 'id' | 'input' | 'correction'>,
  matte: StoredMatte,
): Promise<void> {
  const update = tx.updateTable('jobs').where('id', '=', job.id);
  const kept_matte = JSON.stringify(matte);
  if (job.correction === null) {
    const kept_input = JSON.stringify(job.input);
    const columns = { kept_input, kept_matte };
    await update.set(eb => ({ ...columns, kept_until: eb.ref('expires_at') })).execute();
    return;
  }
  const first = await tx
    .selectFrom('jobs')
    .select(['kept_until', 'result_models'])
    .where('id', '=', job.correction.first)
    .executeTakeFirst();
  const { kept_until = null, result_models = null } = first ?? {};
  const kept = kept_until === null ? {} : { kept_until, kept_matte };
  await update.set({ result_models, ...kept }).execute();
}

export async function clearKept(tx: Db, jobIds: readonly string[]): Promise<void> {
  // Sorted against deadlocks: transactions lock rows in one order.
  const ids = [...new Set(jobIds)].sort();
  await tx.updateTable('jobs').set(NOTHING_KEPT).where('id', 'in', ids).execute();
}

/** Clears the names; the caller then erases the files. */
export function takeExpiredKept(database: Database, limit: number): Promise<string[]> {
  return transact(database, async tx => {
    const rows = await tx
      .selectFrom('jobs')
      .select(['id', ...KEPT_COLUMNS])
      .where('kept_until', '<=', database.nowMs)
      .orderBy('kept_until')
      .limit(limit)
      .execute();
    if (rows.length === 0) return [];
    const ids = rows.map(({ id }) => id);
    await clearKept(tx, ids);
    return rows.flatMap(blobsOfRow);
  });
}

/**
 * Reads all files that the families of these files need, with the mattes that open corrections
 * begin with.
 */
export async function keptFilesOf(db: Db, names: readonly string[]): Promise<string[]> {
  const ids = names.flatMap(name => jobOfKept(name) ?? []);
  if (ids.length === 0) return [];
  const rows = await db
    .selectFrom('jobs')
    .select(['id', 'family', ...KEPT_COLUMNS])
    .where('id', 'in', ids)
    .execute();
  const families = [...new Set(rows.map(({ id, family }) => family ?? id))];
  if (families.length === 0) return [];
  const open = await db
    .selectFrom('jobs')
    .select('base_matte')
    .where('family', 'in', families)
    .where('base_matte', 'is not', null)
    .execute();
  const bases = open.flatMap(({ base_matte: base }) => jsonFrom<StoredMatte>(base)?.blob ?? []);
  return [...rows.flatMap(blobsOfRow), ...bases];
}
