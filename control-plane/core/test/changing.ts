import { CHANGING_JOBS, repairing } from './changing-jobs.ts';
import { CHANGING_KEYS } from './changing-keys.ts';
import type { ChangingMethod } from './changing-methods.ts';
import { CHANGING_NOTIFICATIONS } from './changing-notifications.ts';
import { CHANGING_OTHERS } from './changing-others.ts';
import { assertCounted, COUNTING_STEP } from './counted-jobs.ts';

export const CHANGING: readonly ChangingMethod[] = [
  ...CHANGING_KEYS,
  ...CHANGING_JOBS,
  repairing([COUNTING_STEP], assertCounted),
  ...CHANGING_NOTIFICATIONS,
  ...CHANGING_OTHERS,
];

/** Methods that share another's code. */
export const LIKE_ANOTHER: Readonly<Record<string, string>> = {
  'ledger.check': 'ledger.audit',
};
