import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { ChangingMethod, Fixture } from '@matting/core/test/changing-methods.ts';
import type { MessageClaim } from '@matting/core/test/internals.ts';
import { at } from '@matting/test-support/at.ts';
import { EVERYTHING } from '../../alerts/notices.ts';
import {
  BY_SYSTEM,
  eventOf,
  expiryNoticeOf,
  HOOK_URL,
  lowBalanceNoticeOf,
  nextDay,
  SEALED,
  seenOf,
  TEST_BOUNDS,
  watchedAccount,
} from '../alerts-fixtures.ts';
import type { Stores } from '../fixtures.ts';

const LONG_AGO_MS = 1;

async function rowsOf(
  { database }: Fixture<Stores>,
  table: 'outbox' | 'audit_entries',
  accountId: string,
): Promise<number> {
  const rows = database.kysely.selectFrom(table).where('account_id', '=', accountId);
  return (await rows.select('account_id').execute()).length;
}

async function recovered({ stores }: Fixture<Stores>) {
  const accountId = await watchedAccount(stores, 5, [10]);
  assert.ok(await stores.alerts.queue(lowBalanceNoticeOf(at(await seenOf(stores, accountId), 0))));
  await stores.ledger.grant(accountId, 100, 'more');
  return at(await seenOf(stores, accountId), 0);
}

export async function due(stores: Stores): Promise<MessageClaim> {
  const accountId = await watchedAccount(stores, 5, [10]);
  const notice = lowBalanceNoticeOf(at(await seenOf(stores, accountId), 0));
  assert.ok(await stores.alerts.queue(notice));
  return { id: at(notice.mails, 0).id, holder: 'replica-1', fence: 1 };
}

