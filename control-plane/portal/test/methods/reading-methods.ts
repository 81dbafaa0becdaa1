import assert from 'node:assert/strict';
import { bounded, type Exercise } from '@matting/core/test/exercise.ts';
import { fundedAccount } from '@matting/core/test/fixtures.ts';
import type { Database } from '@matting/database/database.ts';
import { at } from '@matting/test-support/at.ts';
import { accountOf } from '@matting/test-support/large-tables.ts';
import { FIRST_ALERT } from '../../alerts/alert-store.ts';
import { orderReferenceOf } from '../../orders/order-rules.ts';
import { USAGE_GROUPS } from '../../usage/usage-store.ts';
import {
  addOwner,
  expiryNoticeOf,
  lowBalanceNoticeOf,
  seenOf,
  watchedAccount,
} from '../alerts-fixtures.ts';
import type { Stores } from '../fixtures.ts';
import { orderOf, personMailOf, personOf } from '../large-tables.ts';
import { PROVIDER, paid, refundOf } from '../orders.ts';
import { newLink, OPERATOR } from '../people.ts';

/** A month's entries and their groups. Servers count twice what a limit lets through. */
const USED_READS_MAX = 6 * 30;
const USED_WHY = 'reads a row a day, key, outcome and format';

export const LINKS_WHY = 'reads the links that an account made within their life';
export const LINKS_READS_MAX = 3000;

export const READING: Readonly<Record<string, Exercise<Stores>>> = {
  'links.find': bounded(LINKS_READS_MAX, LINKS_WHY, async ({ links }) => {
    const link = newLink(accountOf(0));
    await links.create(link, OPERATOR);
    assert.ok(await links.find(link.tokenHash, 'invitation'));
  }),
  'links.listOpen': bounded(LINKS_READS_MAX, LINKS_WHY, async ({ links }) =>
    assert.ok((await links.listOpen(accountOf(0))).length > 0),
  ),
  'playground.findKey': ({ playground }) => playground.findKey(accountOf(3)),
  'playground.usage': ({ playground }) => playground.usage(accountOf(3)),
  'orders.details': async stores => {
    const order = await paid(stores, await fundedAccount(stores, 0));
    await stores.orders.refund(order.id, refundOf(1), PROVIDER);
    const { payments, refunds } = await stores.orders.details(order.id);
    assert.deepEqual([payments.length, refunds.length], [1, 1]);
  },
  'orders.find': async ({ orders }) => {
    assert.ok(await orders.find(orderOf(2), accountOf(0)));
    assert.equal((await orders.find(orderReferenceOf(orderOf(2), 1)))?.id, orderOf(2));
    assert.equal(await orders.find(orderOf(2), accountOf(1)), undefined);
  },
  'orders.references': async ({ orders }) => {
    const ids = Array.from({ length: 50 }, (_, index) => orderOf(index));
    const even = await orders.references(accountOf(0), ids);
    assert.equal(even.get(orderOf(2)), orderReferenceOf(orderOf(2), 1));
    assert.equal(even.size, 25);
  },
  'orders.list': async ({ orders }) => {
    for (const accountId of [undefined, accountOf(0)]) {
      for (const state of [undefined, 'expired', 'cancelled', 'paid'] as const) {
        const filter = { accountId, state, limit: 50 };
        const page = await orders.list(filter);
        assert.equal(page.length, 50, `${accountId} ${state}`);
        const last = page.at(-1)!;
        const after = { atMs: last.expiresAtMs, id: last.id };
        assert.equal((await orders.list({ ...filter, after })).length, 50);
      }
      await orders.list({ accountId, state: 'pending', limit: 50 });
    }
  },
  'people.find': async ({ people }) => assert.ok(await people.find(personOf(9))),
  'people.findByMail': async ({ people }) =>
    assert.ok(await people.findByMail(personMailOf(9).toUpperCase())),
  'people.listMembers': async ({ people }) =>
    assert.ok((await people.listMembers(accountOf(0))).length > 100),
  'endedOperatorSessions.has': async ({ endedOperatorSessions }) =>
    assert.equal(await endedOperatorSessions.has('0'.repeat(64)), false),
  'sessions.list': async ({ sessions }) =>
    assert.equal((await sessions.list(personOf(4))).length, 1),
  'alerts.readPage': async s => {
    // Accounts in addition to those that this and later calls read.
    for (let count = 0; count < 8; count += 1) await watchedAccount(s, 1000, [1, 2, 3, 4, 5]);
    const accountId = await watchedAccount(s, 5, [10, 20]);
    assert.equal((await s.alerts.readPage(FIRST_ALERT, 7)).length, 7);
    assert.equal((await seenOf(s, accountId)).length, 2);
  },
  'alerts.owners': async (s, database: Database) => {
    const accountId = await watchedAccount(s, 5, []);
    await addOwner(database, accountId, `${accountId}@example.test`);
    assert.equal((await s.alerts.owners(accountId)).length, 1);
  },
  'expiryNotices.due': async s => {
    assert.ok(await expiryNoticeOf(s, await watchedAccount(s, 5, [])));
    assert.deepEqual(await s.expiryNotices.due([]), []);
  },
  'alertSettings.read': async s => {
    const accountId = await watchedAccount(s, 5, [10]);
    await s.alertSettings.read(accountId);
    assert.ok(await s.alerts.queue(lowBalanceNoticeOf(at(await seenOf(s, accountId), 0))));
    const { thresholds } = await s.alertSettings.read(accountId);
    assert.equal(at(thresholds, 0).delivery?.status, 'pending');
  },
  'alertSettings.webhook': async s => s.alertSettings.webhook(await watchedAccount(s, 5, [])),
  'alertSettings.listSealedWithOthers': async s => {
    await watchedAccount(s, 5, []);
    assert.ok((await s.alertSettings.listSealedWithOthers('b', 3)).length > 0);
    assert.ok((await s.alertSettings.listSealedWithOthers('a', 3)).length > 0);
  },
  'usage.read': bounded(USED_READS_MAX, USED_WHY, async ({ usage }) => {
    const to = await usage.today();
    for (const group of USAGE_GROUPS) {
      const rows = await usage.read(accountOf(0), { from: to - 29, to, group });
      assert.ok(rows !== undefined && rows.length > 0);
    }
  }),
  'usage.daily': bounded(USED_READS_MAX, USED_WHY, async ({ usage }) => {
    const to = await usage.today();
    const rows = await usage.daily(accountOf(0), { from: to - 29, to }, 'key');
    assert.equal(rows?.length, 30);
  }),
  'usage.total': bounded(USED_READS_MAX, USED_WHY, async ({ usage }) => {
    const to = await usage.today();
    assert.ok((await usage.total(accountOf(0), { from: to - 29, to }))?.images);
  }),
  'usage.today': ({ usage }) => usage.today(),
};
