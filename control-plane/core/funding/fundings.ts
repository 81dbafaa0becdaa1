/** The kinds of funding by their names; jobs/job-funding.ts says which jobs are of which. */
import { type FundedJob, type FundingKind, fundingKindOf } from '../jobs/job-funding.ts';
import { credit } from './credit.ts';
import { family } from './family.ts';
import type { Funding } from './funding.ts';
import { nothing } from './nothing.ts';

const FUNDINGS: Readonly<Record<FundingKind, Funding>> = { nothing, family, credit };

export function fundingOf(job: FundedJob): Funding {
  return FUNDINGS[fundingKindOf(job)];
}
