import assert from 'node:assert/strict';
import { database, replica, secrets, useDeliveries } from '@matting/core/test/deliveries.ts';
import { fundedAccount, sha256 } from '@matting/core/test/fixtures.ts';
import { silent, until } from '@matting/core/test/harness.ts';
import { CallbackAddressCheck } from '@matting/core/test/internals.ts';
import { Receiver } from '@matting/core/test/receiver.ts';
import { OutgoingGuard } from '@matting/http/outgoing/outgoing-guard.ts';
import { at } from '@matting/test-support/at.ts';
import ava from 'ava';
import { type Stores, series, storesOn } from '../test/fixtures.ts';
import { accountSecretId } from './alert-settings.ts';
import { BalanceWatch } from './balance-watch.ts';
import { ManageAlerts } from './settings-pages.ts';

const test = ava.serial;

let stores: Stores;
useDeliveries(test, series);
test.before(() => {
  stores = storesOn(database);
});

const NEAR = { allowPrivateAddresses: true, allowHttpCallbacks: true };
const LIMITS = {
  messagesMax: 100,
  onWithheld: (): void => assert.fail('as many as may be are not reached'),
};

function manageAlerts(policy = NEAR, limits = LIMITS, settings = stores.alertSettings) {
  const guard = new OutgoingGuard({ policy: { fetchPorts: [80, 443], ...policy } });
  return new ManageAlerts({
    settings,
    alerts: stores.alerts,
    secrets,
    addresses: new CallbackAddressCheck(guard),
    policy,
    mails: true,
    ...limits,
  });
}

function watch(): BalanceWatch {
  return new BalanceWatch({
    alerts: stores.alerts,
    settings: stores.alertSettings,
    secrets,
    mails: true,
    ...LIMITS,
    pageUrl: 'https://matting.example/account',
    observer: { balanceNotified: () => undefined },
    log: silent,
  });
}

async function forgetTest(accountId: string): Promise<void> {
  await database.kysely
    .updateTable('message_counts')
    .set(eb => ({ tested_at: eb('tested_at', '-', 2 * 10_000) }))
    .where('key_hash', '=', sha256(`event of ${accountId}`))
    .execute();
}

async function scopeOf(credits: number) {
  const accountId = await fundedAccount(stores, credits);
  return { accountId, accountName: 'Shop', actor: { kind: 'system' } as const };
}

test('an address of events › keeps a secret that another owner made while its URL was changed', async t => {
  const scope = await scopeOf(0);
  const [first, second] = [{ url: 'http://127.0.0.1:1/' }, { url: 'http://127.0.0.1:2/' }];
  await manageAlerts().setWebhook(scope, { ...first, newSecret: true });
  let shown: string | undefined;
  const settings = {
    ...stores.alertSettings,
    setWebhook: async (...args: Parameters<typeof stores.alertSettings.setWebhook>) => {
      const other = await manageAlerts().setWebhook(scope, { ...first, newSecret: true });
      shown = other.kind === 'set' ? other.secret : undefined;
      return stores.alertSettings.setWebhook(...args);
    },
  };
  const changed = await manageAlerts(NEAR, LIMITS, settings).setWebhook(scope, {
    ...second,
    newSecret: false,
  });
  t.deepEqual(changed, { kind: 'set', secret: undefined });
  const stored = await stores.alertSettings.webhook(scope.accountId);
  assert.ok(stored && shown);
  t.is(stored.url, second.url);
  const key = secrets.open(accountSecretId(scope.accountId), stored);
  t.is(`whsec_${key?.toString('base64')}`, shown);
});

