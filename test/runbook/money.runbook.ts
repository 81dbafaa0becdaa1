/** Needs: portal. */
import assert from 'node:assert/strict';
import { readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import ava from 'ava';
import { openDatabase } from '../../control-plane/database/connect.ts';
import { placed } from '../../control-plane/portal/test/orders.ts';
import { storesOn } from '../../control-plane/test/every-store.ts';
import { at } from '../support/at.ts';
import { SILENT_LOG } from '../support/database.ts';
import { Installation } from './installation.ts';
import { type Procedure, proceduresOn } from './procedures.ts';

const test = ava.serial;

const PAYMENT_SECRET = 'a-payment-secret-of-the-runbook';

const service = new Installation();
const procedure = proceduresOn(service, test);
service.use(test, {
  env: { MATTING_PAYMENT_SECRET: PAYMENT_SECRET },
});

async function accountId(): Promise<string> {
  const [row] = await service.database.ask("select id from matting.accounts where name = 'shop'");
  return String(row?.id);
}

procedure('MattingLedgerUnchecked', async page => {
  await service.database.ask(
    "update matting.kysely_migration set timestamp = '2026-01-01T00:00:00.000Z'",
  );
  await page.fires();
  await page.run('matting credits check');
  await page.isOver();
});

procedure('MattingLedgerProblems', async (page, t) => {
  const account = await accountId();
  await service.database.ask('update matting.accounts set available = available + 100');
  const checked = await page.run('matting credits check', {}, { code: 1 });
  const [, has, says] = /available is (\d+), its ledger says (\d+)/.exec(checked.out) ?? [];
  t.true(checked.out.includes(account), checked.out);
  t.is(Number(has) - Number(says), 100);
  await page.fires();
  const mend = at(page.codeOf(/^UPDATE accounts /), 0)
    .replace('accounts', 'matting.accounts')
    .replace('<difference>', '100')
    .replace('<account>', account);
  await service.database.ask(mend);
  await page.run('matting credits grant <account> <n> --reference <text>', {
    account: 'shop',
    n: '5',
    text: 'incident-7',
  });
  await page.run('matting credits check');
  await page.isOver();
});

async function tell(order: string, payment: string, amount: number) {
  const { url: baseUrl } = at(service.planes, 0);
  const told = `paid ${order} ${payment} ${amount} CNY`;
  const program = `"${process.execPath}" docs/examples/tell-payment.ts`;
  return await service.run(`${program} ${baseUrl} ${told}`, { PAYMENT_SECRET });
}

async function placeOrder(): Promise<{ readonly id: string; readonly price: number }> {
  const database = await openDatabase(service.database.url, { log: SILENT_LOG });
  try {
    return await placed(storesOn(database), await accountId());
  } finally {
    await database.close();
  }
}

const shown = async (page: Procedure, order: string) =>
  (await page.run('matting orders show <order>', { order })).out;

procedure('MattingPaymentOdd', async (page, t) => {
  const [twice, other] = [await placeOrder(), await placeOrder()];
  t.is((await tell(twice.id, 'pay-1', twice.price)).code, 0);
  let number = 2;
  const [firing] = await page.fires(() => tell(twice.id, `pay-${number++}`, twice.price));
  t.is(firing?.outcome, 'paid_again');
  await at(service.planes, 0).line('a payment was told of', { outcome: 'paid_again' });
  t.regex(await shown(page, twice.id), /pay-2/);
  await page.run('matting orders refund <order> --amount <sum> --reference <text>', {
    order: twice.id,
    sum: '1.00',
    text: 'back-1',
  });
  t.is((await tell(other.id, 'pay-low', 1)).code, 1);
  t.regex(await shown(page, other.id), /differs/);
  await page.run('matting orders confirm <order> --reference <text>', {
    order: other.id,
    text: 'bank-7',
  });
  t.regex(await shown(page, other.id), /paid/);
  await page.isOver();
});

const results = () => path.join(service.storage, 'results');

async function made(count: number) {
  const jobs = [];
  for (let number = 0; number < count; number += 1) {
    jobs.push(await service.cutOut());
  }
  return jobs;
}

async function answerOf(link: string | undefined) {
  const answer = await fetch(link ?? '');
  if (answer.status === 200) return '200 there';
  return `${answer.status} ${((await answer.json()) as { code: string }).code}`;
}

async function removeFileOf(jobId: string): Promise<void> {
  const files = (await readdir(results())).filter(name => name.startsWith(jobId));
  assert.notEqual(files.length, 0);
  for (const file of files) await rm(path.join(results(), file));
}

procedure('MattingResultsLost', async (page, t) => {
  const jobs = await made(3);
  const gone = at(jobs, 1);
  await removeFileOf(gone.job_id);
  t.is(await answerOf(gone.result?.url), '500 RESULT_LOST');
  await page.fires();
  await at(service.planes, 0).line('a result is lost', { jobId: gone.job_id });
  await page.run('matting storage check');
  const dry = await page.run('matting credits repay-lost --all-missing --dry-run');
  t.regex(dry.out, /^1 credits would be returned$/m);
  const done = await service.matting('credits repay-lost --all-missing');
  t.regex(done.out, /^1 credits returned$/m);
  t.is((await service.matting('credits check')).code, 0);
  await page.isOver();
});

procedure('MattingSettledLeftOut', async (page, t) => {
  const left = () => service.database.ask('select job_id from matting.unsettled_jobs');
  await service.database.ask('rename table matting.usage_days to matting.usage_aside');
  const job = await service.cutOut();
  await page.fires();
  const line = await at(service.planes, 0).line('a step was left out of the end of a job');
  t.like(line, { step: 'usage', job: job.job_id });
  t.is((await left()).length, 1);
  await service.database.ask('rename table matting.usage_aside to matting.usage_days');
  // The sweeper runs once a minute.
  const isDone = async () => (await left()).length === 0;
  await service.until('the sweeper has done it', isDone, 120_000);
  await page.isOver();
});
