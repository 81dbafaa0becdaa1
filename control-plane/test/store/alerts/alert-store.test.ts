/** Thresholds under two replicas: each is told once, and again once the balance was above it. */
import assert from 'node:assert/strict';
import ava from 'ava';
import { TOLD_AGAIN_MS } from '../../../src/domain/account/balance-alerts.ts';
import {
  accountSecretId,
  CallbackSecrets,
  notificationBody,
} from '../../../src/secrets/callback-secret.ts';
import { SecretBox } from '../../../src/secrets/secret-box.ts';
import { BalanceWatch } from '../../../src/services/alerts/balance-watch.ts';
import type { Stores } from '../../../src/store/stores.ts';
import { silent } from '../../services/dispatch/harness.ts';
import {
  addOwner,
  BY_SYSTEM,
  HOOK_URL,
  seenOf,
  tellingOf,
  watchedAccount,
} from '../alerts-fixtures.ts';
import { fundedAccount, IMAGE_FAULT, newJob, onStores, running, storesOn } from '../fixtures.ts';

const test = ava.serial;

const SECRETS = new CallbackSecrets(new SecretBox(Buffer.alloc(32, 1)));

onStores(test, 'low balances under two replicas', (test, { databases, database, stores }) => {
  let watches: BalanceWatch[];

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
      messagesMax: 100,
      onWithheld: () => assert.fail('as many as may be are not reached'),
      pageUrl: 'https://matting.example/account',
      observer: { balanceTold: () => undefined },
      log: silent,
    });
  }

  const look = () => Promise.all([...watches, ...watches].map(watch => watch.look()));

  async function watched(credits: number, thresholds: readonly number[]): Promise<string> {
    const accountId = await watchedAccount(stores, credits, thresholds);
    await addOwner(database, accountId, `ada@${accountId}.test`);
    await addOwner(database, accountId, `bob@${accountId}.test`);
    const sealed = SECRETS.seal(accountSecretId(accountId), 'a secret of the account');
    await stores.alertSettings.setWebhook(accountId, { url: HOOK_URL, ...sealed }, BY_SYSTEM());
    return accountId;
  }

  /** Thresholds that were told, in the order of their events, and to whom it was written. */
  async function told(accountId: string) {
    const events = await database.kysely
      .selectFrom('outbox')
      .select(['id', 'body'])
      .where('account_id', '=', accountId)
      .where('event', 'is not', null)
      .execute();
    const mails = await database.kysely
      .selectFrom('outbox')
      .select(['address'])
      .where('kind', '=', 'mail')
      .where('account_id', '=', accountId)
      .execute();
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
    await look();
    assert.ok(await stores.jobs.fail(claim, IMAGE_FAULT));
  }

  test('tells each threshold once, whoever looks and however often', async t => {
    const accountId = await watched(100, [100, 50, 10]);
    await look();
    t.deepEqual(await told(accountId), { thresholds: [100], mails: ['ada', 'bob'] });
    await stores.ledger.revoke(accountId, 95, 'spent');
    await look();
    await look();
    const all = ['ada', 'ada', 'ada', 'bob', 'bob', 'bob'];
    t.deepEqual(await told(accountId), { thresholds: [10, 100, 50], mails: all });
  });

  test('is not told of a balance that has risen since it was seen', async t => {
    const accountId = await watched(5, [10]);
    const [alert] = await seenOf(stores, accountId);
    assert.ok(alert);
    await stores.ledger.grant(accountId, 100, 'more');
    t.is(await stores.alerts.tell(tellingOf(alert)), undefined);
    t.deepEqual(await told(accountId), { thresholds: [], mails: [] });
  });

  test('tells it again once the balance was above it, by credits that were added', async t => {
    const accountId = await watched(5, [10]);
    await look();
    await stores.ledger.grant(accountId, 100, 'more');
    await look();
    await stores.ledger.revoke(accountId, 99, 'spent');
    await look();
    await look();
    t.deepEqual((await told(accountId)).thresholds, [10, 10]);
  });

  test('is not told at every job that fails at the threshold', async t => {
    const accountId = await watched(11, [10]);
    await failOne(accountId);
    await look();
    await failOne(accountId);
    await look();
    t.deepEqual((await told(accountId)).thresholds, [10]);
    // But again after an hour above it.
    const alert = database.kysely.updateTable('balance_alerts').where('account_id', '=', accountId);
    await alert.set({ told_at: Date.now() - TOLD_AGAIN_MS - 60_000 }).execute();
    await look();
    await failOne(accountId);
    t.deepEqual((await told(accountId)).thresholds, [10, 10]);
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
    await look();
    t.deepEqual(await told(quiet), { thresholds: [], mails: [] });
    t.deepEqual((await told(accountId)).mails, ['ada']);
  });

  test('seals secrets anew after the key was changed', async t => {
    const accountId = await watched(1000, [10]);
    const next = new SecretBox(Buffer.alloc(32, 2));
    const both = new CallbackSecrets(next, [new SecretBox(Buffer.alloc(32, 1))]);
    const watch = watchOf(stores, both);
    // Those of other tests are sealed anew too, and no more at once than a look may.
    for (let looks = 0; looks < 3; looks += 1) await watch.look();
    const webhook = await stores.alertSettings.webhook(accountId);
    assert.ok(webhook);
    const alone = new CallbackSecrets(next);
    const opened = alone.open(accountSecretId(accountId), webhook);
    t.is(opened?.toString(), 'a secret of the account');
  });

  test('goes through more thresholds than a page has', async t => {
    const accounts: string[] = [];
    for (let count = 0; count < 45; count += 1) {
      accounts.push(await watchedAccount(stores, 1, [9, 8, 7, 6, 5]));
    }
    for (let looks = 0; looks < 3; looks += 1) await watchOf(stores).look();
    for (const accountId of accounts) {
      const { thresholds } = await stores.alertSettings.read(accountId);
      t.true(thresholds.length === 5 && thresholds.every(one => one.toldAtMs !== null));
    }
  });
});
