/** A call or more of each method of alerts and mails, for statements.test.ts. */
import assert from 'node:assert/strict';
import { at } from '../../../test/support/at.ts';
import { FIRST_ALERT } from '../../src/store/alerts/alert-store.ts';
import type { Database } from '../../src/store/database/connect.ts';
import { DUE_COUNTED_MAX, HEAD_MAX } from '../../src/store/outbox/outbox-due.ts';
import { insertMail, withdrawMails } from '../../src/store/outbox/outbox-rows.ts';
import type { MessageClaim } from '../../src/store/outbox/outbox-store.ts';
import type { Stores } from '../../src/store/stores.ts';
import {
  addOwner,
  BY_SYSTEM,
  dueMails,
  eventOf,
  mailEnd,
  mailOf,
  SEALED,
  seenOf,
  TEST_BOUNDS,
  tellingOf,
  watchedAccount,
} from './alerts-fixtures.ts';
import { bounded, type Exercise } from './exercise.ts';
import { HOUR_MS } from './fixtures.ts';

/** Many accounts with thresholds, of which none is looked at here. */
async function crowd(stores: Stores): Promise<string> {
  for (let count = 0; count < 8; count += 1) await watchedAccount(stores, 1000, [1, 2, 3, 4, 5]);
  return watchedAccount(stores, 5, [10, 20]);
}

async function claimed(stores: Stores): Promise<MessageClaim> {
  const accountId = await watchedAccount(stores, 5, [10]);
  const telling = tellingOf(at(await seenOf(stores, accountId), 0));
  assert.ok(await stores.alerts.tell(telling));
  const claim = { id: at(telling.mails, 0).id, holder: 'replica-1', fence: 1 };
  assert.ok(await stores.outbox.claim(claim, HOUR_MS));
  return claim;
}

/** Mails beside more than are looked at of another account. */
export async function listMails(s: Stores, database: Database): Promise<void> {
  const { kysely } = database;
  const [first, ...others] = Array.from({ length: HEAD_MAX + 1 }, () => mailOf('crowd'));
  await insertMail(database, kysely, first!);
  assert.ok((await dueMails(s, 4)).length <= 4);
  for (const mail of others) await insertMail(database, kysely, mail);
  assert.ok((await dueMails(s, 4)).length > 0);
  const ids = [first!, ...others].map(({ id }) => id);
  await withdrawMails(kysely, ids);
}

const MAILS: Record<string, Exercise> = {
  'outbox.mailsWaiting': bounded(
    2 * DUE_COUNTED_MAX + 40,
    'reads the mails that wait, a bounded number',
    async s => {
      await claimed(s);
      assert.ok((await s.outbox.mailsWaiting()).count > 0);
    },
  ),
  'outbox.sendMailsNow': async s => {
    assert.ok(await s.outbox.retryLater(await claimed(s), mailEnd('E451'), HOUR_MS));
    assert.ok((await s.outbox.sendMailsNow(10)) > 0);
  },
  'alerts.removeOldCounts': async (s, { kysely }) => {
    assert.equal(await s.alerts.removeOldCounts(10), 0);
    await claimed(s);
    await kysely.updateTable('message_counts').set({ day_at: 1 }).execute();
    assert.ok((await s.alerts.removeOldCounts(10)) > 0);
  },
  'outbox.removeOld': async (s, { kysely }) => {
    const alert = at(await seenOf(s, await watchedAccount(s, 5, [10])), 0);
    const telling = tellingOf(alert);
    assert.ok(await s.alerts.tell(telling));
    const { eventId, mails } = telling;
    const ended = { status: 'failed', finished_at: 1, next_attempt_at: null } as const;
    for (const [kind, id] of [
      ['mail', at(mails, 0).id],
      ['webhook', eventId],
    ] as const) {
      assert.equal(await s.outbox.removeOld(kind, 30 * 24 * HOUR_MS, 20), 0);
      await kysely.updateTable('outbox').where('id', '=', id).set(ended).execute();
      assert.equal(await s.outbox.removeOld(kind, 30 * 24 * HOUR_MS, 20), 1);
    }
  },
};

/** By `store.method`. */
export const ALERTS: Record<string, Exercise> = {
  ...MAILS,
  'alerts.look': async s => {
    const accountId = await crowd(s);
    assert.equal((await s.alerts.look(FIRST_ALERT, 7)).length, 7);
    assert.equal((await seenOf(s, accountId)).length, 2);
  },
  'alerts.owners': async (s, database: Database) => {
    const accountId = await watchedAccount(s, 5, []);
    await addOwner(database, accountId, `${accountId}@example.test`);
    assert.equal((await s.alerts.owners(accountId)).length, 1);
  },
  'alerts.tell': async s => {
    const alert = at(await seenOf(s, await crowd(s)), 0);
    const telling = tellingOf(alert);
    const told = { mails: 1, event: true, withheld: [] };
    assert.deepEqual(await s.alerts.tell(telling), told);
    assert.deepEqual(await s.alerts.tell(telling), told, 'its answer was lost');
    assert.equal(await s.alerts.tell(tellingOf(alert)), undefined);
  },
  'alerts.arm': async s => {
    const alert = at(await seenOf(s, await crowd(s)), 0);
    assert.equal(await s.alerts.arm(alert), false);
  },
  'alertSettings.read': async s => {
    const accountId = await watchedAccount(s, 5, [10]);
    await s.alertSettings.read(accountId);
    assert.ok(await s.alerts.tell(tellingOf(at(await seenOf(s, accountId), 0))));
    const { thresholds } = await s.alertSettings.read(accountId);
    assert.equal(at(thresholds, 0).delivery?.status, 'pending');
  },
  'alertSettings.webhook': async s => s.alertSettings.webhook(await watchedAccount(s, 5, [])),
  'alertSettings.setThresholds': async s => {
    const accountId = await watchedAccount(s, 5, [10, 20]);
    await s.alertSettings.setThresholds(accountId, [30], BY_SYSTEM());
  },
  'alertSettings.setWebhook': async s => {
    const accountId = await watchedAccount(s, 5, []);
    const other = { url: 'https://other.example/', ...SEALED };
    await s.alertSettings.setWebhook(accountId, other, BY_SYSTEM());
    await s.alertSettings.setWebhook(accountId, null, BY_SYSTEM());
    assert.equal(await s.alertSettings.webhook(accountId), undefined);
  },
  'alertSettings.sendTest': async s => {
    const accountId = await watchedAccount(s, 5, []);
    const test = () => s.alertSettings.sendTest(eventOf(accountId), TEST_BOUNDS, BY_SYSTEM());
    assert.deepEqual([await test(), await test()], ['sent', 'too-soon']);
    const bounds = { everyMs: 0, messagesMax: 1 };
    const withheld = await s.alertSettings.sendTest(eventOf(accountId), bounds, BY_SYSTEM());
    assert.deepEqual(withheld, { reason: 'account', isFirst: true });
  },
  'alertSettings.listSealedWithOthers': async s => {
    await watchedAccount(s, 5, []);
    assert.ok((await s.alertSettings.listSealedWithOthers('b', 3)).length > 0);
    assert.ok((await s.alertSettings.listSealedWithOthers('a', 3)).length > 0);
  },
  'alertSettings.reseal': async s => {
    const accountId = await watchedAccount(s, 5, []);
    const from = { accountId, ...SEALED };
    assert.ok(await s.alertSettings.reseal(from, { ...from, secretKeyId: 'b' }));
  },
};
