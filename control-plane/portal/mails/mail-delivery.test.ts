import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { CallbackSecrets, mailBody, SecretBox } from '@matting/core/secrets/secret-box.ts';
import { silent, until } from '@matting/core/test/harness.ts';
import { dueMails, mailEnd } from '@matting/core/test/mails.ts';
import type { MessageDelivery } from '@matting/core/webhooks/deliver-messages.ts';
import { insertMail } from '@matting/core/webhooks/outbox-store.ts';
import ava from 'ava';
import { sql } from 'kysely';
import { useStores } from '../test/fixtures.ts';
import { withheldReporter } from './owners-mails.ts';
import { mailDelivery } from './send-mails.ts';

const MAILS_UNDER_WAY_MAX = 8;
const test = ava.serial;

const HOUR_MS = 3_600_000;

const SECRETS = new CallbackSecrets(new SecretBox(Buffer.alloc(32, 1)));

type Send = Parameters<typeof mailDelivery>[0]['sender']['send'];

const { database, stores } = useStores(test);

async function put(recipients: readonly string[], accountId?: string): Promise<void> {
  for (const recipient of recipients) {
    const id = randomUUID();
    const body = SECRETS.sealText(`to ${recipient}`, mailBody(id));
    const mail = { id, accountId: accountId ?? recipient, recipient, subject: 'low', body };
    await insertMail(database, database.kysely, mail);
  }
}

async function statusOf(recipient: string) {
  const mails = database.kysely.selectFrom('outbox').where('address', '=', recipient);
  const { status, attempts, last_error } = await mails.selectAll().executeTakeFirstOrThrow();
  return [status, attempts, last_error];
}

function delivery(send: Send, observed: string[] = [], secrets = SECRETS): MessageDelivery {
  const delivering = mailDelivery({
    outbox: stores.outbox,
    secrets,
    sender: { send },
    observer: { mailAttempted: outcome => observed.push(outcome) },
    log: silent,
    holder: randomUUID(),
    scheduleMs: [0, 5, 5],
    pollMs: 100,
    random: () => 0.5,
  });
  delivering.start();
  return delivering;
}

test('are sent past an address that the server does not take, which is given up in the end', async t => {
  const sent: string[] = [];
  const observed: string[] = [];
  const others = Array.from({ length: 3 * MAILS_UNDER_WAY_MAX }, (_, i) => `owner${i}@a.test`);
  await put(['bad@a.test', 'never@a.test', ...others]);
  const delivering = delivery(async ({ to }) => {
    if (to === 'bad@a.test') return { kind: 'later', error: 'E451 try again' };
    if (to === 'never@a.test') return { kind: 'refused', error: 'E550' };
    sent.push(to);
    return { kind: 'sent' };
  }, observed);
  const bad = async () => (await statusOf('bad@a.test'))[0];
  await until(async () => sent.length === others.length && (await bad()) === 'failed');
  await delivering.stop();
  t.deepEqual(sent.sort(), others.sort());
  t.deepEqual(await statusOf('bad@a.test'), ['failed', 3, 'E451_try_again']);
  t.deepEqual(await statusOf('never@a.test'), ['failed', 1, 'E550']);
  t.deepEqual(await statusOf('owner0@a.test'), ['delivered', 1, null]);
  t.is(observed.filter(outcome => outcome === 'given-up').length, 1);
  t.deepEqual(await stores.outbox.mailsWaiting(), { count: 0, oldestMs: 0 });
});

test('are late since they were written, however often the server put them off', async t => {
  await put(['away@a.test']);
  const mails = database.kysely.updateTable('outbox');
  await mails
    .set({ created_at: sql<number>`created_at - ${HOUR_MS}` })
    .where('address', '=', 'away@a.test')
    .execute();
  const [mail] = await dueMails(stores, 1);
  assert.ok(mail);
  const claim = { id: mail.id, holder: 'replica', fence: mail.fence + 1 };
  t.truthy(await stores.outbox.claim(claim, HOUR_MS));
  t.truthy(await stores.outbox.retryLater(claim, mailEnd('ECONNECTION'), HOUR_MS));
  const { count, oldestMs } = await stores.outbox.mailsWaiting();
  t.is(count, 1);
  t.true(oldestMs >= HOUR_MS, `late by ${oldestMs} ms`);
  await database.kysely.deleteFrom('outbox').where('id', '=', mail.id).execute();
});

