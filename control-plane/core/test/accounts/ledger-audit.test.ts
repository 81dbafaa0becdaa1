import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { rangeOfAccount } from '@matting/accounts/ledger/ledger-ranges.ts';
import type { Database } from '@matting/database/database.ts';
import { databaseErrorKind } from '@matting/database/engines.ts';
import { addTo, removeFrom, setIn } from '@matting/database/test/rows.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import { useTestDatabase } from '@matting/test-support/database.ts';
import { openMeteredDatabase } from '@matting/test-support/statement-meter.ts';
import { openWatchedDatabase } from '@matting/test-support/watched-database.ts';
import ava from 'ava';
import { type AuditOptions, auditLedger } from '../../audit/ledger-audit.ts';
import { readSums, readSumsInParts } from '../../audit/ledger-comparisons.ts';
import type { Stores } from '../../stores.ts';
import {
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  LIMITS,
  newJob,
  onStores,
  running,
  runningOf,
  storesOn,
  successOf,
} from '../fixtures.ts';
import {
  DAYS,
  ENTRIES,
  entry,
  FIRST_DAY_MS,
  GRANTED,
  JOBS_A_DAY,
  oldAccount,
  RANGES,
} from '../old-account.ts';

const test = ava.serial;

onStores(test, "the ledger's audit", (test, { dialect, databases, database, stores }) => {
  const audit = (options: AuditOptions = {}, on = database) => auditLedger(on, options, RANGES);
  /** Whether it committed; if cluster members lock separately, another may have won. */
  const endOf = async (transaction: Promise<unknown>): Promise<boolean> => {
    try {
      await transaction;
      return true;
    } catch (error) {
      assert.equal(database.engine.conflicts, 'certification', String(error));
      assert.equal(databaseErrorKind(error), 'conflict');
      return false;
    }
  };
  const counted = async () => {
    const count = (table: 'accounts' | 'ledger_entries' | 'jobs') =>
      database.kysely
        .selectFrom(table)
        .select(({ fn }) => fn.countAll<number>().as('rows'))
        .executeTakeFirstOrThrow();
    const [accounts, entries, jobs] = await Promise.all([
      count('accounts'),
      count('ledger_entries'),
      count('jobs'),
    ]);
    return { accounts: accounts.rows, entries: entries.rows, jobs: jobs.rows };
  };
  const problemsOf = ({ problems }: Awaited<ReturnType<typeof audit>>) =>
    problems.map(({ problem }) => problem);

  test('reads every entry once, in however many parts', async t => {
    const accountId = await oldAccount(database);
    for (const entriesMax of [1, 3, 1000]) {
      const one = await auditLedger(database, { accountId }, { ...RANGES, entriesMax });
      t.deepEqual([one.accounts, one.entries, one.problems], [1, ENTRIES, []]);
    }
    const last = entry(accountId, 'reserve', FIRST_DAY_MS + DAYS * DAY_MS, randomUUID());
    await database.kysely.insertInto('ledger_entries').values(last).execute();
    const { problems } = await audit({ accountId });
    t.true(problems.some(({ jobId }) => jobId === last.job_id));
    await removeFrom(database.kysely, 'ledger_entries', { id: last.id });
    const all = await audit();
    const { accounts, entries, jobs } = await counted();
    t.deepEqual([all.accounts, all.entries, all.jobs], [accounts, entries, jobs]);
    const credits = await stores.ledger.credits(accountId);
    const each = DAYS * JOBS_A_DAY;
    t.deepEqual(credits, {
      available: GRANTED - each,
      reserved: 0,
      charged: each,
      granted: GRANTED,
      revoked: 0,
    });
  });

  /** Runs `then` once, after the n-th sum. */
  async function behindSum<T>(n: number, then: () => Promise<void>, read: (on: Database) => T) {
    let sums = 0;
    const watched = openWatchedDatabase(dialect, databases.url(), async (connection, query) => {
      const result = await connection.executeQuery(query);
      if (query.sql.includes('sum(') && ++sums === n) await then();
      return result as never;
    });
    try {
      return { read: await read(watched), sums };
    } finally {
      await watched.close();
    }
  }

  test('adds up a large account in parts as in one statement, also if a connection is lost', async t => {
    const accountId = await oldAccount(database);
    const whole = await readSums(database, [], rangeOfAccount(accountId));
    t.is(whole[0]?.entries, ENTRIES);
    const lose = async () => {
      throw Object.assign(new Error('lost'), { code: 'ECONNRESET' });
    };
    for (const entriesMax of [1, 3, 1000]) {
      const { read, sums } = await behindSum(dialect === 'sqlite' ? 1 : 2, lose, on =>
        readSumsInParts(on, [], accountId, { entriesMax }),
      );
      t.deepEqual(read, whole);
      t.true(dialect === 'sqlite' || sums > ENTRIES / (entriesMax + 1), `${sums}`);
    }
  });

  if (dialect === 'mysql') {
    test('reads no more entries in a part than it has', async t => {
      const accountId = await oldAccount(database);
      const { database: metered, statements } = openMeteredDatabase(dialect, databases.url());
      await readSumsInParts(metered, [], accountId, { entriesMax: 3 });
      await metered.close();
      t.true(statements.length > ENTRIES / 3);
      // The index entry and the row.
      t.true(statements.every(({ rowsRead }) => rowsRead <= 10));
    });
  }

  test('finds an account right that is charged between the parts of its sums', async t => {
    const accountId = await oldAccount(database);
    const { claim } = await running(stores, newJob(accountId));
    const charge = async () => void (await stores.queue.succeed(claim, successOf(claim)));
    const { read } = await behindSum(1, charge, on => audit({ accountId }, on));
    t.deepEqual(read.problems, []);
    t.is((await stores.ledger.credits(accountId))?.charged, DAYS * JOBS_A_DAY + 1);
  });

  test('each writer of an entry takes the account first, and the time then', async t => {
    const accountId = await fundedAccount(stores, 10);
    const won = await running(stores, newJob(accountId));
    const lost = await running(stores, newJob(accountId));
    const other = await databases.open();
    const locked = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    let releasedAtMs = Number.NaN;
    const holder = other.kysely.transaction().execute(async tx => {
      await tx
        .updateTable('accounts')
        .set({ name: `held ${randomUUID()}` })
        .where('id', '=', accountId)
        .execute();
      locked.resolve();
      await release.promise;
      const row = await tx.selectNoFrom(other.nowMs.as('now')).executeTakeFirstOrThrow();
      releasedAtMs = row.now;
    });
    await locked.promise;
    const writers = Promise.all([
      stores.ledger.grant(accountId, 1, 'held'),
      stores.ledger.revoke(accountId, 1, 'held'),
      stores.queue.submit(newJob(accountId), LIMITS),
      stores.queue.succeed(won.claim, successOf(won.claim)),
      stores.queue.fail(lost.claim, IMAGE_FAULT),
    ]);
    // A writer that ignores the lock has finished by then.
    await Promise.race([writers, delay(200)]);
    release.resolve();
    const held = await endOf(holder);
    await writers;
    // On a cluster such a writer has made the holder fail.
    if (!held) return t.is(database.engine.conflicts, 'certification');
    const entries = await database.kysely
      .selectFrom('ledger_entries')
      .select(['kind', 'reference', 'created_at'])
      .where('account_id', '=', accountId)
      .where('reference', 'not in', ['first'])
      .execute();
    const late = entries.filter(({ created_at: atMs }) => atMs >= releasedAtMs);
    t.deepEqual(
      late.map(({ kind }) => kind).sort(),
      ['charge', 'grant', 'release', 'reserve', 'revoke'],
      'one of each writer',
    );
  });

  test('names a fault each time until it is mended', async t => {
    const accountId = await oldAccount(database);
    const [one, other] = [randomUUID(), randomUUID()];
    const atMs = FIRST_DAY_MS + DAY_MS + HOUR_MS;
    // Sums are right: one job has too much what the other lacks.
    await database.kysely
      .insertInto('ledger_entries')
      .values([entry(accountId, 'reserve', atMs, one), entry(accountId, 'charge', atMs, other)])
      .execute();
    await addTo(database.kysely, 'accounts', { id: accountId }, { available: -1 });
    for (const options of [{ accountId }, { accountId }, {}]) {
      const found = await audit(options);
      t.deepEqual(
        found.problems.map(({ jobId, problem }) => [jobId, problem]).sort(),
        [
          [one, "the job's row is gone and its reserve has no partner"],
          [other, "the job's row is gone and its charge has no partner"],
        ].sort(),
      );
    }
    await database.kysely
      .insertInto('ledger_entries')
      .values([entry(accountId, 'charge', atMs, one), entry(accountId, 'reserve', atMs, other)])
      .execute();
    await addTo(database.kysely, 'accounts', { id: accountId }, { available: -1 });
    t.deepEqual((await audit({ accountId })).problems, []);
  });

  const own = useTestDatabase(test, dialect);

  async function empty(): Promise<Database> {
    const broken = await own.open();
    for (const table of ['ledger_entries', 'jobs', 'accounts', 'ledger_audits'] as const) {
      await broken.kysely.deleteFrom(table).execute();
    }
    return broken;
  }

  test('names accounts that only entries have, and counts faults beyond its list', async t => {
    const target = await empty();
    const missing = randomUUID();
    await target.kysely
      .insertInto('ledger_entries')
      .values(entry(missing, 'grant', FIRST_DAY_MS, null))
      .execute();
    const nobody = 'the ledger names an account that does not exist';
    t.deepEqual((await audit({}, target)).problems, [
      { accountId: missing, jobId: null, problem: nobody },
    ]);
    const lone = Array.from({ length: 30 }, () =>
      entry(missing, 'reserve', FIRST_DAY_MS, randomUUID()),
    );
    await target.kysely.insertInto('ledger_entries').values(lone).execute();
    const { problems, problemCount } = await audit({}, target);
    t.deepEqual([problems.length, problemCount], [20, 20], 'no account fills the list');
  });

  test('says how its last run over all accounts ended', async t => {
    const target = await empty();
    const ledger = storesOn(target).ledger;
    t.deepEqual(
      (await ledger.lastAudits()).map(({ kind }) => kind),
      ['none'],
    );
    t.deepEqual(await ledger.check(await oldAccount(target)), []);
    t.is((await ledger.lastAudits())[0]?.kind, 'none', 'one account is not the ledger');
    for (let times = 0; times < 2; times += 1) {
      t.deepEqual(await ledger.check(), []);
      t.deepEqual(
        (await ledger.lastAudits()).map(({ kind, problems }) => [kind, problems]),
        [['full', 0]],
      );
    }
  });

  type Breaking = (broken: Database, accountId: string, stores: Stores) => Promise<unknown>;

  interface Verdicts {
    readonly all: string;
    readonly one: string;
  }

  async function verdictsAfter(breakIt: Breaking): Promise<Verdicts> {
    const broken = await empty();
    const accountId = await oldAccount(broken);
    assert.deepEqual(problemsOf(await audit({}, broken)), []);
    await breakIt(broken, accountId, storesOn(broken));
    const verdict = async (options: AuditOptions) =>
      problemsOf(await audit(options, broken)).join('\n');
    return { all: await verdict({}), one: await verdict({ accountId }) };
  }

  const entries = (broken: Database, accountId: string) =>
    broken.kysely.updateTable('ledger_entries').where('account_id', '=', accountId);

  test('both audits find a wrong balance', async t => {
    const found = await verdictsAfter((broken, accountId) =>
      addTo(broken.kysely, 'accounts', { id: accountId }, { available: 1 }),
    );
    const balance = 'available is 77, its ledger says 76';
    t.deepEqual(found, { all: balance, one: balance });
  });

  test('both audits find a missing, an extra and a changed entry', async t => {
    const old = FIRST_DAY_MS + DAY_MS;
    const gone = await verdictsAfter((broken, accountId) =>
      removeFrom(broken.kysely, 'ledger_entries', {
        account_id: accountId,
        kind: 'charge',
        created_at: old + 9,
      }),
    );
    t.regex(gone.all, /its reserve has no partner/);
    t.regex(gone.all, /reserved is 0, its ledger says 1/);
    const more = await verdictsAfter((broken, accountId) =>
      broken.kysely
        .insertInto('ledger_entries')
        .values({ ...entry(accountId, 'grant', old, null), reference: 'slipped in' })
        .execute(),
    );
    t.is(more.all, 'available is 76, its ledger says 176');
    const other = await verdictsAfter((broken, accountId) =>
      entries(broken, accountId)
        .set({ kind: 'release' })
        .where('kind', '=', 'charge')
        .where('created_at', '=', old + 9)
        .execute(),
    );
    t.is(other.all, 'available is 76, its ledger says 77');
    const amount = await verdictsAfter((broken, accountId) =>
      entries(broken, accountId)
        .set({ amount: 2 })
        .where('kind', '=', 'charge')
        .where('created_at', '=', old + 9)
        .execute(),
    );
    t.regex(amount.all, /the job's row is gone and its reserve and charge differ/);
    t.regex(amount.all, /reserved is 0, its ledger says -1/);
    for (const { all, one } of [gone, more, other, amount]) t.is(one, all);
  });

  test('the audit of all accounts finds a final job without entries', async t => {
    const found = await verdictsAfter(async (broken, accountId, ownStores) => {
      const { job, claim } = await running(ownStores, newJob(accountId));
      await ownStores.queue.succeed(claim, successOf(claim, { resultTtlMs: 0 }));
      await broken.kysely.deleteFrom('ledger_entries').where('job_id', '=', job.id).execute();
      await addTo(broken.kysely, 'accounts', { id: accountId }, { available: 1 });
    });
    const all = 'the job is succeeded, its ledger has no reserve and no settlement';
    t.deepEqual(found, { all, one: '' });
  });

  test('both audits name an open job without its reserve', async t => {
    let id = '';
    const found = await verdictsAfter(async (broken, accountId, ownStores) => {
      const { job } = await running(ownStores, newJob(accountId));
      id = job.id;
      await removeFrom(broken.kysely, 'ledger_entries', { job_id: id });
    });
    t.regex(found.all, /the job is running, its ledger has no reserve and no settlement/);
    t.regex(found.all, /reserved is 1, its ledger says 0/);
    t.is(found.one, found.all);
    t.not(id, '');
  });

  test("both audits find another account's job, and a playground job with an entry", async t => {
    const broken = await empty();
    const ownStores = storesOn(broken);
    const { job } = await runningOf(ownStores, 2);
    const accountId = await oldAccount(broken);
    const { job: done, claim } = await running(ownStores, newJob(job.accountId));
    await ownStores.queue.succeed(claim, successOf(claim, { resultTtlMs: 0 }));
    await broken.kysely
      .insertInto('ledger_entries')
      .values([entry(accountId, 'reserve', 1, done.id), entry(accountId, 'charge', 2, done.id)])
      .execute();
    await addTo(broken.kysely, 'accounts', { id: accountId }, { available: -1 });
    const strange = `the job is of account ${job.accountId}, a reserve of it is not`;
    for (const options of [{}, { accountId }]) {
      t.deepEqual((await audit(options, broken)).problems, [
        { accountId, jobId: done.id, problem: strange },
      ]);
    }
    await removeFrom(broken.kysely, 'ledger_entries', { account_id: accountId, job_id: done.id });
    await addTo(broken.kysely, 'accounts', { id: accountId }, { available: 1 });
    await setIn(broken.kysely, 'jobs', { id: job.id }, { class: 'playground', playground_day: 1 });
    for (const options of [{}, { accountId: job.accountId }]) {
      t.deepEqual(problemsOf(await audit(options, broken)), [
        'reserved is 1, its open jobs hold 0',
        'the job has no credit, its ledger has a reserve',
      ]);
    }
  });

  test('both audits name a job whose state contradicts its settlement', async t => {
    const broken = await empty();
    const ownStores = storesOn(broken);
    const { account: accountId, job, claim } = await runningOf(ownStores, 2);
    await ownStores.queue.succeed(claim, successOf(claim, { resultTtlMs: 0 }));
    await entries(broken, accountId)
      .set({ kind: 'release' })
      .where('slot', '=', 'settle')
      .execute();
    await addTo(broken.kysely, 'accounts', { id: accountId }, { available: 1 });
    const problem = 'the job is succeeded, its ledger has reserve 1 and release 1';
    for (const options of [{}, { accountId }]) {
      t.deepEqual((await audit(options, broken)).problems, [{ accountId, jobId: job.id, problem }]);
    }
    await removeFrom(broken.kysely, 'ledger_entries', { job_id: job.id, slot: 'settle' });
    await addTo(broken.kysely, 'accounts', { id: accountId }, { available: -1 });
    for (const options of [{}, { accountId }]) {
      t.deepEqual(
        (await audit(options, broken)).problems.map(({ problem, jobId }) => [jobId, problem]),
        [
          [null, 'reserved is 0, its ledger says 1'],
          [job.id, 'the job is succeeded, its ledger has reserve 1 and no settlement'],
        ],
      );
    }
  });
});
