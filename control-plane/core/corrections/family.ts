/**
 * The rows of a family: a first job, its corrections and theirs. A transaction that makes, ends or
 * removes a correction holds the account's row (docs/adr/0052).
 */
import type { Database, Db } from '@matting/database/database.ts';
import { matchesOne } from '@matting/database/statements.ts';
import type { NotNull } from 'kysely';
import type { JobCorrection } from '../jobs/job-family.ts';
import { KEPT_COLUMNS } from './kept-files.ts';

/** In a family. */
export const CORRECTIONS_MAX = 20;

/** The needed files are not kept, or the family has CORRECTIONS_MAX. */
export class NotCorrectableError extends Error {}

/**
 * @returns columns of the correction
 * @throws NotCorrectableError
 */
export async function countInFamily(
  { nowMs }: Database,
  tx: Db,
  correction: Omit<JobCorrection, 'matte'>,
) {
  const counted = await matchesOne(
    tx
      .updateTable('jobs')
      .set(eb => ({ corrections: eb('corrections', '+', 1) }))
      .where('id', '=', correction.first)
      .where('kept_until', '>', nowMs)
      .where('corrections', '<', CORRECTIONS_MAX),
  );
  const base = await tx
    .selectFrom('jobs')
    .select(['kept_matte as base_matte', 'playground_day'])
    .where('id', '=', correction.of)
    .executeTakeFirst();
  if (!counted || base == null || base.base_matte === null) throw new NotCorrectableError();
  const matte = { ...JSON.parse(base.base_matte), cropRun: correction.cropRun };
  return { ...base, base_matte: JSON.stringify(matte) };
}

/** CORRECTIONS_MAX rows at most. */
export function readCorrections(tx: Db, first: string) {
  return tx
    .selectFrom('jobs')
    .select(['id', 'corrects', 'state', 'created_at', ...KEPT_COLUMNS])
    .where('family', '=', first)
    .orderBy('id')
    .execute();
}

export function readResultsOfFamily(db: Db, first: string) {
  return db
    .selectFrom('jobs')
    .select(['id as jobId', 'result_blob as blob'])
    .where('family', '=', first)
    .where('result_blob', 'is not', null)
    .$narrowType<{ blob: NotNull }>()
    .execute();
}

/** These jobs take no more corrections; the sweep removes their kept files. */
export async function endKeeping({ nowMs }: Database, tx: Db, jobIds: readonly string[]) {
  await tx
    .updateTable('jobs')
    .set({ kept_until: nowMs })
    .where('id', 'in', [...jobIds].sort())
    .where('kept_until', '>', nowMs)
    .execute();
}
