/** `matting orders`: what an operator types when money came, or went back. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { fundedAccount, IMAGE_FAULT, newJob, running, useStores } from '../store/fixtures.ts';
import { OPERATOR, placed } from '../store/orders.ts';
import { runCli } from '../support/cli.ts';

const test = ava.serial;

const { databases, stores } = useStores(test);

const run = (...args: string[]) =>
  runCli({ MATTING_DATABASE_URL: databases.url() }, 'orders', ...args);

async function json(...args: string[]) {
  const { code, out, err } = await run(...args, '--json');
  assert.deepEqual([code, err], [0, '']);
  return JSON.parse(out);
}

test('are listed by state and account, in pages', async t => {
  const account = await fundedAccount(stores, 0);
  const first = await placed(stores, account);
  const second = await placed(stores, account);
  await stores.orders.cancel(account, first.id, OPERATOR);
  const [latest] = await json('list', '--account', account, '--limit', '1');
  const rest = await json('list', '--account', account, '--after', latest.cursor);
  const ids = [latest.order_id, ...rest.map((order: { order_id: string }) => order.order_id)];
  t.deepEqual(ids.sort(), [first.id, second.id].sort());
  const pending = await json('list', '--account', account, '--state', 'pending');
  t.deepEqual([pending.length, pending[0].order_id], [1, second.id]);
  t.deepEqual([pending[0].amount, pending[0].price], [5000, '50.00']);
  t.regex((await run('list')).out, new RegExp(`^${second.id} +pending +2500 +50.00 CNY`, 'm'));
  t.is((await run('list', '--state', 'lost')).code, 64);
  t.is((await run('list', '--limit', '0')).code, 64);
  t.regex((await run('list', '--after', 'x')).err, /after: the cursor of a listed order/);
  t.regex((await run('list', '--account', 'nobody')).err, /no account "nobody"/);
});

test('are confirmed once, and with one payment', async t => {
  const account = await fundedAccount(stores, 0);
  const { id } = await placed(stores, account);
  t.regex((await run('confirm', id, '--reference', 'bank-7')).out, /^2500 credits granted/);
  t.regex((await run('confirm', id, '--reference', 'bank-7')).out, /confirmed before/);
  const other = await run('confirm', id, '--reference', 'bank-8');
  t.is(other.code, 1);
  t.regex(other.err, /paid already, with the payment "bank-7": nothing was changed/);
  t.regex((await run('confirm', id, '--reference', 'a b')).err, /reference: 1 to 64/);
  t.regex((await run('confirm', randomUUID())).err, /there is no order/);
  t.is((await stores.ledger.balances(account))?.available, 2500);
  const shown = await json('show', id.toUpperCase());
  t.deepEqual([shown.state, shown.paid_by, shown.payment], ['paid', 'operator', 'bank-7']);
  const late = await placed(stores, account);
  await stores.orders.cancel(account, late.id, OPERATOR);
  t.regex((await run('confirm', late.id)).out, /expired or was cancelled before/);
});

test('are refunded in whole or in part, and say what could not be taken back', async t => {
  const account = await fundedAccount(stores, 0);
  const { id } = await placed(stores, account);
  t.regex((await run('refund', id)).err, /the order is pending/);
  await run('confirm', id);
  const part = ['refund', id, '--amount', '12.50', '--reference', 're-1'];
  t.regex((await run(...part)).out, /^12.50 CNY refunded: 625 credits revoked\n$/);
  t.regex((await run(...part)).out, /entered before/);
  const conflict = await run('refund', id, '--amount', '1', '--reference', 're-1');
  t.regex(conflict.err, /entered before, with 12.50 CNY/);
  for (const sum of ['-1', '1.234', 'all', '0']) {
    t.regex((await run('refund', id, `--amount=${sum}`)).err, /--amount is a sum of CNY/);
  }
  t.regex((await run('refund', id, '--amount', '37.51')).err, /at most 37.50 CNY/);
  await stores.ledger.revoke(account, 1000, 'spent');
  const { claim } = await running(stores, newJob(account));
  const rest = await run('refund', id);
  t.regex(rest.out, /^37.50 CNY refunded: 874 credits revoked\n1001 credits were spent/);
  t.regex((await run('refund', id)).err, /all of the price has been refunded/);
  const { state, credits_not_revoked: left, refunds } = await json('show', id);
  t.deepEqual([state, left, refunds.length], ['refunded', 1001, 2]);
  t.truthy(await stores.jobs.fail(claim, IMAGE_FAULT));
  const then = await json('show', id);
  t.deepEqual([then.credits_revoked, then.credits_revoked_later], [1500, 1]);
  t.is(then.credits_not_revoked, 1000);
  t.regex((await run('show', id)).out, /^refund re-1: 12.50, 625 of 625 credits revoked$/m);
});

test('have references that credits refuses', async t => {
  const account = await fundedAccount(stores, 0);
  const { id } = await placed(stores, account);
  const env = { MATTING_DATABASE_URL: databases.url() };
  const grant = ['credits', 'grant', account, '5', '--reference', `order:${id}`];
  t.is((await runCli(env, ...grant)).code, 64);
  t.is((await stores.ledger.balances(account))?.available, 0);
});
