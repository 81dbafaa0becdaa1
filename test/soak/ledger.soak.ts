/** Three million entries: checks as processes that are killed and go on. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import ava from 'ava';
import { sql } from 'kysely';
import {
  fundedAccount,
  HOUR_MS,
  newJob,
  resultOf,
  running,
} from '../../control-plane/core/test/fixtures.ts';
import { onStores } from '../../control-plane/test/fixtures.ts';
import { ACCOUNTS, fillLargeTables } from '../support/large-tables.ts';

const test = ava.serial;

const ENTRIES = 3_000_000;
const TABLES = { jobs: 100_000, openJobs: 200, ledgerEntries: ENTRIES };
const PROGRAM = path.resolve(import.meta.dirname, '../../control-plane/cli.ts');

interface Checked {
  readonly ok: boolean;
  readonly resumed: boolean;
  readonly read: { readonly accounts: number; readonly entries: number; readonly jobs: number };
  readonly problems: readonly { readonly problem: string }[];
}

onStores(
  test,
  `a ledger of ${ENTRIES} entries`,
  (test, { dialect, databases, database, stores }) => {
    test.before(async () => {
      await fillLargeTables(database, TABLES);
    });
    function start(...words: string[]) {
      const args = [PROGRAM, 'credits', 'check', '--json', ...words];
      const env = { PATH: process.env.PATH, MATTING_DATABASE_URL: databases.url() };
      const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
      let out = '';
      child.stdout.setEncoding('utf8').on('data', text => {
        out += text;
      });
      const ended = once(child, 'close').then(() => out);
      return { child, ended };
    }

    async function check(...words: string[]): Promise<Checked & { readonly ms: number }> {
      const beganMs = performance.now();
      const answer = JSON.parse(await start(...words).ended) as Checked;
      return { ...answer, ms: performance.now() - beganMs };
    }

    /** Killed as soon as it has done enough. */
    async function killed(enough: () => Promise<boolean>, ...words: string[]): Promise<void> {
      const { child, ended } = start(...words);
      while (!(await enough())) {
        assert.equal(child.exitCode, null, 'it was done before it was killed');
        await delay(20);
      }
      child.kill('SIGKILL');
      assert.equal(await ended, '');
    }

    async function closedEntries(): Promise<number> {
      const { rows } = await sql<{ closed: number | null }>`select cast(sum(closed) as
      ${sql.raw(dialect === 'sqlite' ? 'integer' : 'signed')}) as closed from (select
      max(entries) as closed from ledger_checkpoints group by account_id) as each_account`.execute(
        database.kysely,
      );
      return rows[0]!.closed ?? 0;
    }

    test('is checked by a process that is killed and one that goes on, beside traffic', async t => {
      const accountId = await fundedAccount(stores, 1_000_000);
      let stopped = false;
      const traffic = (async () => {
        let jobs = 0;
        for (; !stopped; jobs += 1) {
          const { claim } = await running(stores, newJob(accountId));
          await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {});
          await delay(5);
        }
        return jobs;
      })();
      try {
        await killed(async () => (await closedEntries()) > ENTRIES / 4);
        const closed = await closedEntries();
        const rest = await check();
        t.deepEqual(rest.problems, []);
        t.true(rest.read.entries < ENTRIES - closed + 100_000, `${rest.read.entries} were read`);
        t.log(
          `${closed} entries were closed, ${rest.read.entries} read in ${Math.round(rest.ms)} ms`,
        );
      } finally {
        stopped = true;
        t.log(`${await traffic} jobs beside it`);
      }
      const next = await check();
      t.deepEqual(next.problems, []);
    });

    test('is read in full by a process that is killed and one that goes on', async t => {
      const saved = async () => {
        const { rows } = await sql<{ progress: string | null }>`select progress from ledger_audits
        where kind = 'full'`.execute(database.kysely);
        return JSON.parse(rows[0]?.progress ?? '{"entries":0}').entries as number;
      };
      await killed(async () => (await saved()) > ENTRIES / 2, '--full');
      const rest = await check('--full');
      t.true(rest.resumed);
      t.deepEqual(rest.problems, []);
      t.true(rest.read.entries >= ENTRIES);
      t.is(rest.read.accounts, ACCOUNTS + 1);
      const whole = await check('--full');
      t.deepEqual([whole.problems, whole.resumed], [[], false]);
      const incremental = await check();
      t.log(`full ${whole.ms} ms, incremental ${incremental.ms} ms, with their starts`);
      t.log(`${whole.read.entries} entries against ${incremental.read.entries}`);
      t.true(incremental.read.entries * 20 < whole.read.entries);
    });
  },
);