export const CHANGING_ALERTS: readonly ChangingMethod<Stores>[] = [
  {
    name: 'alerts.queue',
    arrange: async fixture => {
      const accountId = await watchedAccount(fixture.stores, 5, [10]);
      const notice = lowBalanceNoticeOf(at(await seenOf(fixture.stores, accountId), 0));
      return {
        act: stores => stores.alerts.queue(notice),
        check: async outcome => {
          assert.deepEqual(outcome, { mails: 1, event: true, withheld: [] });
          assert.equal(await rowsOf(fixture, 'outbox', accountId), 2, 'an event and a mail');
          const seen = at(await seenOf(fixture.stores, accountId), 0);
          assert.equal(seen.notified?.credits, 5);
        },
      };
    },
    late: async ({ stores }) => {
      const accountId = await watchedAccount(stores, 5, [10]);
      const alert = at(await seenOf(stores, accountId), 0);
      assert.ok(await stores.alerts.queue(lowBalanceNoticeOf(alert)));
      return { act: others => others.alerts.queue(lowBalanceNoticeOf(alert)), told: undefined };
    },
  },
  {
    name: 'alerts.arm',
    arrange: async fixture => {
      const alert = await recovered(fixture);
      return {
        act: stores => stores.alerts.arm(alert),
        check: async () => {
          assert.equal(at(await seenOf(fixture.stores, alert.accountId), 0).notified, null);
        },
      };
    },
    again: false,
  },
  {
    name: 'alertSettings.setThresholds',
    arrange: async fixture => {
      const accountId = await watchedAccount(fixture.stores, 5, [10, 20]);
      const by = BY_SYSTEM();
      const before = await rowsOf(fixture, 'audit_entries', accountId);
      return {
        act: stores => stores.alertSettings.setThresholds(accountId, [20, 30, 40], by),
        check: async () => {
          const { thresholds } = await fixture.stores.alertSettings.read(accountId);
          assert.deepEqual(
            thresholds.map(({ threshold }) => threshold),
            [40, 30, 20],
          );
          assert.equal(await rowsOf(fixture, 'audit_entries', accountId), before + 1);
        },
      };
    },
  },
  {
    name: 'alertSettings.setWebhook',
    arrange: async fixture => {
      const accountId = await watchedAccount(fixture.stores, 5, []);
      const by = BY_SYSTEM();
      const before = await rowsOf(fixture, 'audit_entries', accountId);
      const url = 'https://other.example/';
      return {
        act: stores => stores.alertSettings.setWebhook(accountId, { url, ...SEALED }, by),
        check: async () => {
          assert.equal((await fixture.stores.alertSettings.webhook(accountId))?.url, url);
          assert.equal(await rowsOf(fixture, 'audit_entries', accountId), before + 1);
        },
      };
    },
  },
  {
    name: 'alertSettings.sendTest',
    arrange: async fixture => {
      const accountId = await watchedAccount(fixture.stores, 5, []);
      const event = eventOf(accountId);
      const by = BY_SYSTEM();
      return {
        act: stores => stores.alertSettings.sendTest(event, TEST_BOUNDS, by),
        check: async outcome => {
          assert.equal(outcome, 'sent');
          assert.equal(await rowsOf(fixture, 'outbox', accountId), 1);
        },
      };
    },
    late: async ({ stores }) => {
      const accountId = await watchedAccount(stores, 5, []);
      const test = (to: Stores) =>
        to.alertSettings.sendTest(eventOf(accountId), TEST_BOUNDS, BY_SYSTEM());
      assert.equal(await test(stores), 'sent');
      return { act: test, told: 'too-soon' };
    },
  },
  {
    name: 'alertSettings.reseal',
    arrange: async ({ stores }) => {
      const accountId = await watchedAccount(stores, 5, []);
      const to = { accountId, secret: Uint8Array.of(9), secretKeyId: 'new' };
      return {
        act: faulty => faulty.alertSettings.reseal({ accountId, ...SEALED }, to),
        check: async () => {
          const webhook = await stores.alertSettings.webhook(accountId);
          assert.deepEqual([webhook?.url, webhook?.secretKeyId], [HOOK_URL, 'new']);
        },
      };
    },
    late: async ({ stores }) => {
      const accountId = await watchedAccount(stores, 5, []);
      const from = { accountId, secret: Uint8Array.of(7), secretKeyId: 'older' };
      return { act: others => others.alertSettings.reseal(from, from), told: false };
    },
  },
  {
    name: 'expiryNotices.queue',
    arrange: async fixture => {
      const accountId = await watchedAccount(fixture.stores, 5, []);
      const notice = await expiryNoticeOf(fixture.stores, accountId);
      assert.ok(notice);
      return {
        act: stores => stores.expiryNotices.queue(notice),
        check: async outcome => {
          assert.deepEqual(outcome, { mails: 1, event: false, withheld: [] });
          assert.equal(await rowsOf(fixture, 'outbox', accountId), 1);
        },
      };
    },
    late: async ({ stores, database }) => {
      const notice = await expiryNoticeOf(stores, await watchedAccount(stores, 5, []));
      assert.ok(notice);
      const kept = await stores.expiryNotices.queue({ ...notice, messagesMax: 0 });
      assert.equal(kept?.withheld.length, 1);
      await nextDay(database);
      const key = { ...notice.key, rest: EVERYTHING };
      const sent = await stores.expiryNotices.queue({ ...notice, key, id: randomUUID() });
      assert.equal(sent?.mails, 1);
      const again = { ...notice, key, id: randomUUID() };
      return { act: others => others.expiryNotices.queue(again), told: undefined };
    },
  },
  {
    name: 'expiryNotices.removeOld',
    alone: true,
    arrange: async ({ stores, database: { kysely } }) => {
      const notice = await expiryNoticeOf(stores, await watchedAccount(stores, 5, []));
      assert.ok(notice && (await stores.expiryNotices.queue(notice)));
      await kysely.updateTable('key_expiry_notices').set({ expires_at: LONG_AGO_MS }).execute();
      return {
        act: others => others.expiryNotices.removeOld(100),
        check: async () => {
          assert.deepEqual(await kysely.selectFrom('key_expiry_notices').selectAll().execute(), []);
        },
      };
    },
  },
  {
    name: 'alerts.removeOldCounts',
    alone: true,
    arrange: async fixture => {
      await due(fixture.stores);
      const { kysely } = fixture.database;
      await kysely.updateTable('message_counts').set({ day_at: LONG_AGO_MS }).execute();
      return {
        act: stores => stores.alerts.removeOldCounts(100),
        check: async () => {
          assert.deepEqual(await kysely.selectFrom('message_counts').selectAll().execute(), []);
        },
      };
    },
  },
];
