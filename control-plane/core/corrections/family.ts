/**
 * The rows of a family: the first job, and all that correct it or one of its corrections. Whoever
 * makes, ends or removes one of them holds the account's row (docs/adr/0052).
 */
import type { Database, Db } from '@matting/database/database.ts';
import { matchesOne } from '@matting/database/statements.ts';
import type { NotNull } from 'kysely';
import type { JobCorrection } from '../jobs/job-family.ts';
import { KEPT_COLUMNS } from './kept-files.ts';

/** Corrections of a first job and of its corrections. */
export const CORRECTIONS_MAX = 20;

/** The transaction leaves no trace: what the correction needs is not kept, or too many were made. */
export class NotCorrectableError extends Error {}

/**
 * Counts a new correction in its family, with the account's row held. @throws NotCorrectableError
 * @returns columns of the correction
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

/** All but the first job; CORRECTIONS_MAX at most. */
export function readCorrections(tx: Db, first: string) {
  return tx
    .selectFrom('jobs')
    .select(['id', 'corrects', 'state', 'created_at', ...KEPT_COLUMNS])
    .where('family', '=', first)
    .orderBy('id')
    .execute();
}

/** The results of a first job's corrections. */
export function readResultsOfFamily(db: Db, first: string) {
  return db
    .selectFrom('jobs')
    .select(['id as jobId', 'result_blob as blob'])
    .where('family', '=', first)
    .where('result_blob', 'is not', null)
    .$narrowType<{ blob: NotNull }>()
    .execute();
}

/** No correction is made of these jobs from here on. The sweep removes what they keep. */
export async function endKeeping({ nowMs }: Database, tx: Db, jobIds: readonly string[]) {
  await tx
    .updateTable('jobs')
    .set({ kept_until: nowMs })
    .where('id', 'in', [...jobIds].sort())
    .where('kept_until', '>', nowMs)
    .execute();
}