test('are no more at once than there are places, and given back by one that ends', async t => {
  const recipients = Array.from({ length: MAILS_UNDER_WAY_MAX + 2 }, (_, i) => `hang${i}@a.test`);
  await put(recipients);
  let underWay = 0;
  const hanging = delivery(async (_, signal) => {
    underWay += 1;
    t.true(underWay <= MAILS_UNDER_WAY_MAX);
    await new Promise(resolve => signal.addEventListener('abort', resolve));
    underWay -= 1;
    return { kind: 'later', error: 'aborted' };
  });
  await until(() => underWay === MAILS_UNDER_WAY_MAX);
  await hanging.stop();
  const sent: string[] = [];
  const next = delivery(async ({ to }) => {
    sent.push(to);
    return { kind: 'sent' };
  });
  await until(() => sent.length === recipients.length);
  await next.stop();
  t.deepEqual(await statusOf('hang0@a.test'), ['delivered', 1, null]);
});

test('are sent by another replica where one dies over them, under the same id', async t => {
  await put(['orphan@a.test']);
  const [mail] = await dueMails(stores, 1);
  assert.ok(mail);
  const claim = { id: mail.id, holder: 'dead', fence: mail.fence + 1 };
  t.truthy(await stores.outbox.claim(claim, 30));
  t.deepEqual(await dueMails(stores, 1), []);
  const ids: string[] = [];
  const next = delivery(async ({ id }) => {
    ids.push(id);
    return { kind: 'sent' };
  });
  await until(() => ids.length === 1);
  await until(async () => (await statusOf('orphan@a.test'))[0] === 'delivered');
  await next.stop();
  t.deepEqual(ids, [mail.id]);
  t.is(await stores.outbox.delivered(claim, mailEnd()), false, 'fenced off');
});

test('go past an account with a hundred mails at a slow server, and leave it half of the places', async t => {
  const crowd = Array.from({ length: 100 }, (_, i) => `stranger${i}@b.test`);
  await put(crowd, 'crowd');
  const answers: (() => void)[] = [];
  const begun: string[] = [];
  const slow = delivery(async ({ to }) => {
    begun.push(to);
    await new Promise<void>(resolve => answers.push(resolve));
    return { kind: 'sent' };
  });
  await until(() => answers.length === MAILS_UNDER_WAY_MAX / 2);
  await put(['invited@c.test']);
  // The mail need not wait for the server, since a slot is free.
  await until(() => begun.includes('invited@c.test'));
  t.is(begun.length, MAILS_UNDER_WAY_MAX / 2 + 1);
  const stopped = slow.stop();
  for (const answer of answers) answer();
  await stopped;
  await database.kysely.deleteFrom('outbox').where('account_id', '=', 'crowd').execute();
});

test('lie sealed in the database, and one that no key here opens is left to another replica', async t => {
  await put(['sealed@a.test']);
  const rows = database.kysely.selectFrom('outbox').where('address', '=', 'sealed@a.test');
  const { body } = await rows.selectAll().executeTakeFirstOrThrow();
  t.false(body.includes('sealed@a.test'));
  const texts: string[] = [];
  const send: Send = async ({ text }) => {
    texts.push(text);
    return { kind: 'sent' };
  };
  const without = delivery(send, [], new CallbackSecrets(new SecretBox(Buffer.alloc(32, 2))));
  await until(async () => (await statusOf('sealed@a.test'))[2] === 'ENOKEY');
  await without.stop();
  await database.kysely
    .updateTable('outbox')
    .set({ status: 'pending', attempts: 0, next_attempt_at: 1, secret_key_id: '' })
    .set({ finished_at: null, body })
    .where('address', '=', 'sealed@a.test')
    .execute();
  const next = new SecretBox(Buffer.alloc(32, 2));
  const both = new CallbackSecrets(next, [new SecretBox(Buffer.alloc(32, 1))]);
  const withBoth = delivery(send, [], both);
  await until(async () => (await statusOf('sealed@a.test'))[0] === 'delivered');
  await withBoth.stop();
  t.deepEqual(texts, ['to sealed@a.test']);
});

test('a message that is withheld is counted each time, and logged the first time of a day', t => {
  const counted: string[] = [];
  const logged: unknown[] = [];
  const log = { warn: (line: unknown) => logged.push(line) };
  const report = withheldReporter({ messageWithheld: reason => counted.push(reason) }, log);
  report('one', { reason: 'account', isFirst: true });
  report('one', { reason: 'account', isFirst: false });
  report('two', { reason: 'recipient', isFirst: true });
  t.deepEqual(counted, ['account', 'account', 'recipient']);
  t.deepEqual(logged, [
    { accountId: 'one', reason: 'account' },
    { accountId: 'two', reason: 'recipient' },
  ]);
});
