import { CHANGING_JOBS, repairing } from '@matting/core/test/changing-jobs.ts';
import { CHANGING_KEYS } from '@matting/core/test/changing-keys.ts';
import type { ChangingMethod } from '@matting/core/test/changing-methods.ts';
import { SETTLED_STEPS } from '../../settled-steps.ts';
import type { Stores } from '../fixtures.ts';
import { assertUsageAgrees } from '../usage-agrees.ts';
import { CHANGING_ALERTS } from './changing-alerts.ts';
import { CHANGING_ORDERS } from './changing-orders.ts';
import { CHANGING_PEOPLE } from './changing-people.ts';
import { CHANGING_USAGE } from './changing-usage.ts';

const ENDS = [...CHANGING_KEYS, ...CHANGING_JOBS].filter(
  ({ name, which }) => /^jobs\.(succeed|fail)$/.test(name) && which !== 'that is not paid for',
);

export const CHANGING: readonly ChangingMethod<Stores>[] = [
  ...ENDS,
  repairing(SETTLED_STEPS, assertUsageAgrees),
  ...CHANGING_ALERTS,
  ...CHANGING_ORDERS,
  ...CHANGING_PEOPLE,
  ...CHANGING_USAGE,
];
