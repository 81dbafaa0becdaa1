/** `mails retry`: which mails it makes due, and what becomes of their attempts. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { at } from '../../../test/support/at.ts';
import { insertMail } from '../../src/store/outbox/outbox-rows.ts';
import { dueMails, mailEnd } from '../store/alerts-fixtures.ts';
import { useStores } from '../store/fixtures.ts';
import { runCli } from '../support/cli.ts';

const test = ava.serial;

const HOUR_MS = 3_600_000;

const { databases, database, stores } = useStores(test);

test.beforeEach(() => database.kysely.deleteFrom('outbox').execute());

const run = (...args: string[]) =>
  runCli({ MATTING_DATABASE_URL: databases.url() }, 'mails', ...args);

async function put(recipient: string) {
  const mail = { id: randomUUID(), accountId: 'account', subject: 'low', body: 'text' };
  await insertMail(database, database.kysely, { ...mail, recipient });
  return { id: mail.id, holder: 'replica-1', fence: 1 };
}

async function waiting(recipient: string) {
  const claim = await put(recipient);
  assert.ok(await stores.outbox.claim(claim, HOUR_MS));
  assert.ok(await stores.outbox.retryLater(claim, mailEnd('ESOCKET'), HOUR_MS));
  return claim;
}

test('retry sends what waits, as one attempt more, and leaves what is being sent', async t => {
  const late = await waiting('late@example.com');
  const sending = await put('sending@example.com');
  t.truthy(await stores.outbox.claim(sending, HOUR_MS));
  const sent = await put('sent@example.com');
  t.truthy(await stores.outbox.claim(sent, HOUR_MS));
  t.truthy(await stores.outbox.delivered(sent, mailEnd()));
  t.deepEqual(await dueMails(stores, 10), []);
  const { code, out } = await run('retry');
  t.deepEqual([code, out], [0, 'mails that are tried again now: 1\n']);
  const due = await dueMails(stores, 10);
  t.deepEqual(
    due.map(({ id, attempts }) => [id, attempts]),
    [[late.id, 0]],
  );
  const { out: again } = await run('retry', '--json');
  t.deepEqual(JSON.parse(again), { retried: 0 });
  // Its lease is still its holder's.
  t.truthy(await stores.outbox.delivered(sending, mailEnd()));
});

test('retry is not bounded by what one statement changes', async t => {
  const first = await waiting('first@example.com');
  const mails = database.kysely.selectFrom('outbox').selectAll();
  const row = at(await mails.where('id', '=', first.id).execute(), 0);
  for (let count = 0; count < 510; count += 10) {
    const rows = Array.from({ length: 10 }, () => ({ ...row, id: randomUUID() }));
    await database.kysely.insertInto('outbox').values(rows).execute();
  }
  const { out } = await run('retry', '--json');
  t.deepEqual(JSON.parse(out), { retried: 511 });
  const due = await mails.where('next_attempt_at', '<=', Date.now()).execute();
  t.is(due.length, 511);
});
