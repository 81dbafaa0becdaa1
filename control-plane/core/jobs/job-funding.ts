/**
 * Who pays for a job: the first kind of KINDS that it is of. core/funding/ holds, settles and
 * releases what each kind takes. `sql` says the same as `is` in SQL of the table `job`. The ledger has
 * entries of jobs that take a credit. The audit reports an entry of any other job.
 */

import { isUnpaid, type JobClass, UNPAID } from '@matting/queue/job.ts';
import { type RawBuilder, type SqlBool, sql } from 'kysely';

/** A job, a new one, or `class` and `corrects as correction` of its row. */
export interface FundedJob {
  readonly class: JobClass | null;
  readonly correction?: object | string | null | undefined;
}

const isCorrection = (job: FundedJob) => job.correction != null;

const KINDS = {
  /** Unpaid jobs, with corrections of them. They cost nothing (docs/adr/0022). */
  nothing: { is: isUnpaid, sql: sql`job.class = ${sql.lit(UNPAID)}`, takesCredit: false },
  /** Corrections of other jobs. Nobody pays; CORRECTIONS_MAX of a first job (docs/adr/0052). */
  family: { is: isCorrection, sql: sql`job.corrects is not null`, takesCredit: false },
  /** All others. The account pays by its ledger (accounts/ledger/ledger.ts). */
  credit: { is: () => true, sql: sql`1 = 1`, takesCredit: true },
};

export type FundingKind = keyof typeof KINDS;
const NAMES = Object.keys(KINDS) as FundingKind[];

export function fundingKindOf(job: FundedJob): FundingKind {
  return NAMES.find(kind => KINDS[kind].is(job)) ?? 'credit';
}

export function takesCredit(job: FundedJob): boolean {
  return KINDS[fundingKindOf(job)].takesCredit;
}

const WHENS = NAMES.map(kind => sql`when ${KINDS[kind].sql} then ${sql.lit(kind)}`);
export function isFundedBy(...kinds: readonly FundingKind[]): RawBuilder<SqlBool> {
  return sql`case ${sql.join(WHENS, sql` `)} end in (${sql.join(kinds.map(kind => sql.lit(kind)))})`;
}

export const TAKES_CREDIT = isFundedBy(...NAMES.filter(kind => KINDS[kind].takesCredit));
