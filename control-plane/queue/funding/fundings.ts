import { credit } from './credit.ts';
import { free } from './free.ts';
import type { Funding, FundingKind } from './funding.ts';
import { unpaid } from './unpaid.ts';

export const FUNDINGS: Readonly<Record<FundingKind, Funding>> = { credit, free, unpaid };
