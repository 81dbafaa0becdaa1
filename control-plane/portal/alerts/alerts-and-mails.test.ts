/** Two replicas on each database. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { CallbackSecrets, notificationBody, SecretBox } from '@matting/core/secrets/secret-box.ts';
import {
  fundedAccount,
  IMAGE_FAULT,
  newJob,
  running,
  sha256,
} from '@matting/core/test/fixtures.ts';
import { silent } from '@matting/core/test/harness.ts';
import { dueMails, mailEnd } from '@matting/core/test/mails.ts';
import { insertMail } from '@matting/core/webhooks/outbox-store.ts';
import { transact } from '@matting/database/database.ts';
import { addTo, rowsOf } from '@matting/database/test/rows.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import ava from 'ava';
import { readSentToday, takeFromToday } from '../mails/messages.ts';
import {
  addOwner,
  BY_SYSTEM,
  eventOf,
  HOOK_URL,
  inviteAtMost,
  lowBalanceNoticeOf,
  nextDay,
  SEALED,
  seenOf,
  watchedAccount,
} from '../test/alerts-fixtures.ts';
import { onStoresInCi, type Stores, storesOn } from '../test/fixtures.ts';
import { newLink, OPERATOR } from '../test/people.ts';
import { accountSecretId } from './alert-settings.ts';
import { BalanceWatch } from './balance-watch.ts';

const HEAD_MAX = 256;

const RECIPIENT_MAILS_MAX = 20;
const test = ava.serial;

const SECRETS = new CallbackSecrets(new SecretBox(Buffer.alloc(32, 1)));

onStoresInCi(test, 'low balances under two replicas', (test, { databases, database, stores }) => {
  let watches: BalanceWatch[];
  let mailsMax = 100;

  test.before(async () => {
    const replicas = [stores, storesOn(await databases.open())];
    watches = replicas.map(replica => watchOf(replica));
  });

  function watchOf(replica: Stores, secrets = SECRETS): BalanceWatch {
    return new BalanceWatch({
      alerts: replica.alerts,
      settings: replica.alertSettings,
      secrets,
      mails: true,
      get messagesMax() {
        return mailsMax;
      },
      onWithheld: () => assert.ok(mailsMax < 100, 'as many as may be are not reached'),
      pageUrl: 'https://matting.example/account',
      observer: { balanceNotified: () => undefined },
      log: silent,
    });
  }

  async function poll(max = 100): Promise<void> {
    mailsMax = max;
    await Promise.all([...watches, ...watches].map(watch => watch.poll()));
  }

  async function watched(credits: number, thresholds: readonly number[]): Promise<string> {
    const accountId = await watchedAccount(stores, credits, thresholds);
    await addOwner(database, accountId, `ada@${accountId}.test`);
    await addOwner(database, accountId, `bob@${accountId}.test`);
    const sealed = SECRETS.seal(accountSecretId(accountId), 'a secret of the account');
    await stores.alertSettings.setWebhook(accountId, { url: HOOK_URL, ...sealed }, BY_SYSTEM());
    return accountId;
  }

  async function noticesOf(accountId: string) {
    const events = await database.kysely
      .selectFrom('outbox')
      .select(['id', 'body'])
      .where('account_id', '=', accountId)
      .where('event', 'is not', null)
      .execute();
    const mails = await rowsOf(database.kysely, 'outbox', { kind: 'mail', account_id: accountId });
    assert.equal(new Set(events.map(event => event.id)).size, events.length);
    return {
      thresholds: events.map(thresholdOf).sort(),
      mails: mails.map(mail => mail.address.slice(0, 3)).sort(),
    };
  }

  function thresholdOf({ id, body }: { id: string; body: string }): number {
    return JSON.parse(SECRETS.openText(body, notificationBody(id)) ?? '').data.threshold;
  }

  async function failOne(accountId: string): Promise<void> {
    const { claim } = await running(stores, newJob(accountId));
    await poll();
    assert.ok(await stores.queue.fail(claim, IMAGE_FAULT));
  }

  test('tells each threshold once, whoever looks and however often', async t => {
    const accountId = await watched(100, [100, 50, 10]);
    await poll();
    t.deepEqual(await noticesOf(accountId), { thresholds: [100], mails: ['ada', 'bob'] });
    await stores.ledger.revoke(accountId, 95, 'spent');
    await poll();
    await poll();
    const all = ['ada', 'ada', 'ada', 'bob', 'bob', 'bob'];
    t.deepEqual(await noticesOf(accountId), { thresholds: [10, 100, 50], mails: all });
  });

  test('is not told of a balance that has risen since it was seen', async t => {
    const accountId = await watched(5, [10]);
    const [alert] = await seenOf(stores, accountId);
    assert.ok(alert);
    await stores.ledger.grant(accountId, 100, 'more');
    t.is(await stores.alerts.queue(lowBalanceNoticeOf(alert)), undefined);
    t.deepEqual(await noticesOf(accountId), { thresholds: [], mails: [] });
  });

  test('tells it again once the balance was above it, by credits that were added', async t => {
    const accountId = await watched(5, [10]);
    await poll();
    await stores.ledger.grant(accountId, 100, 'more');
    await poll();
    await stores.ledger.revoke(accountId, 99, 'spent');
    await poll();
    await poll();
    t.deepEqual((await noticesOf(accountId)).thresholds, [10, 10]);
  });

  test('reaches owners whom other accounts have invited as often as they may', async t => {
    const accountId = await watched(5, [10]);
    const to = `ada@${accountId}.test`;
    const strangers = await Promise.all([fundedAccount(stores, 0), fundedAccount(stores, 0)]);
    for (const stranger of strangers) await inviteAtMost(stores, stranger, to);
    t.is(await inviteAtMost(stores, await fundedAccount(stores, 0), to), 0, 'they used it up');
    await poll();
    t.deepEqual(await noticesOf(accountId), { thresholds: [10], mails: ['ada', 'bob'] });
  });

  test('is not noted as told while the quota keeps it back, and is told on the next day', async t => {
    const accountId = await watched(5, [10]);
    const state = () =>
      rowsOf(database.kysely, 'balance_alerts', { account_id: accountId }).then(([row]) => row);
    await poll(0);
    t.is((await state())?.told_at, null);
    await poll();
    t.deepEqual(await noticesOf(accountId), { thresholds: [], mails: [] }, 'one try a day');
    await nextDay(database);
    await poll(1);
    t.is((await noticesOf(accountId)).mails.length, 1, 'one owner is told');
    t.not((await state())?.told_at, null);
    await nextDay(database);
    await poll();
    await nextDay(database);
    await poll();
    t.deepEqual(await noticesOf(accountId), { thresholds: [10], mails: ['ada', 'bob'] });
    t.like(await state(), { withheld_at: null, withheld_rest: null });
  });

  test('is not noted as told where nobody could be told, and is told once somebody can', async t => {
    const accountId = await watched(5, [10]);
    await stores.alertSettings.setWebhook(accountId, null, BY_SYSTEM());
    await database.kysely
      .updateTable('members')
      .set({ role: 'viewer' })
      .where('account_id', '=', accountId)
      .execute();
    const [before] = await seenOf(stores, accountId);
    await poll();
    const [after] = await seenOf(stores, accountId);
    t.deepEqual([before?.notified, after?.notified], [null, null]);
    await addOwner(database, accountId, `eve@${accountId}.test`);
    await nextDay(database);
    await poll();
    t.deepEqual((await noticesOf(accountId)).mails, ['eve']);
  });

  test('is told to nobody more once the balance has risen before the next day', async t => {
    const accountId = await watched(5, [10]);
    await poll(1);
    await stores.ledger.grant(accountId, 100, 'more');
    await poll();
    await nextDay(database);
    await poll();
    t.is((await noticesOf(accountId)).mails.length, 1);
    await stores.ledger.revoke(accountId, 99, 'spent');
    await poll();
    t.is((await noticesOf(accountId)).mails.length, 3, 'another fall is told on its day');
  });

  test('is not told at every job that fails at the threshold', async t => {
    const accountId = await watched(11, [10]);
    await failOne(accountId);
    await poll();
    await failOne(accountId);
    await poll();
    t.deepEqual((await noticesOf(accountId)).thresholds, [10]);
    // An hour after a notice the owners get it again, if the balance was above the threshold
    // meanwhile.
    const alert = database.kysely.updateTable('balance_alerts').where('account_id', '=', accountId);
    await alert.set({ told_at: Date.now() - 3_600_000 - 60_000 }).execute();
    await poll();
    await failOne(accountId);
    t.deepEqual((await noticesOf(accountId)).thresholds, [10, 10]);
  });

  test('tells nobody of an account without thresholds, and writes to owners alone', async t => {
    const quiet = await fundedAccount(stores, 0);
    await addOwner(database, quiet, `ada@${quiet}.test`);
    const accountId = await watched(1, [10]);
    await database.kysely
      .updateTable('members')
      .set({ role: 'viewer' })
      .where('account_id', '=', accountId)
      .where(
        'user_id',
        'in',
        database.kysely.selectFrom('users').select('id').where('mail', 'like', 'bob@%'),
      )
      .execute();
    await poll();
    t.deepEqual(await noticesOf(quiet), { thresholds: [], mails: [] });
    t.deepEqual((await noticesOf(accountId)).mails, ['ada']);
  });

  test('seals secrets anew after the key was changed', async t => {
    const accountId = await watched(1000, [10]);
    const next = new SecretBox(Buffer.alloc(32, 2));
    const both = new CallbackSecrets(next, [new SecretBox(Buffer.alloc(32, 1))]);
    const watch = watchOf(stores, both);
    // A round also encrypts addresses of other tests, up to its bound.
    for (let looks = 0; looks < 3; looks += 1) await watch.poll();
    const webhook = await stores.alertSettings.webhook(accountId);
    assert.ok(webhook);
    const alone = new CallbackSecrets(next);
    const opened = alone.open(accountSecretId(accountId), webhook);
    t.is(opened?.toString(), 'a secret of the account');
  });

  test('goes through more thresholds than a page has', async t => {
    const accounts: string[] = [];
    for (let count = 0; count < 45; count += 1) {
      const account = await watchedAccount(stores, 1, [9, 8, 7, 6, 5]);
      await addOwner(database, account, `ada@${account}.test`);
      accounts.push(account);
    }
    for (let looks = 0; looks < 3; looks += 1) await watchOf(stores).poll();
    for (const accountId of accounts) {
      const { thresholds } = await stores.alertSettings.read(accountId);
      t.true(thresholds.length === 5 && thresholds.every(one => one.notifiedAtMs !== null));
    }
  });
});

const HOUR_MS = 3_600_000;

onStoresInCi(test, 'turns of mails', (test, { database }) => {
  let stores: Stores;

  const prepare = async () => {
    await database.kysely.deleteFrom('outbox').execute();
    // New stores begin at another account.
    stores = storesOn(database);
  };

  async function put(accountId: string, count: number): Promise<void> {
    for (let mails = 0; mails < count; mails += 1) {
      const mail = { id: randomUUID(), recipient: 'a@b.test', subject: 'low', body: 'text' };
      await insertMail(database, database.kysely, { ...mail, accountId });
    }
  }

  async function sent(count: number): Promise<string[]> {
    const accounts: string[] = [];
    for (let mails = 0; mails < count; mails += 1) {
      const [mail] = await dueMails(stores, 1);
      if (mail === undefined) break;
      accounts.push(mail.accountId);
      const claim = { id: mail.id, holder: 'replica', fence: mail.fence + 1 };
      assert.ok(await stores.outbox.claim(claim, HOUR_MS));
      assert.ok(await stores.outbox.delivered(claim, mailEnd()));
    }
    return accounts;
  }

  test('go round the accounts, one mail each', async t => {
    await prepare();
    await put('a', 3);
    await put('b', 1);
    await put('c', 2);
    t.deepEqual(await sent(9), ['a', 'b', 'c', 'a', 'c', 'a']);
    await put('a', 2);
    await put('b', 2);
    const all = await dueMails(stores, 9);
    t.deepEqual(
      all.map(mail => mail.accountId),
      ['b', 'a', 'b', 'a'],
    );
    const [other] = await dueMails(stores, 9, ['a']);
    t.is(other?.accountId, 'b');
  });

  test('reach everybody past accounts with more mails than are looked at', async t => {
    await prepare();
    await put('crowd', HEAD_MAX);
    await put('mob', 2);
    await put('zoe', 1);
    await put('ada', 1);
    const recipients = await sent(4);
    t.deepEqual(recipients.sort(), ['ada', 'crowd', 'mob', 'zoe']);
  });

  test('leave no place empty where the accounts that are seen have nothing that is due', async t => {
    await prepare();
    await put('zoe', HEAD_MAX);
    for (let later = 0; later < HEAD_MAX; later += 1) await put(`later${later}`, 1);
    await database.kysely
      .updateTable('outbox')
      .set({ next_attempt_at: Date.now() + HOUR_MS })
      .where('account_id', 'like', 'later%')
      .execute();
    t.deepEqual(await sent(2), ['zoe', 'zoe']);
  });
});

onStoresInCi(test, 'messages of a day', (test, { database, stores, replica }) => {
  const replicas = [stores, replica()];

  /** @param messagesMax absent: the operator sends it */
  function invite(accountId: string, recipient: string, messagesMax?: number, by = stores) {
    const id = randomUUID();
    const letter = { id, accountId, recipient, subject: 'x', body: 'y' };
    const link = newLink(accountId, { id, mail: recipient, letter, messagesMax });
    return by.links.create(link, OPERATOR);
  }

  async function waiting(accountId: string): Promise<string[]> {
    const mails = database.kysely.selectFrom('outbox').where('account_id', '=', accountId);
    const rows = await mails.where('kind', '=', 'mail').select('address').execute();
    return rows.map(row => row.address);
  }

  const sentOf = (accountId: string) => readSentToday(database, database.kysely, accountId);

  test('are as many as an account may, however many are asked for at once', async t => {
    const account = await fundedAccount(stores, 0);
    const submitted = Array.from({ length: 40 }, (_, i) =>
      invite(account, `${i}@${account}.test`, 12, replicas[i % 2]),
    );
    const outcomes = await Promise.all(submitted);
    const withheld = outcomes.filter(outcome => typeof outcome === 'object');
    t.is(outcomes.filter(outcome => outcome === 'created').length, 12);
    t.is((await waiting(account)).length, 12);
    t.deepEqual(new Set(withheld.map(({ reason }) => reason)), new Set(['account']));
    t.is(withheld.filter(({ isFirst }) => isFirst).length, 1, 'said once');
    t.deepEqual(await sentOf(account), { mails: 12, events: 0 });
    t.is(await invite(account, `last@${account}.test`), 'created', 'the operator may');
    t.deepEqual(await sentOf(account), { mails: 12, events: 0 });
  });

  test('to one address are bounded over all accounts, and for one account at half', async t => {
    const to = `ann@${randomUUID()}.test`;
    const accounts = await Promise.all([0, 1, 2, 3].map(() => fundedAccount(stores, 0)));
    const [first = ''] = accounts;
    const alone = Array.from({ length: 15 }, () => invite(first, to, 100));
    const ofOne = (await Promise.all(alone)).filter(outcome => outcome === 'created');
    t.is(ofOne.length, 10);
    for (const another of [`+${to}`, to.replace('ann', 'an.n')]) {
      t.is(await invite(first, another, 100), 'created', another);
    }
    const submitted = accounts
      .slice(1)
      .flatMap(account =>
        Array.from({ length: 7 }, (_, i) =>
          invite(account, to.replace('ann', `Ann+${i}`), 100, replicas[i % 2]),
        ),
      );
    const outcomes = await Promise.all(submitted);
    const withheld = outcomes.filter(outcome => typeof outcome === 'object');
    const created = outcomes.length - withheld.length;
    t.is(created, RECIPIENT_MAILS_MAX - 10);
    t.deepEqual(new Set(withheld.map(({ reason }) => reason)), new Set(['recipient']));
    const links = database.kysely.selectFrom('one_time_links').where('account_id', 'in', accounts);
    const made = await links.select('id').execute();
    t.is(made.length, RECIPIENT_MAILS_MAX + 2, 'nothing half done');
  });

  test('to an owner count for their own account alone', async t => {
    const recipient = `ann@${randomUUID()}.test`;
    const take = async (kind: 'invitation' | 'notice', count: number) => {
      const account = await fundedAccount(stores, 0);
      const messages = Array.from({ length: count }, () => ({ kind, recipient }));
      const taken = await transact(database, tx =>
        takeFromToday(database, tx, account, messages, 100),
      );
      return taken.map(withheld => withheld?.reason);
    };
    // Other accounts use up what one address gets from strangers.
    for (let sent = 0; sent < RECIPIENT_MAILS_MAX; sent += 10) await take('invitation', 10);
    t.deepEqual(await take('invitation', 1), ['recipient']);
    t.deepEqual(await take('notice', 12), [...Array(10).fill(undefined), 'recipient', 'recipient']);
  });

  test('begin anew with the day of the database, and are forgotten then', async t => {
    const account = await fundedAccount(stores, 0);
    t.is(await invite(account, 'a@b.test', 1), 'created');
    t.not(await invite(account, 'a@b.test', 1), 'created');
    await addTo(database.kysely, 'message_counts', {}, { day_at: -DAY_MS });
    t.deepEqual(await sentOf(account), { mails: 0, events: 0 });
    t.is(await invite(account, 'a@b.test', 1), 'created');
    const again = await invite(account, 'a@b.test', 1);
    t.deepEqual(again, { reason: 'account', isFirst: true });
    const rows = () => database.kysely.selectFrom('message_counts').select('key_hash').execute();
    t.true((await rows()).every(({ key_hash }) => /^[0-9a-f]{64}$/.test(key_hash)));
    await database.kysely
      .updateTable('message_counts')
      .set(eb => ({ day_at: eb('day_at', '-', 2 * DAY_MS) }))
      .where('key_hash', '!=', sha256(`mail of ${account}`))
      .execute();
    while ((await stores.alerts.removeOldCounts(3)) > 0);
    const kept = (await rows()).map(({ key_hash }) => key_hash);
    t.deepEqual(kept, [sha256(`mail of ${account}`)]);
  });

  test('tell of a threshold that is set anew no oftener', async t => {
    const account = await watchedAccount(stores, 5, []);
    const outcomes: unknown[] = [];
    for (let round = 0; round < 4; round += 1) {
      await stores.alertSettings.setThresholds(account, [10 + round], BY_SYSTEM());
      const [alert] = await seenOf(stores, account);
      assert.ok(alert);
      const eventId = randomUUID();
      const mails = ['a', 'b'].map(name => {
        const recipient = `${name}@${account}.test`;
        return { id: randomUUID(), accountId: account, recipient, subject: 'x', body: 'y' };
      });
      const event = eventOf(account, eventId);
      outcomes.push(await stores.alerts.queue({ alert, eventId, event, mails, messagesMax: 3 }));
    }
    const reason = 'account';
    t.deepEqual(outcomes, [
      { mails: 2, event: true, withheld: [] },
      { mails: 1, event: true, withheld: [{ reason, isFirst: true }] },
      { mails: 0, event: true, withheld: [0, 1].map(() => ({ reason, isFirst: false })) },
      {
        mails: 0,
        event: false,
        withheld: [true, false, false].map(isFirst => ({ reason, isFirst })),
      },
    ]);
    t.is((await waiting(account)).length, 3);
  });

  test('test an address no oftener where it was removed and set again', async t => {
    const account = await watchedAccount(stores, 5, []);
    const { alertSettings } = stores;
    const fixture = (everyMs: number, messagesMax = 2) =>
      alertSettings.sendTest(eventOf(account), { everyMs, messagesMax }, BY_SYSTEM());
    t.is(await fixture(DAY_MS), 'sent');
    await alertSettings.setWebhook(account, null, BY_SYSTEM());
    await alertSettings.setWebhook(account, { url: HOOK_URL, ...SEALED }, BY_SYSTEM());
    t.is(await fixture(DAY_MS), 'too-soon');
    t.is(await fixture(0), 'sent');
    t.deepEqual(await fixture(0), { reason: 'account', isFirst: true });
    const both = await Promise.all(
      replicas.map(replica =>
        replica.alertSettings.sendTest(
          eventOf(account),
          { everyMs: 0, messagesMax: 3 },
          BY_SYSTEM(),
        ),
      ),
    );
    t.is(both.filter(outcome => outcome === 'sent').length, 1);
  });
});
