/**
 * Nobody pays for a correction, which runs no model. Its family bounds it, and the account's row
 * counts it among the jobs in flight (docs/adr/0052).
 */
import type { Database, Schema } from '@matting/database/database.ts';
import { matchesOne } from '@matting/database/statements.ts';
import type { Transaction } from 'kysely';
import { CORRECTIONS_MAX, type JobCorrection } from '../jobs/job-family.ts';
import { closeCorrection, openCorrection } from '../ledger/ledger-writer.ts';
import type { CountedIn, EndFunding, Funding } from './funding.ts';

/** The transaction leaves no trace: what the correction needs is not kept, or too many were made. */
export class NotCorrectableError extends Error {}

const end: EndFunding = async (database, tx, { accountId }, { close, takeSteps }) => {
  if (!(await closeCorrection(database, tx, accountId))) return 'nothing-reserved';
  const closed = await close();
  await takeSteps();
  return closed;
};

export const family: Funding = {
  async hold(database, tx, { correction, ...job }, insertJob) {
    const isOpen = await openCorrection(database, tx, job);
    if (!isOpen) return { kind: 'too-many-in-flight' };
    await insertJob(await countInFamily(database, tx, correction));
    return undefined;
  },
  settle: end,
  release: end,
};

/** Two at once have waited for each other at the account's row. @throws NotCorrectableError */
export async function countInFamily(
  { nowMs }: Database,
  tx: Transaction<Schema>,
  correction: Omit<JobCorrection, 'matte'> | undefined,
): Promise<Partial<CountedIn>> {
  if (correction === undefined) throw new Error('a family pays for its corrections alone');
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
  return base;
}
