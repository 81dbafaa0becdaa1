/** The methods that change the figures of usage. A job's end changes them too: changing-jobs.ts. */
import { dayOf, USAGE_KEPT_DAYS } from '../../src/domain/account/usage.ts';
import type { ChangingMethod } from './changing-methods.ts';
import { assertUsageAgrees } from './usage/usage-agrees.ts';

const removeOld: ChangingMethod = {
  name: 'usage.removeOld',
  alone: true,
  arrange: async ({ database }) => {
    const old = {
      account_id: 'account',
      day: dayOf(Date.now()) - USAGE_KEPT_DAYS - 2,
      api_key_id: 'key',
      outcome: 'succeeded',
      format: 'png',
      images: 1,
      credits: 1,
    } as const;
    await database.kysely.insertInto('usage_days').values(old).execute();
    return {
      act: stores => stores.usage.removeOld(10),
      check: async () => assertUsageAgrees(database),
    };
  },
};

export const CHANGING_USAGE: readonly ChangingMethod[] = [removeOld];
