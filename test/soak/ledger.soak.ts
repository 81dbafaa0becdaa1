/**
 * Three million entries: the first check is killed half way and goes on, while jobs are submitted
 * and ended; the next one reads what came since; a full one is killed and goes on; and a changed
 * entry of years ago is found. The checks are processes of the command line, as an operator has
 * them.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { before, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { sql } from 'kysely';
import { CLOSE_MARGIN_MS } from '../../control-plane/src/store/ledger/ledger-audit.ts';
import { LEDGER_PAGE_ROWS } from '../../control-plane/src/store/ledger/ledger-pages.ts';
import {
  describeStores,
  fundedAccount,
  HOUR_MS,
  newJob,
  resultOf,
  running,
  storesOn,
} from '../../control-plane/test/store/fixtures.ts';
import { ACCOUNTS, accountOf, fillLargeTables } from '../support/large-tables.ts';
import { openMeteredDatabase } from '../support/statement-meter.ts';

const ENTRIES = 3_000_000;
const TABLES = { jobs: 100_000, openJobs: 200, ledgerEntries: ENTRIES };
const PROGRAM = path.resolve(import.meta.dirname, '../../control-plane/src/cli/main.ts');

interface Checked {
  readonly ok: boolean;
  readonly resumed: boolean;
  readonly read: { readonly accounts: number; readonly entries: number; readonly jobs: number };
  readonly problems: readonly { readonly problem: string }[];
}

describeStores(`a ledger of ${ENTRIES} entries`, ({ dialect, databases, database, stores }) => {
  before(async () => {
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

  it('is checked by a process that is killed and one that goes on, beside traffic', async t => {
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
      assert.deepEqual(rest.problems, []);
      assert.ok(rest.read.entries < ENTRIES - closed + 100_000, `${rest.read.entries} were read`);
      t.diagnostic(
        `${closed} entries were closed, ${rest.read.entries} read in ${Math.round(rest.ms)} ms`,
      );
    } finally {
      stopped = true;
      t.diagnostic(`${await traffic} jobs beside it`);
    }
    const next = await check();
    assert.deepEqual(next.problems, []);
  });

  it('is checked again by what came since, counted', async t => {
    const metered = openMeteredDatabase(dialect, databases.url());
    try {
      const beganMs = performance.now();
      const audit = await storesOn(metered.database).ledger.audit();
      const ms = performance.now() - beganMs;
      assert.deepEqual(audit.problems, []);
      const { statements } = metered;
      const reads = statements.reduce((sum, { rowsRead }) => sum + rowsRead, 0);
      for (const { rowsRead, sql: text } of statements) {
        assert.ok(rowsRead <= 7 * LEDGER_PAGE_ROWS, `${rowsRead} rows: ${text}`);
      }
      const { rows } = await sql<{ open: number }>`select count(*) as open from ledger_entries e
        where created_at >= coalesce((select max(closed_to) from ledger_checkpoints c
          where c.account_id = e.account_id), 0)`.execute(database.kysely);
      t.diagnostic(`${statements.length} statements read ${reads} rows in ${ms} ms`);
      t.diagnostic(`${rows[0]!.open} entries came since the checkpoints`);
      assert.equal(audit.entries, rows[0]!.open);
      // With each its partner and its job, and the jobs that ended with their entries.
      assert.ok(reads < 15 * (rows[0]!.open + TABLES.openJobs), `${reads} rows`);
    } finally {
      await metered.database.close();
    }
  });

  it('is read in full by a process that is killed and one that goes on', async t => {
    const saved = async () => {
      const { rows } = await sql<{ progress: string | null }>`select progress from ledger_audits
        where kind = 'full'`.execute(database.kysely);
      return JSON.parse(rows[0]?.progress ?? '{"entries":0}').entries as number;
    };
    await killed(async () => (await saved()) > ENTRIES / 2, '--full');
    const rest = await check('--full');
    assert.ok(rest.resumed);
    assert.deepEqual(rest.problems, []);
    assert.ok(rest.read.entries >= ENTRIES);
    assert.equal(rest.read.accounts, ACCOUNTS + 1);
    const whole = await check('--full');
    assert.deepEqual([whole.problems, whole.resumed], [[], false]);
    const incremental = await check();
    t.diagnostic(`full ${whole.ms} ms, incremental ${incremental.ms} ms, with their starts`);
    t.diagnostic(`${whole.read.entries} entries against ${incremental.read.entries}`);
    assert.ok(incremental.read.entries * 20 < whole.read.entries);
  });

  it('shows an account, and finds what was changed years ago', async () => {
    const credits = await stores.ledger.credits(accountOf(0));
    assert.ok(credits && credits.sums.reserve > ENTRIES / 5);
    const { created_at: atMs } = await database.kysely
      .selectFrom('ledger_entries')
      .select('created_at')
      .where('account_id', '=', accountOf(0))
      .where('kind', '=', 'charge')
      .orderBy('created_at')
      .limit(1)
      .executeTakeFirstOrThrow();
    assert.ok(atMs < Date.now() - CLOSE_MARGIN_MS);
    await database.kysely
      .updateTable('ledger_entries')
      .set({ kind: 'release' })
      .where('account_id', '=', accountOf(0))
      .where('created_at', '=', atMs)
      .where('kind', '=', 'charge')
      .execute();
    assert.deepEqual((await check()).problems, []);
    const found = await check('--full', accountOf(0));
    assert.match(found.problems[0]!.problem, /^the checkpoint/);
    assert.match(found.problems.at(-1)!.problem, /its ledger says/);
  });
});
