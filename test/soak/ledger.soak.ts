/** Three million entries, half of one account: checks during traffic, and their cost. */
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import ava from 'ava';
import {
  fundedAccount,
  newJob,
  running,
  successOf,
} from '../../control-plane/core/test/fixtures.ts';
import { onStores } from '../../control-plane/test/fixtures.ts';
import { ACCOUNTS, accountOf, fillLargeTables, openToFill } from '../support/large-tables.ts';
import { Program } from '../support/program.ts';

const test = ava.serial;

const ENTRIES = 3_000_000;
const TABLES = { jobs: 100_000, openJobs: 200, ledgerEntries: ENTRIES };
const PROGRAM = path.resolve(import.meta.dirname, '../../control-plane/cli.ts');

interface Checked {
  readonly read: { readonly accounts: number; readonly entries: number; readonly jobs: number };
  readonly problems: readonly { readonly problem: string }[];
}

onStores(test, `a ledger of ${ENTRIES} entries`, (test, { databases, stores }) => {
  test.before(async () => {
    const filling = await openToFill(databases.url());
    await fillLargeTables(filling, TABLES);
    await filling.close();
  });

  async function check(): Promise<Checked & { readonly ms: number }> {
    const beganMs = performance.now();
    const env = { MATTING_DATABASE_URL: databases.url() };
    const { output } = await Program.run([PROGRAM, 'credits', 'check', '--json'], env);
    // Its progress goes to standard error.
    const [found = ''] = /^\{.*\}$/m.exec(output) ?? [];
    return { ...(JSON.parse(found) as Checked), ms: performance.now() - beganMs };
  }

  test('is checked beside traffic', async t => {
    const accountId = await fundedAccount(stores, 1_000_000);
    let stopped = false;
    const traffic = (async () => {
      let jobs = 0;
      for (; !stopped; jobs += 1) {
        const { claim } = await running(stores, newJob(accountId));
        await stores.queue.succeed(claim, successOf(claim));
        await delay(5);
      }
      return jobs;
    })();
    try {
      const { problems, read, ms } = await check();
      t.deepEqual(problems, []);
      t.true(read.entries >= ENTRIES);
      t.is(read.accounts, ACCOUNTS + 1);
      t.log(`${read.entries} entries and ${read.jobs} jobs in ${Math.round(ms)} ms`);
    } finally {
      stopped = true;
      t.log(`${await traffic} jobs beside it`);
    }
    const beganMs = performance.now();
    t.truthy(await stores.ledger.credits(accountOf(0)));
    t.log(`sums of the largest account in ${Math.round(performance.now() - beganMs)} ms`);
  });
});
