/** Messages of a day, over all replicas: mails that are asked for at once pass no bound. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import {
  RECIPIENT_ACCOUNT_MAILS_MAX,
  RECIPIENT_MAILS_MAX,
} from '../../../src/domain/account/message-limits.ts';
import { readSentToday } from '../../../src/store/alerts/message-counts.ts';
import {
  BY_SYSTEM,
  eventOf,
  HOOK_URL,
  SEALED,
  seenOf,
  watchedAccount,
} from '../alerts-fixtures.ts';
import { fundedAccount, onStores, sha256 } from '../fixtures.ts';
import { newLink, OPERATOR } from '../people.ts';

const test = ava.serial;

const DAY_MS = 86_400_000;

onStores(test, 'messages of a day', (test, { database, stores, replica }) => {
  const replicas = [stores, replica()];

  /** An invitation that a mail brings; by the operator where there is no bound. */
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
    const asked = Array.from({ length: 40 }, (_, i) =>
      invite(account, `${i}@${account}.test`, 12, replicas[i % 2]),
    );
    const outcomes = await Promise.all(asked);
    const withheld = outcomes.filter(outcome => typeof outcome === 'object');
    t.is(outcomes.filter(outcome => outcome === 'created').length, 12);
    t.is((await waiting(account)).length, 12);
    t.deepEqual(new Set(withheld.map(({ reason }) => reason)), new Set(['account']));
    t.is(withheld.filter(({ isFirst }) => isFirst).length, 1, 'said once');
    t.deepEqual(await sentOf(account), { mails: 12, events: 0 });
    t.is(await invite(account, `last@${account}.test`), 'created', 'the operator may');
    t.deepEqual(await sentOf(account), { mails: 12, events: 0 });
  });

  test('to one address are bounded over all accounts, and of one account to half', async t => {
    const to = `ann@${randomUUID()}.test`;
    const accounts = await Promise.all([0, 1, 2, 3].map(() => fundedAccount(stores, 0)));
    const [first = ''] = accounts;
    const alone = Array.from({ length: 15 }, () => invite(first, to, 100));
    const ofOne = (await Promise.all(alone)).filter(outcome => outcome === 'created');
    t.is(ofOne.length, RECIPIENT_ACCOUNT_MAILS_MAX);
    const asked = accounts
      .slice(1)
      .flatMap(account =>
        Array.from({ length: 7 }, (_, i) =>
          invite(account, to.replace('ann', `Ann+${i}`), 100, replicas[i % 2]),
        ),
      );
    const outcomes = await Promise.all(asked);
    const withheld = outcomes.filter(outcome => typeof outcome === 'object');
    const created = outcomes.length - withheld.length;
    t.is(created, RECIPIENT_MAILS_MAX - RECIPIENT_ACCOUNT_MAILS_MAX);
    t.deepEqual(new Set(withheld.map(({ reason }) => reason)), new Set(['recipient']));
    const links = database.kysely.selectFrom('one_time_links').where('account_id', 'in', accounts);
    const made = await links.select('id').execute();
    t.is(made.length, RECIPIENT_MAILS_MAX, 'nothing half done');
  });

  test('begin anew with the day of the database, and are forgotten then', async t => {
    const account = await fundedAccount(stores, 0);
    t.is(await invite(account, 'a@b.test', 1), 'created');
    t.not(await invite(account, 'a@b.test', 1), 'created');
    await database.kysely
      .updateTable('message_counts')
      .set(eb => ({ day_at: eb('day_at', '-', DAY_MS) }))
      .execute();
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
    const told: unknown[] = [];
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
      told.push(await stores.alerts.tell({ alert, eventId, event, mails, messagesMax: 3 }));
    }
    const reason = 'account';
    t.deepEqual(told, [
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
