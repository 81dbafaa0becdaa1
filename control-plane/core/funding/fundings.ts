/** The kinds of funding by their names; jobs/job-funding.ts says which jobs are of which. */
import { type FundedJob, type FundingKind, fundingKindOf } from '../jobs/job-funding.ts';
import { allowance } from './allowance.ts';
import { credit } from './credit.ts';
import { family } from './family.ts';
import type { Funding } from './funding.ts';

const FUNDINGS: Readonly<Record<FundingKind, Funding>> = { allowance, family, credit };

export function fundingOf(job: FundedJob): Funding {
  return FUNDINGS[fundingKindOf(job)];
}
