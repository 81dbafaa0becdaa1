/**
 * Says how a job is funded (control-plane/queue/funding/): by the first kind of KINDS that matches.
 * Only jobs that take a credit have ledger entries.
 */

import type { FundingKind } from '@matting/queue/funding/funding.ts';
import { isUnpaid, type JobClass, UNPAID } from '@matting/queue/job.ts';
import { type RawBuilder, type SqlBool, sql } from 'kysely';

/** A job, a new job, or `class` and `corrects as correction` of a row. */
interface FundedJob {
  readonly class: JobClass | null;
  readonly correction?: object | string | null | undefined;
}

const isCorrection = (job: FundedJob) => job.correction != null;

interface Kind {
  is(job: FundedJob): boolean;
  /** The same condition on the table `job`. */
  readonly sql: RawBuilder<unknown>;
}

const KINDS: Readonly<Record<FundingKind, Kind>> = {
  /** Includes corrections of unpaid jobs. */
  unpaid: { is: isUnpaid, sql: sql`job.class = ${sql.lit(UNPAID)}` },
  /** CORRECTIONS_MAX bounds them (docs/adr/0052). */
  free: { is: isCorrection, sql: sql`job.corrects is not null` },
  credit: { is: () => true, sql: sql`1 = 1` },
};
const NAMES = Object.keys(KINDS) as FundingKind[];

export function fundingKindOf(job: FundedJob): FundingKind {
  return NAMES.find(kind => KINDS[kind].is(job)) ?? 'credit';
}

export function takesCredit(job: FundedJob): boolean {
  return fundingKindOf(job) === 'credit';
}

const WHENS = NAMES.map(kind => sql`when ${KINDS[kind].sql} then ${sql.lit(kind)}`);
export function isFundedBy(kind: FundingKind): RawBuilder<SqlBool> {
  return sql`case ${sql.join(WHENS, sql` `)} end = ${sql.lit(kind)}`;
}

export const TAKES_CREDIT = isFundedBy('credit');
