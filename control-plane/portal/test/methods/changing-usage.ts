import assert from 'node:assert/strict';
import type { ChangingMethod } from '@matting/core/test/changing-methods.ts';
import {
  claimed,
  fundedAccount,
  newJob,
  reread,
  SERVICE_FAULT,
  submitted,
} from '@matting/core/test/fixtures.ts';
import { rowsOf } from '@matting/database/test/rows.ts';
import { dayOf, USAGE_KEPT_DAYS } from '../../usage/usage-store.ts';
import type { Stores } from '../fixtures.ts';
import { assertUsageAgrees } from '../usage-agrees.ts';

/** The playground has used `count` pictures. Also returns the day of the last. */
async function countedPlayground({ playground, ...stores }: Stores, count: number) {
  const account = await fundedAccount(stores, 0);
  const apiKeyId = await playground.internalKey(account);
  let unpaidDayMs: number | undefined;
  for (let done = 0; done < count; done++) unpaidDayMs = await playground.take(account, count);
  return { account, apiKeyId, unpaidDayMs };
}

async function assertUsed(stores: Stores, account: string, ...among: number[]): Promise<void> {
  const { used } = await stores.playground.usage(account);
  assert.ok(among.includes(used), `${used} counted`);
}

export const CHANGING_USAGE: readonly ChangingMethod<Stores>[] = [
  {
    name: 'playground.internalKey',
    arrange: async ({ stores, database, ...fixture }) => {
      const account = await fixture.account(0);
      return {
        act: faulty => faulty.playground.internalKey(account),
        check: async outcome => {
          assert.equal(await stores.playground.internalKey(account), outcome);
          const keys = await rowsOf(database.kysely, 'api_keys', { account_id: account });
          assert.deepEqual(
            keys.map(({ id, purpose }) => [id, purpose]),
            [[outcome, 'playground']],
          );
        },
      };
    },
  },
  {
    name: 'playground.take',
    arrange: async ({ stores }) => {
      const { account, unpaidDayMs } = await countedPlayground(stores, 1);
      return {
        act: faulty => faulty.playground.take(account, 3),
        check: async outcome => {
          assert.equal(outcome, unpaidDayMs);
          // After a lost answer one picture more may be counted, never one fewer.
          await assertUsed(stores, account, 2, 3);
        },
      };
    },
  },
  {
    name: 'playground.giveBack',
    arrange: async ({ stores }) => {
      const { account, unpaidDayMs = 0 } = await countedPlayground(stores, 3);
      return {
        // Its caller does not repeat it, so that no picture is returned twice.
        act: faulty => faulty.playground.giveBack(account, unpaidDayMs).catch(() => undefined),
        check: async () => assertUsed(stores, account, 2, 3),
      };
    },
  },
  {
    name: 'queue.fail',
    which: 'of the playground',
    arrange: async ({ stores }) => {
      const { account, ...counted } = await countedPlayground(stores, 2);
      const job = await submitted(stores, newJob(account, { ...counted, class: 'playground' }));
      const claim = await claimed(stores, job);
      return {
        act: faulty => faulty.queue.fail(claim, SERVICE_FAULT),
        check: async outcome => {
          assert.equal(outcome, true);
          assert.equal((await reread(stores, job.id)).state, 'failed');
          await assertUsed(stores, account, 1);
        },
      };
    },
  },
  {
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
  },
];