test('a low balance › is told by a signed message with an id of its own', async t => {
  const scope = await scopeOf(12);
  const manage = manageAlerts();
  // The service makes the secret, so the receiver opens later, with that secret.
  const made = await manage.setWebhook(scope, { url: 'http://127.0.0.1:1/', newSecret: false });
  assert.ok(made.kind === 'set' && made.secret !== undefined);
  t.regex(made.secret, /^whsec_[A-Za-z0-9+/]{43}=$/);
  await using receiver = await Receiver.open(made.secret);
  const moved = await manage.setWebhook(scope, { url: receiver.url(), newSecret: false });
  t.deepEqual(moved, { kind: 'set', secret: undefined });
  t.truthy(await manage.setThresholds(scope, ['20', ' 5 ', '']));
  await using _delivering = replica();
  await watch().poll();
  await until(() => receiver.deliveries.length === 1);
  const { signatureHolds, body, headers } = at(receiver.deliveries, 0);
  t.truthy(signatureHolds);
  const { type, data } = JSON.parse(body.toString());
  t.is(type, 'account.balance_low');
  const { threshold, credits, account_id } = data;
  t.deepEqual([threshold, account_id], [20, scope.accountId]);
  t.deepEqual(credits, { available: 12, reserved: 0 });
  const { thresholds } = await manage.view(scope.accountId);
  await until(async () => {
    const view = await manage.view(scope.accountId);
    return at(view.thresholds, 0).delivery?.status === 'delivered';
  });
  t.is(headers['webhook-id'], `msg_${at(thresholds, 0).delivery?.id}`);
  t.is(at(thresholds, 1).notifiedAtMs, null);
  const [listed] = await stores.outbox.list({ limit: 1 });
  t.is(listed?.event, 'account.balance_low');
});

test('a low balance › has a test message, and not two at once', async t => {
  const scope = await scopeOf(0);
  const manage = manageAlerts();
  t.is(await manage.sendTest(scope), 'no-webhook');
  const made = await manage.setWebhook(scope, { url: 'http://127.0.0.1:1/', newSecret: true });
  assert.ok(made.kind === 'set' && made.secret !== undefined);
  await using receiver = await Receiver.open(made.secret);
  await manage.setWebhook(scope, { url: receiver.url(), newSecret: false });
  await using _delivering = replica();
  const both = await Promise.all([manage.sendTest(scope), manage.sendTest(scope)]);
  t.deepEqual(both.sort(), ['sent', 'too-soon']);
  await until(() => receiver.deliveries.length === 1);
  const { signatureHolds, body } = at(receiver.deliveries, 0);
  t.truthy(signatureHolds);
  t.is(JSON.parse(body.toString()).type, 'account.webhook_test');
  const { accountId } = scope;
  await forgetTest(accountId);
  t.is(await manage.sendTest(scope), 'sent');
  await until(() => receiver.deliveries.length === 2);
  await manage.removeWebhook(scope);
  t.is((await manage.view(accountId)).webhook, null);
});

test('a low balance › has no further test message where the account has sent all its events of today', async t => {
  const scope = await scopeOf(0);
  const { accountId } = scope;
  const withheld: unknown[] = [];
  const manage = manageAlerts(undefined, {
    messagesMax: 1,
    onWithheld: (...reasons) => withheld.push(reasons),
  });
  await manage.setWebhook(scope, { url: 'http://127.0.0.1:1/', newSecret: true });
  t.is(await manage.sendTest(scope), 'sent');
  await forgetTest(accountId);
  t.is(await manage.sendTest(scope), 'used-up');
  t.deepEqual(withheld, [[accountId, { reason: 'account', isFirst: true }]]);
  t.is((await manage.view(accountId)).mailsUsedUp, undefined, 'mails are counted apart');
});

test('a low balance › takes no address that the guard does not, and no other thresholds', async t => {
  const scope = await scopeOf(0);
  const strict = manageAlerts({ allowPrivateAddresses: false, allowHttpCallbacks: false });
  for (const url of ['http://hooks.example/', 'https://127.0.0.1/', 'x', 'https://a@b.example/']) {
    t.is((await strict.setWebhook(scope, { url, newSecret: false })).kind, 'wrong-url');
  }
  t.is(await stores.alertSettings.webhook(scope.accountId), undefined);
  const many = ['1', '2', '3', '4', '5', '6'];
  for (const texts of [['-1'], ['1.5'], ['ten'], ['1000000001'], many]) {
    t.false(await strict.setThresholds(scope, texts));
  }
  t.deepEqual((await strict.view(scope.accountId)).thresholds, []);
  t.truthy(await strict.setThresholds(scope, ['7', '7', '0']));
  const { thresholds } = await strict.view(scope.accountId);
  t.deepEqual(
    thresholds.map(({ threshold }) => threshold),
    [7, 0],
  );
});
