/** Every method of the stores that changes something. */
import { CHANGING_ALERTS } from './changing-alerts.ts';
import { CHANGING_JOBS } from './changing-jobs.ts';
import type { ChangingMethod } from './changing-methods.ts';
import { CHANGING_NOTIFICATIONS } from './changing-notifications.ts';
import { CHANGING_OTHERS } from './changing-others.ts';
import { CHANGING_PEOPLE } from './changing-people.ts';
import { CHANGING_SALES } from './changing-sales.ts';

export const CHANGING: readonly ChangingMethod[] = [
  ...CHANGING_SALES,
  ...CHANGING_ALERTS,
  ...CHANGING_JOBS,
  ...CHANGING_NOTIFICATIONS,
  ...CHANGING_OTHERS,
  ...CHANGING_PEOPLE,
];

/** Methods that change what another does, by the same code. */
export const LIKE_ANOTHER: Readonly<Record<string, string>> = {
  'ledger.check': 'ledger.audit',
  'ledger.credits': 'ledger.audit',
};
