/** Every method of the stores that changes something. */
import { CHANGING_ALERTS } from './changing-alerts.ts';
import { CHANGING_API_KEYS } from './changing-api-keys.ts';
import { CHANGING_JOBS } from './changing-jobs.ts';
import { CHANGING_LOST_RESULTS } from './changing-lost-results.ts';
import type { ChangingMethod } from './changing-methods.ts';
import { CHANGING_NOTIFICATIONS } from './changing-notifications.ts';
import { CHANGING_ORDERS } from './changing-orders.ts';
import { CHANGING_OTHERS } from './changing-others.ts';
import { CHANGING_PEOPLE } from './changing-people.ts';
import { CHANGING_PLAYGROUND } from './changing-playground.ts';
import { CHANGING_SWEEPS } from './changing-sweeps.ts';

export const CHANGING: readonly ChangingMethod[] = [
  ...CHANGING_API_KEYS,
  ...CHANGING_ALERTS,
  ...CHANGING_JOBS,
  ...CHANGING_NOTIFICATIONS,
  ...CHANGING_ORDERS,
  ...CHANGING_OTHERS,
  ...CHANGING_PEOPLE,
  ...CHANGING_PLAYGROUND,
  ...CHANGING_LOST_RESULTS,
  ...CHANGING_SWEEPS,
];

/** Methods that change what another does, by the same code. */
export const LIKE_ANOTHER: Readonly<Record<string, string>> = {
  'ledger.check': 'ledger.audit',
  'ledger.credits': 'ledger.audit',
};
