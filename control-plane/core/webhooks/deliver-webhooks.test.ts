/** Messages to receivers on loopback, of jobs and of low balances: a real store, real sockets. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import ava from 'ava';
import { at } from '../../../test/support/at.ts';
import { OutgoingGuard } from '../../http/outgoing/outgoing-guard.ts';
import { BalanceWatch } from '../../portal/alerts/balance-watch.ts';
import {
  ManageAlerts,
  type ManageAlertsDependencies,
  TEST_EVERY_MS,
} from '../../portal/alerts/settings-pages.ts';
import { createPortalStores, type PortalStores } from '../../portal/portal-stores.ts';
import { series } from '../../portal/test/fixtures.ts';
import { CallbackAddressCheck } from '../fetching/callback-check.ts';
import { accountSecretId, CallbackSecrets, SecretBox } from '../secrets/secret-box.ts';
import type { Stores } from '../stores.ts';
import {
  database,
  delivered,
  ended,
  isFinal,
  replica,
  rowOf,
  SCHEDULE,
  SECRET,
  secrets,
  stores,
  testDatabase,
  told,
  useDeliveries,
} from '../test/deliveries.ts';
import { fundedAccount, HOUR_MS, sha256, storesOn } from '../test/fixtures.ts';
import { silent, until } from '../test/harness.ts';
import { Receiver, reset, taken } from '../test/receiver.ts';

const test = ava.serial;

useDeliveries(test, series);

let portal: PortalStores;
test.before(() => {
  portal = createPortalStores(database);
});

test('a notification › goes out at once, signed over the bytes that are sent', async t => {
  await using receiver = await Receiver.open(SECRET);
  await using sender = replica();
  const jobId = await ended(receiver.url('/a?b=%20c'));
  const stored = await rowOf(jobId);
  sender.events.notificationDue();
  await until(isFinal(jobId));
  t.deepEqual(await told(jobId), ['delivered', 1, 204]);
  const [delivery, ...more] = receiver.of(jobId);
  assert.ok(delivery);
  t.deepEqual(more, []);
  t.true(delivery.signatureHolds);
  t.deepEqual([delivery.method, delivery.path], ['POST', '/a?b=%20c']);
  const row = await rowOf(jobId);
  t.is(JSON.parse(delivery.body.toString()).job_id, jobId);
  t.false(stored.body.includes('job_id'), 'sealed while it waits');
  t.is(row.body, '', 'erased with the secret');
  assert.ok(row.last_duration_ms !== null && row.last_duration_ms >= 0);
  t.deepEqual(Object.keys(delivery.headers).sort(), [
    'accept',
    'accept-encoding',
    'connection',
    'content-length',
    'content-type',
    'host',
    'user-agent',
    'webhook-id',
    'webhook-signature',
    'webhook-timestamp',
  ]);
  t.is(delivery.headers['content-type'], 'application/json');
  t.deepEqual([row.secret, row.secret_key_id, row.secret_erase_at], [null, null, null]);
  t.deepEqual(sender.observed, ['delivered']);
  const [delayMs = Number.NaN] = sender.delaysMs;
  t.true(delayMs >= 0 && delayMs < HOUR_MS);
});

test('a notification › is tried on the schedule, then has failed, its secret kept for a retry', async t => {
  await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
    response.writeHead(500).end('x'.repeat(100_000));
  });
  await using sender = replica();
  const jobId = await delivered(sender, receiver.url());
  t.deepEqual(await told(jobId), ['failed', SCHEDULE.length, 500]);
  t.is(receiver.of(jobId).length, SCHEDULE.length);
  const ids = new Set(receiver.of(jobId).map(({ headers }) => headers['webhook-id']));
  t.deepEqual([...ids], [`msg_${jobId}`]);
  t.truthy((await rowOf(jobId)).secret);
  receiver.answer = taken;
  t.is(await stores.outbox.retry(jobId), 'retried');
  sender.events.notificationDue();
  await until(isFinal(jobId));
  t.deepEqual(await told(jobId), ['delivered', SCHEDULE.length + 1, 204]);
});

test('a notification › stops at 410, and its secret is gone', async t => {
  await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
    response.writeHead(410).end();
  });
  await using sender = replica();
  const jobId = await delivered(sender, receiver.url());
  t.deepEqual(await told(jobId), ['failed', 1, 410]);
  t.is((await rowOf(jobId)).secret, null);
  t.is(await stores.outbox.retry(jobId), 'secret-erased');
});

test('a notification › is put off by Retry-After', async t => {
  await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
    response.writeHead(503, { 'retry-after': '120' }).end();
  });
  await using sender = replica({ scheduleMs: [0, 5, 5] });
  const jobId = await ended(receiver.url());
  sender.events.notificationDue();
  await until(async () => (await rowOf(jobId)).attempts === 1);
  const row = await rowOf(jobId);
  const waitMs = row.next_attempt_at! - row.last_attempt_at!;
  t.true(waitMs >= 120_000 && waitMs < 180_000, `${waitMs} ms`);
});

test('a notification › that is not answered is sent again', async t => {
  await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
    // The next one may come before the test has seen this one.
    receiver.answer = taken;
    reset(response);
  });
  await using sender = replica();
  const jobId = await delivered(sender, receiver.url());
  t.deepEqual(await told(jobId), ['delivered', 2, 204]);
  t.deepEqual(sender.observed, ['unanswered', 'delivered']);
});

test('a notification › follows no redirect, whatever its status', async t => {
  await using other = await Receiver.open(SECRET);
  for (const status of [300, 301, 302, 303, 304, 307, 308]) {
    await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
      response.writeHead(status, { location: other.url('/moved') }).end();
    });
    await using sender = replica({ scheduleMs: [0] });
    const jobId = await delivered(sender, receiver.url());
    t.deepEqual(await told(jobId), ['failed', 1, status]);
  }
  t.deepEqual(other.deliveries, []);
});

test('a notification › is sent to no address that is not public, and tells nothing of what is there', async t => {
  await using receiver = await Receiver.open(SECRET);
  await using sender = replica({ policy: { allowPrivateAddresses: false }, scheduleMs: [0, 5] });
  const jobs = [
    await ended(receiver.url()),
    await ended(`http://127.0.0.1:9/`),
    await ended(`http://[::ffff:127.0.0.1]:${receiver.port}/`),
  ];
  sender.events.notificationDue();
  for (const jobId of jobs) {
    await until(isFinal(jobId));
    t.deepEqual(await told(jobId), ['failed', 2, null]);
  }
  t.deepEqual(receiver.deliveries, []);
});

test('a receiver that is slow or dead › delays no other, however many wait for it', async t => {
  await using dead = await Receiver.open(SECRET, () => undefined);
  await using healthy = await Receiver.open(SECRET);
  for (let count = 0; count < 40; count += 1) await ended(dead.url());
  const last = await ended(healthy.url());
  await using sender = replica({ limits: { totalMs: 60_000 } });
  await until(isFinal(last), 'the delivery past the backlog');
  await until(() => dead.deliveries.length === 8);
  // The same for what ends from now on.
  const next = await ended(healthy.url());
  sender.events.notificationDue();
  await until(isFinal(next));
  t.is(dead.deliveries.length, 8, 'its places and no more');
});

test('several replicas › deliver each once between them', async t => {
  await using receiver = await Receiver.open(SECRET);
  const jobs: string[] = [];
  for (let count = 0; count < 15; count += 1) jobs.push(await ended(receiver.url()));
  const [first, second] = [
    storesOn(await testDatabase.open()),
    storesOn(await testDatabase.open()),
  ];
  await using _one = replica({ outbox: first.outbox });
  await using _two = replica({ outbox: second.outbox });
  for (const jobId of jobs) await until(isFinal(jobId));
  t.is(receiver.deliveries.length, 15);
  t.true(receiver.deliveries.every(delivery => delivery.signatureHolds));
});

test('several replicas › leave a secret they cannot open to one who can', async t => {
  await using receiver = await Receiver.open(SECRET);
  const [old, next] = [new SecretBox(randomBytes(32)), new SecretBox(randomBytes(32))];
  const both = new CallbackSecrets(next, [old]);
  const ofOld = await ended(receiver.url(), new CallbackSecrets(old));
  const ofNext = await ended(receiver.url(), both);
  const one = replica({ secrets: new CallbackSecrets(old) });
  await until(isFinal(ofOld));
  await one.delivery.stop(1000);
  t.deepEqual(await told(ofNext), ['pending', 0, null]);
  await using _two = replica({ secrets: both });
  await until(isFinal(ofNext));
  t.true(receiver.deliveries.every(delivery => delivery.signatureHolds));
});

test('several replicas › fail a notification whose body is not its own', async t => {
  await using receiver = await Receiver.open(SECRET);
  const [jobId, other] = [await ended(receiver.url()), await ended(receiver.url())];
  const { body } = await rowOf(other);
  await database.kysely.updateTable('outbox').set({ body }).where('id', '=', jobId).execute();
  await using sender = replica();
  await until(isFinal(jobId));
  await until(isFinal(other));
  t.deepEqual(sender.observed.sort(), ['delivered', 'unsignable']);
  t.is(receiver.of(jobId).length, 0);
});

test('a replica that ends › finishes what is under way', async t => {
  const { promise: go, resolve } = Promise.withResolvers<void>();
  await using receiver = await Receiver.open(SECRET, async (_delivery, response) => {
    await go;
    response.writeHead(200).end();
  });
  const sender = replica({ limits: { totalMs: 60_000 } });
  const jobId = await ended(receiver.url());
  sender.events.notificationDue();
  await until(() => receiver.of(jobId).length === 1);
  const stopped = sender.delivery.stop(60_000);
  const later = await ended(receiver.url());
  resolve();
  await stopped;
  t.deepEqual(await told(jobId), ['delivered', 1, 200]);
  t.deepEqual(await told(later), ['pending', 0, null], 'claims nothing more');
});

test('a replica that ends › outlives a database that is away for a while', async t => {
  await using receiver = await Receiver.open(SECRET);
  let failures = 3;
  const flaky = {
    ...stores.outbox,
    listDue: async (...given: Parameters<Stores['outbox']['listDue']>) => {
      if (failures-- > 0) throw new Error('away');
      return stores.outbox.listDue(...given);
    },
  };
  await using sender = replica({ outbox: flaky });
  const jobId = await ended(receiver.url());
  sender.events.notificationDue();
  await until(isFinal(jobId));
  t.is(receiver.of(jobId).length, 1);
});

const NEAR = { allowPrivateAddresses: true, allowHttpCallbacks: true };
const LIMITS: Pick<ManageAlertsDependencies, 'messagesMax' | 'onWithheld'> = {
  messagesMax: 100,
  onWithheld: () => assert.fail('as many as may be are not reached'),
};

function manageAlerts(policy = NEAR, limits = LIMITS, settings = portal.alertSettings) {
  const guard = new OutgoingGuard({ policy: { fetchPorts: [80, 443], ...policy } });
  return new ManageAlerts({
    settings,
    alerts: portal.alerts,
    secrets,
    addresses: new CallbackAddressCheck(guard),
    policy,
    mails: true,
    ...limits,
  });
}

function watch(): BalanceWatch {
  return new BalanceWatch({
    alerts: portal.alerts,
    settings: portal.alertSettings,
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

test('an address of events › keeps a secret that another owner made while its URL was changed', async t => {
  const scope = await scopeOf(0);
  const [first, second] = [{ url: 'http://127.0.0.1:1/' }, { url: 'http://127.0.0.1:2/' }];
  await manageAlerts().setWebhook(scope, { ...first, newSecret: true });
  let shown: string | undefined;
  const settings = {
    ...portal.alertSettings,
    setWebhook: async (...args: Parameters<typeof portal.alertSettings.setWebhook>) => {
      const other = await manageAlerts().setWebhook(scope, { ...first, newSecret: true });
      shown = other.kind === 'set' ? other.secret : undefined;
      return portal.alertSettings.setWebhook(...args);
    },
  };
  const changed = await manageAlerts(NEAR, LIMITS, settings).setWebhook(scope, {
    ...second,
    newSecret: false,
  });
  t.deepEqual(changed, { kind: 'set', secret: undefined });
  const stored = await portal.alertSettings.webhook(scope.accountId);
  assert.ok(stored && shown);
  t.is(stored.url, second.url);
  const key = secrets.open(accountSecretId(scope.accountId), stored);
  t.is(`whsec_${key?.toString('base64')}`, shown);
});

test('a low balance › is told by a signed message with an id of its own', async t => {
  const scope = await scopeOf(12);
  const manage = manageAlerts();
  // Its secret is made by the service: the receiver is opened with it.
  const made = await manage.setWebhook(scope, { url: 'http://127.0.0.1:1/', newSecret: false });
  assert.ok(made.kind === 'set' && made.secret !== undefined);
  t.regex(made.secret, /^whsec_[A-Za-z0-9+/]{43}=$/);
  await using receiver = await Receiver.open(made.secret);
  const moved = await manage.setWebhook(scope, { url: receiver.url(), newSecret: false });
  t.deepEqual(moved, { kind: 'set', secret: undefined });
  t.truthy(await manage.setThresholds(scope, ['20', ' 5 ', '']));
  await using _delivering = replica();
  await watch().look();
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
  t.is(at(thresholds, 1).toldAtMs, null);
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
    onWithheld: (...told) => withheld.push(told),
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
  t.is(await portal.alertSettings.webhook(scope.accountId), undefined);
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
