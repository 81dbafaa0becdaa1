/** A call or more of each method of alerts and mails, for statements.test.ts. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { at } from '../../../test/support/at.ts';
import { FIRST_ALERT } from '../../src/store/alerts/alert-store.ts';
import { MAILS_COUNTED_MAX, type MailClaim } from '../../src/store/alerts/mail-outbox.ts';
import { HEAD_MAX } from '../../src/store/alerts/mail-turns.ts';
import type { Database } from '../../src/store/database/connect.ts';
import type { Stores } from '../../src/store/stores.ts';
import {
  addOwner,
  BY_SYSTEM,
  eventOf,
  SEALED,
  seenOf,
  TEST_BOUNDS,
  tellingOf,
  watchedAccount,
} from './alerts-fixtures.ts';
import type { Exercise } from './exercise.ts';
import { HOUR_MS } from './fixtures.ts';

/** Many accounts with thresholds, of which none is looked at here. */
async function crowd(stores: Stores): Promise<string> {
  for (let count = 0; count < 8; count += 1) await watchedAccount(stores, 1000, [1, 2, 3, 4, 5]);
  return watchedAccount(stores, 5, [10, 20]);
}

async function claimed(stores: Stores): Promise<MailClaim> {
  const accountId = await watchedAccount(stores, 5, [10]);
  const telling = tellingOf(at(await seenOf(stores, accountId), 0));
  assert.ok(await stores.alerts.tell(telling));
  const claim = { id: at(telling.mails, 0).id, holder: 'replica-1', fence: 1 };
  assert.ok(await stores.mailOutbox.claim(claim, HOUR_MS));
  return claim;
}

const MAILS: Record<string, Exercise> = {
  'mailOutbox.listDue': {
    run: async (s, { kysely }) => {
      await claimed(s);
      const mail = kysely.selectFrom('mail_outbox').selectAll();
      const row = await mail.executeTakeFirstOrThrow();
      const due = { due_at: 1, lease_holder: null, lease_expires_at: null };
      const rows = Array.from({ length: HEAD_MAX }, () => ({ ...row, ...due, id: randomUUID() }));
      assert.ok((await s.mailOutbox.listDue(4, [])).length <= 4);
      await kysely.insertInto('mail_outbox').values(rows).execute();
      assert.ok((await s.mailOutbox.listDue(4, [])).length > 0);
      const ids = rows.map(({ id }) => id);
      await kysely.deleteFrom('mail_outbox').where('id', 'in', ids).execute();
    },
    readsMax: 3 * HEAD_MAX,
    why: 'reads the first that are due',
  },
  'mailOutbox.claim': { run: async s => void (await claimed(s)) },
  'mailOutbox.release': {
    run: async s => void assert.ok(await s.mailOutbox.release(await claimed(s))),
  },
  'mailOutbox.sent': {
    run: async s => void assert.ok(await s.mailOutbox.sent(await claimed(s))),
  },
  'mailOutbox.retryLater': {
    run: async s =>
      void assert.ok(await s.mailOutbox.retryLater(await claimed(s), 'E451', HOUR_MS)),
  },
  'mailOutbox.failed': {
    run: async s => void assert.ok(await s.mailOutbox.failed(await claimed(s), 'E550')),
  },
  'mailOutbox.waiting': {
    run: async s => {
      await claimed(s);
      assert.ok((await s.mailOutbox.waiting()).count > 0);
    },
    readsMax: 2 * MAILS_COUNTED_MAX + 40,
    why: 'reads the mails that wait, a bounded number',
  },
  'mailOutbox.sendNow': {
    run: async s => {
      assert.ok(await s.mailOutbox.retryLater(await claimed(s), 'E451', HOUR_MS));
      assert.ok((await s.mailOutbox.sendNow(10)) > 0);
    },
  },
  'mailOutbox.removeOldCounts': {
    run: async (s, { kysely }) => {
      assert.equal(await s.mailOutbox.removeOldCounts(10), 0);
      await claimed(s);
      await kysely.updateTable('message_counts').set({ day_at: 1 }).execute();
      assert.ok((await s.mailOutbox.removeOldCounts(10)) > 0);
    },
  },
  'mailOutbox.removeOld': {
    run: async (s, { kysely }) => {
      assert.equal(await s.mailOutbox.removeOld(HOUR_MS, 10), 0);
      const claim = await claimed(s);
      assert.ok(await s.mailOutbox.sent(claim));
      const mail = kysely.updateTable('mail_outbox').where('id', '=', claim.id);
      await mail.set({ finished_at: 1 }).execute();
      assert.equal(await s.mailOutbox.removeOld(HOUR_MS, 10), 1);
    },
  },
};

