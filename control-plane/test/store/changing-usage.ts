/** The methods that change the figures of usage. A job's end changes them too: changing-jobs.ts. */
import assert from 'node:assert/strict';
import { dayOf, USAGE_KEPT_DAYS } from '../../src/domain/account/usage.ts';
import type { Database } from '../../src/store/database/connect.ts';
import { createUsageStore } from '../../src/store/usage/usage-store.ts';
import { admitted } from './changing-jobs.ts';
import type { ChangingMethod, Fixture } from './changing-methods.ts';
import { HOUR_MS, reread, resultOf } from './fixtures.ts';
import { assertUsageAgrees } from './usage/usage-agrees.ts';

/** A job that a control plane from before the figures ended. */
async function endedBefore(fixture: Fixture): Promise<void> {
  const of = await admitted(fixture);
  assert.ok(await fixture.stores.jobs.succeed(of, resultOf(of), HOUR_MS, {}));
  const { accountId } = await reread(fixture.stores, of.jobId);
  const { kysely } = fixture.database;
  const entries = kysely.updateTable('ledger_entries').where('account_id', '=', accountId);
  await entries.set({ usage_counted: null }).execute();
  await kysely.deleteFrom('usage_days').where('account_id', '=', accountId).execute();
}

async function walkToTheEnd(database: Database): Promise<void> {
  const usage = createUsageStore(database, { passEveryMs: 0, marginMs: -1 });
  while ((await usage.walk(50)).more);
}

const walk: ChangingMethod = {
  name: 'usage.walk',
  alone: true,
  arrange: async fixture => {
    await endedBefore(fixture);
    // Its place is made by this one, and moved by the one whose answers are lost.
    const usage = createUsageStore(fixture.database, { passEveryMs: 0, marginMs: -1 });
    await usage.walk(1);
    return {
      act: (_, database) => walkToTheEnd(database),
      check: async () => {
        await walkToTheEnd(fixture.database);
        await assertUsageAgrees(fixture.database);
      },
    };
  },
};

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

export const CHANGING_USAGE: readonly ChangingMethod[] = [walk, removeOld];
