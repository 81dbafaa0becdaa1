/** What arrives at an account's address: signed, under an id of its own, once the balance is low. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { at } from '../../../../test/support/at.ts';
import { accountSecretId } from '../../../src/secrets/callback-secret.ts';
import { BalanceWatch } from '../../../src/services/alerts/balance-watch.ts';
import {
  ManageAlerts,
  type ManageAlertsDependencies,
  TEST_EVERY_MS,
} from '../../../src/services/alerts/manage-alerts.ts';
import { CallbackAddressCheck } from '../../../src/sources/callback-url.ts';
import { OutgoingGuard } from '../../../src/sources/guard/outgoing-guard.ts';
import { fundedAccount, sha256 } from '../../store/fixtures.ts';
import { silent, until } from '../dispatch/harness.ts';
import { database, replica, secrets, stores } from '../notification/deliveries.ts';
import { Receiver } from '../notification/receiver.ts';

const NEAR = { allowPrivateAddresses: true, allowHttpCallbacks: true };
const LIMITS: Pick<ManageAlertsDependencies, 'messagesMax' | 'onWithheld'> = {
  messagesMax: 100,
  onWithheld: () => assert.fail('as many as may be are not reached'),
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
    observer: { balanceTold: () => undefined },
    log: silent,
  });
}

/** As if the last test was long ago. */
async function forgetTest(accountId: string): Promise<void> {
  await database.kysely
    .updateTable('message_counts')
    .set(eb => ({ tested_at: eb('tested_at', '-', 2 * TEST_EVERY_MS) }))
    .where('key_hash', '=', sha256(`event of ${accountId}`))
    .execute();
}

async function scopeOf(credits: number) {
  const accountId = await fundedAccount(stores, credits);
  return { accountId, accountName: 'Shop', actor: { kind: 'system' } as const };
}

describe('an address of events', () => {
  it('keeps a secret that another owner made while its URL was changed', async () => {
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
    assert.deepEqual(changed, { kind: 'set', secret: undefined });
    const stored = await stores.alertSettings.webhook(scope.accountId);
    assert.ok(stored && shown);
    assert.equal(stored.url, second.url);
    const key = secrets.open(accountSecretId(scope.accountId), stored);
    assert.equal(`whsec_${key?.toString('base64')}`, shown);
  });
});

describe('a low balance', () => {
  it('is told by a signed message with an id of its own', async () => {
    const scope = await scopeOf(12);
    const manage = manageAlerts();
    // Its secret is made by the service: the receiver is opened with it.
    const made = await manage.setWebhook(scope, { url: 'http://127.0.0.1:1/', newSecret: false });
    assert.ok(made.kind === 'set' && made.secret !== undefined);
    assert.match(made.secret, /^whsec_[A-Za-z0-9+/]{43}=$/);
    await using receiver = await Receiver.open(made.secret);
    const moved = await manage.setWebhook(scope, { url: receiver.url(), newSecret: false });
    assert.deepEqual(moved, { kind: 'set', secret: undefined });
    assert.ok(await manage.setThresholds(scope, ['20', ' 5 ', '']));
    await using _delivering = replica();
    await watch().look();
    await until(() => receiver.deliveries.length === 1);
    const { signatureHolds, body, headers } = at(receiver.deliveries, 0);
    assert.ok(signatureHolds);
    const { type, data } = JSON.parse(body.toString());
    assert.equal(type, 'account.balance_low');
    const { threshold, credits, account_id } = data;
    assert.deepEqual([threshold, account_id], [20, scope.accountId]);
    assert.deepEqual(credits, { available: 12, reserved: 0 });
    const { thresholds } = await manage.view(scope.accountId);
    await until(async () => {
      const view = await manage.view(scope.accountId);
      return at(view.thresholds, 0).delivery?.status === 'delivered';
    });
    assert.equal(headers['webhook-id'], `msg_${at(thresholds, 0).delivery?.id}`);
    assert.equal(at(thresholds, 1).toldAtMs, null);
    const [listed] = await stores.outbox.list({ limit: 1 });
    assert.equal(listed?.event, 'account.balance_low');
  });

  it('has a test message, and not two at once', async () => {
    const scope = await scopeOf(0);
    const manage = manageAlerts();
    assert.equal(await manage.sendTest(scope), 'no-webhook');
    const made = await manage.setWebhook(scope, { url: 'http://127.0.0.1:1/', newSecret: true });
    assert.ok(made.kind === 'set' && made.secret !== undefined);
    await using receiver = await Receiver.open(made.secret);
    await manage.setWebhook(scope, { url: receiver.url(), newSecret: false });
    await using _delivering = replica();
    const both = await Promise.all([manage.sendTest(scope), manage.sendTest(scope)]);
    assert.deepEqual(both.sort(), ['sent', 'too-soon']);
    await until(() => receiver.deliveries.length === 1);
    const { signatureHolds, body } = at(receiver.deliveries, 0);
    assert.ok(signatureHolds);
    assert.equal(JSON.parse(body.toString()).type, 'account.webhook_test');
    const { accountId } = scope;
    await forgetTest(accountId);
    assert.equal(await manage.sendTest(scope), 'sent');
    await until(() => receiver.deliveries.length === 2);
    await manage.removeWebhook(scope);
    assert.equal((await manage.view(accountId)).webhook, null);
  });

  it('has no further test message where the account has sent all its events of today', async () => {
    const scope = await scopeOf(0);
    const { accountId } = scope;
    const withheld: unknown[] = [];
    const manage = manageAlerts(undefined, {
      messagesMax: 1,
      onWithheld: (...told) => withheld.push(told),
    });
    await manage.setWebhook(scope, { url: 'http://127.0.0.1:1/', newSecret: true });
    assert.equal(await manage.sendTest(scope), 'sent');
    await forgetTest(accountId);
    assert.equal(await manage.sendTest(scope), 'used-up');
    assert.deepEqual(withheld, [[accountId, { reason: 'account', isFirst: true }]]);
    assert.equal((await manage.view(accountId)).mailsUsedUp, undefined, 'mails are counted apart');
  });

  it('takes no address that the guard does not, and no other thresholds', async () => {
    const scope = await scopeOf(0);
    const strict = manageAlerts({ allowPrivateAddresses: false, allowHttpCallbacks: false });
    for (const url of [
      'http://hooks.example/',
      'https://127.0.0.1/',
      'x',
      'https://a@b.example/',
    ]) {
      assert.equal((await strict.setWebhook(scope, { url, newSecret: false })).kind, 'wrong-url');
    }
    assert.equal(await stores.alertSettings.webhook(scope.accountId), undefined);
    const many = ['1', '2', '3', '4', '5', '6'];
    for (const texts of [['-1'], ['1.5'], ['ten'], ['1000000001'], many]) {
      assert.equal(await strict.setThresholds(scope, texts), false);
    }
    assert.deepEqual((await strict.view(scope.accountId)).thresholds, []);
    assert.ok(await strict.setThresholds(scope, ['7', '7', '0']));
    const { thresholds } = await strict.view(scope.accountId);
    assert.deepEqual(
      thresholds.map(({ threshold }) => threshold),
      [7, 0],
    );
  });
});