/** By `store.method`. */
export const ALERTS: Record<string, Exercise> = {
  ...MAILS,
  'alerts.look': {
    run: async s => {
      const accountId = await crowd(s);
      assert.equal((await s.alerts.look(FIRST_ALERT, 7)).length, 7);
      assert.equal((await seenOf(s, accountId)).length, 2);
    },
  },
  'alerts.owners': {
    run: async (s, database: Database) => {
      const accountId = await watchedAccount(s, 5, []);
      await addOwner(database, accountId, `${accountId}@example.test`);
      assert.equal((await s.alerts.owners(accountId)).length, 1);
    },
  },
  'alerts.tell': {
    run: async s => {
      const alert = at(await seenOf(s, await crowd(s)), 0);
      const telling = tellingOf(alert);
      const told = { mails: 1, event: true, withheld: [] };
      assert.deepEqual(await s.alerts.tell(telling), told);
      assert.deepEqual(await s.alerts.tell(telling), told, 'its answer was lost');
      assert.equal(await s.alerts.tell(tellingOf(alert)), undefined);
    },
  },
  'alerts.arm': {
    run: async s => {
      const alert = at(await seenOf(s, await crowd(s)), 0);
      assert.equal(await s.alerts.arm(alert), false);
    },
  },
  'alertSettings.read': {
    run: async s => {
      const accountId = await watchedAccount(s, 5, [10]);
      await s.alertSettings.read(accountId);
      assert.ok(await s.alerts.tell(tellingOf(at(await seenOf(s, accountId), 0))));
      const { thresholds } = await s.alertSettings.read(accountId);
      assert.equal(at(thresholds, 0).delivery?.status, 'pending');
    },
  },
  'alertSettings.webhook': {
    run: async s => void (await s.alertSettings.webhook(await watchedAccount(s, 5, []))),
  },
  'alertSettings.setThresholds': {
    run: async s => {
      const accountId = await watchedAccount(s, 5, [10, 20]);
      await s.alertSettings.setThresholds(accountId, [30], BY_SYSTEM());
    },
  },
  'alertSettings.setWebhook': {
    run: async s => {
      const accountId = await watchedAccount(s, 5, []);
      const other = { url: 'https://other.example/', ...SEALED };
      await s.alertSettings.setWebhook(accountId, other, BY_SYSTEM());
      await s.alertSettings.setWebhook(accountId, null, BY_SYSTEM());
      assert.equal(await s.alertSettings.webhook(accountId), undefined);
    },
  },
  'alertSettings.sendTest': {
    run: async s => {
      const accountId = await watchedAccount(s, 5, []);
      const test = () => s.alertSettings.sendTest(eventOf(accountId), TEST_BOUNDS, BY_SYSTEM());
      assert.deepEqual([await test(), await test()], ['sent', 'too-soon']);
      const bounds = { everyMs: 0, messagesMax: 1 };
      const withheld = await s.alertSettings.sendTest(eventOf(accountId), bounds, BY_SYSTEM());
      assert.deepEqual(withheld, { reason: 'account', isFirst: true });
    },
  },
  'alertSettings.listSealedWithOthers': {
    run: async s => {
      await watchedAccount(s, 5, []);
      assert.ok((await s.alertSettings.listSealedWithOthers('b', 3)).length > 0);
      assert.ok((await s.alertSettings.listSealedWithOthers('a', 3)).length > 0);
    },
  },
  'alertSettings.reseal': {
    run: async s => {
      const accountId = await watchedAccount(s, 5, []);
      const from = { accountId, ...SEALED };
      assert.ok(await s.alertSettings.reseal(from, { ...from, secretKeyId: 'b' }));
    },
  },
  'webhookOutbox.removeOldEvents': {
    run: async (s, { kysely }) => {
      const alert = at(await seenOf(s, await watchedAccount(s, 5, [10])), 0);
      const telling = tellingOf(alert);
      assert.ok(await s.alerts.tell(telling));
      const event = kysely.updateTable('webhook_outbox').where('job_id', '=', telling.eventId);
      const ended = { status: 'failed', finished_at: 2, next_attempt_at: null } as const;
      await event.set({ created_at: 1, ...ended }).execute();
      assert.equal(await s.webhookOutbox.removeOldEvents(30 * 24 * HOUR_MS, 20), 1);
    },
  },
};
