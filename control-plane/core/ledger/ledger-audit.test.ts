/** The audit of a ledger of several days: what it reads twice, what an interruption costs, what it finds of each way to break one, and that entries which become visible late are not missed. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Database } from '@matting/database/database.ts';
import { databaseErrorKind } from '@matting/database/engines.ts';
import { addTo, removeFrom, setIn } from '@matting/database/test/rows.ts';
import { INTERRUPTED, tapped } from '@matting/database/test/tapped-database.ts';
import { at } from '@matting/test-support/at.ts';
import { useTestDatabase } from '@matting/test-support/database.ts';
import ava from 'ava';
import type { Stores } from '../stores.ts';
import {
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  LIMITS,
  newJob,
  onStores,
  resultOf,
  running,
  runningOf,
  storesOn,
} from '../test/fixtures.ts';
import {
  DAY_MS,
  DAYS,
  ENTRIES,
  entry,
  FIRST_DAY_MS,
  GRANTED,
  JOBS_A_DAY,
  oldAccount,
  TUNING,
} from '../test/old-account.ts';
import {
  type AuditOptions,
  auditLedger,
  beginFullRun,
  type LedgerAudit,
  saveFullRun,
} from './ledger-audit.ts';

const test = ava.serial;

onStores(test, "the ledger's audit", (test, { dialect, databases, database, stores }) => {
  const audit = (options: AuditOptions = {}, on = database): Promise<LedgerAudit> =>
    auditLedger(on, options, TUNING);
  const checkpointOf = (accountId: string) =>
    database.kysely
      .selectFrom('ledger_checkpoints')
      .selectAll()
      .where('account_id', '=', accountId)
      .executeTakeFirst();
  /** Whether it was committed; where members lock for themselves, one at another may have won. */
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
  const problemsOf = ({ problems }: LedgerAudit) => problems.map(({ problem }) => problem);

  test('closes what is done, and reads what is behind that no second time', async t => {
    const accountId = await oldAccount(database);
    const first = await audit({ accountId });
    t.deepEqual(first.problems, []);
    t.is(first.entries, ENTRIES);
    const closed = await checkpointOf(accountId);
    assert.ok(closed);
    t.is(closed.closed_to, FIRST_DAY_MS + DAYS * DAY_MS);
    const { granted, reserved, charged, released, revoked } = closed;
    t.deepEqual(
      [closed.entries, granted, reserved, charged, released, revoked],
      [ENTRIES, GRANTED, DAYS * JOBS_A_DAY, DAYS * JOBS_A_DAY, 0, 0],
    );
    const second = await audit({ accountId });
    t.deepEqual([second.entries, second.problems], [0, []]);
    t.deepEqual(await checkpointOf(accountId), closed);
    const full = await audit({ accountId, kind: 'full' });
    t.deepEqual([full.entries, full.problems], [ENTRIES, []]);
    t.deepEqual(await checkpointOf(accountId), closed);
  });

  test('sums an account by its last checkpoint', async t => {
    const accountId = await oldAccount(database);
    await audit({ accountId });
    t.is((await stores.ledger.grant(accountId, 5, 'more')).kind, 'entered');
    // Whatever is behind a checkpoint is not read: not even that it is gone.
    await database.kysely
      .deleteFrom('ledger_entries')
      .where('account_id', '=', accountId)
      .where('created_at', '<', FIRST_DAY_MS + DAY_MS)
      .execute();
    const credits = await stores.ledger.credits(accountId);
    t.deepEqual(credits, {
      available: GRANTED - DAYS * JOBS_A_DAY + 5,
      reserved: 0,
      sums: {
        grant: GRANTED + 5,
        reserve: DAYS * JOBS_A_DAY,
        charge: DAYS * JOBS_A_DAY,
        release: 0,
        revoke: 0,
      },
    });
    await database.kysely.deleteFrom('accounts').where('id', '=', accountId).execute();
    await removeFrom(database.kysely, 'ledger_entries', { account_id: accountId });
  });

  test('waits for a transaction that may still write behind a checkpoint', async t => {
    const accountId = await oldAccount(database);
    const other = await databases.open();
    const locked = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    const late = other.kysely.transaction().execute(async tx => {
      await tx
        .updateTable('accounts')
        .set(eb => ({ available: eb('available', '+', 7) }))
        .where('id', '=', accountId)
        .execute();
      const row = { ...entry(accountId, 'grant', FIRST_DAY_MS + 5, null), reference: 'late' };
      await tx
        .insertInto('ledger_entries')
        .values({ ...row, amount: 7 })
        .execute();
      locked.resolve();
      await release.promise;
    });
    await locked.promise;
    const audited = audit({ accountId });
    // An audit that does not wait is over by then, and has closed the first day too early.
    await Promise.race([audited, delay(200)]);
    release.resolve();
    const entered = await endOf(late);
    t.deepEqual((await audited).problems, []);
    t.deepEqual((await audit({ accountId })).problems, []);
    t.deepEqual((await audit({ accountId, kind: 'full' })).problems, []);
    const granted = entered ? GRANTED + 7 : GRANTED;
    t.is((await checkpointOf(accountId))?.granted, granted);
  });

  test('may wait so: each writer of an entry takes the account first, and the time then', async t => {
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
      stores.jobs.submit(newJob(accountId), LIMITS),
      stores.jobs.succeed(won.claim, resultOf(won.claim), HOUR_MS, {}),
      stores.jobs.fail(lost.claim, IMAGE_FAULT),
    ]);
    // Who does not wait for the row has taken the time by then.
    await Promise.race([writers, delay(200)]);
    release.resolve();
    const held = await endOf(holder);
    await writers;
    // On a cluster who did not wait for the row has made the holder fail.
    if (!held) return t.is(database.engine.members, 'several');
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

  test('names a checkpoint that an entry came behind, and renews it when told to', async t => {
    const accountId = await oldAccount(database);
    await audit({ accountId });
    // As after the database's clock was set back.
    const row = { ...entry(accountId, 'grant', FIRST_DAY_MS + DAY_MS, null), reference: 'back' };
    await database.kysely.insertInto('ledger_entries').values(row).execute();
    await addTo(database.kysely, 'accounts', { id: accountId }, { available: GRANTED });
    const found = await audit({ accountId });
    t.regex(
      at(problemsOf(found), 0),
      /^the checkpoint to 2026-01-05T.* says .*grant 100,.*; there/,
    );
    t.true(found.problems.every(({ problem }) => problem.startsWith('the checkpoint')));
    t.deepEqual((await audit({ accountId })).problems, found.problems, 'found again');
    t.deepEqual((await stores.ledger.credits(accountId))?.sums.grant, 2 * GRANTED);
    const renewed = await audit({ accountId, kind: 'full', renewCheckpoints: true });
    t.regex(at(problemsOf(renewed), 0), /^the checkpoint/);
    t.deepEqual((await audit({ accountId, kind: 'full' })).problems, []);
    t.deepEqual((await audit({ accountId })).entries, 0);
  });

  test('names what is wrong each time until it is mended, and closes nothing behind it', async t => {
    const accountId = await oldAccount(database);
    const [one, other] = [randomUUID(), randomUUID()];
    const atMs = FIRST_DAY_MS + DAY_MS + HOUR_MS;
    // Every sum is right: what one job lacks the other has.
    await database.kysely
      .insertInto('ledger_entries')
      .values([entry(accountId, 'reserve', atMs, one), entry(accountId, 'charge', atMs, other)])
      .execute();
    await addTo(database.kysely, 'accounts', { id: accountId }, { available: -1 });
    for (const kind of ['incremental', 'incremental', 'full'] as const) {
      const found = await audit({ accountId, kind });
      t.deepEqual(
        found.problems.map(({ jobId, problem }) => [jobId, problem]).sort(),
        [
          [one, "the job's row is gone and its reserve has no partner"],
          [other, "the job's row is gone and its charge has no partner"],
        ].sort(),
      );
    }
    const closed = await checkpointOf(accountId);
    assert.ok(closed !== undefined && closed.closed_to <= atMs);
    await database.kysely
      .insertInto('ledger_entries')
      .values([entry(accountId, 'charge', atMs, one), entry(accountId, 'reserve', atMs, other)])
      .execute();
    await addTo(database.kysely, 'accounts', { id: accountId }, { available: -1 });
    t.deepEqual((await audit({ accountId })).problems, []);
    const moved = await checkpointOf(accountId);
    t.true(moved !== undefined && moved.closed_to > closed.closed_to);
  });

  const own = useTestDatabase(test, dialect);

  /** Runs and is killed before its n-th statement; undefined: it had fewer. */
  async function killedBefore(
    n: number,
    kind: 'incremental' | 'full',
    target: Database,
  ): Promise<'killed' | LedgerAudit> {
    let statements = 0;
    const dying = tapped(target, () => {
      statements += 1;
      if (statements >= n) throw INTERRUPTED;
    });
    try {
      return await audit({ kind }, dying);
    } catch (error) {
      assert.equal(error, INTERRUPTED);
      return 'killed';
    }
  }

  for (const kind of ['incremental', 'full'] as const) {
    test(`that is interrupted before any of its statements › the ${kind} one goes on, and says the same`, async t => {
      const target = await own.open();
      const accountId = await oldAccount(target);
      const spoiled = await oldAccount(target);
      await setIn(target.kysely, 'accounts', { id: spoiled }, { available: 1 });
      let read = 0;
      let kills = 0;
      // What is between two of them is the same everywhere; a server takes long over each.
      const step = dialect === 'sqlite' ? 1 : 3;
      for (;;) {
        const ended = await killedBefore(7 + step * kills, kind, target);
        if (ended !== 'killed') {
          t.deepEqual(
            ended.problems.filter(({ accountId: id }) => [accountId, spoiled].includes(id)),
            [
              {
                accountId: spoiled,
                jobId: null,
                problem: `available is 1, its ledger says ${GRANTED - DAYS * JOBS_A_DAY}`,
              },
            ],
          );
          read = ended.entries;
          break;
        }
        kills += 1;
      }
      t.true(kills > 5, `${kills} kills`);
      if (kind === 'full') t.true(read >= 2 * ENTRIES, `${read} entries in all`);
      await setIn(
        target.kysely,
        'accounts',
        { id: spoiled },
        { available: GRANTED - DAYS * JOBS_A_DAY },
      );
      t.deepEqual((await audit({ kind }, target)).problems, []);
    });
  }

  test('that is interrupted before any of its statements › a full one reads nothing twice that it saved', async t => {
    const target = await own.open();
    await target.kysely.deleteFrom('ledger_audits').execute();
    const whole = await audit({ kind: 'full' }, target);
    // Killed at its last statements, it has them alone left.
    let statements = 0;
    const counted = tapped(target, () => {
      statements += 1;
    });
    await audit({ kind: 'full' }, counted);
    t.is(await killedBefore(statements - 1, 'full', target), 'killed');
    let rest = 0;
    const resumed = tapped(target, () => {
      rest += 1;
    });
    const ended = await audit({ kind: 'full' }, resumed);
    t.true(rest < 10, `${rest} of ${statements} statements were made again`);
    t.deepEqual(
      [ended.entries, ended.accounts, ended.problems],
      [whole.entries, whole.accounts, []],
    );
  });

  test('of two full ones at once the second says so, and a dead one is taken over', async t => {
    const start = {
      ...({ startedAtMs: 1, phase: 'jobs', after: '' } as const),
      ...{ accounts: 1, entries: 2, jobs: 3, problems: [], problemCount: 0 },
    };
    const first = await beginFullRun(database, start, 0);
    const rows = database.kysely.updateTable('ledger_audits').where('kind', '=', 'full');
    // Nobody is slow enough to be taken for dead.
    await rows.set({ saved_at: Number.MAX_SAFE_INTEGER }).execute();
    await t.throwsAsync(auditLedger(database, { kind: 'full' }, { ...TUNING, takeOverMs: 50 }), {
      message: /full check/,
    });
    await saveFullRun(database, first.id, { ...start, accounts: 7 });
    await rows.set({ saved_at: 1 }).execute();
    const second = await beginFullRun(database, start, 1000);
    t.is(second.progress.accounts, 7);
    await t.throwsAsync(saveFullRun(database, first.id, start), {
      message: /another one has taken its place/,
    });
    await rows.set({ saved_at: 1 }).execute();
    const last = await audit({ kind: 'full' });
    t.is(last.accounts, 7);
    t.deepEqual(
      (await stores.ledger.lastAudits()).map(({ kind, problems }) => [kind, problems]),
      [['full', 0]],
    );
  });

  type Breaking = (broken: Database, accountId: string, stores: Stores) => Promise<unknown>;

  interface Verdicts {
    readonly incremental: string;
    readonly full: string;
  }

  async function verdictsAfter(breakIt: Breaking): Promise<Verdicts> {
    const broken = await own.open();
    const accountId = await oldAccount(broken);
    const ownStores = storesOn(broken);
    assert.deepEqual(problemsOf(await audit({}, broken)), []);
    await breakIt(broken, accountId, ownStores);
    const verdict = async (kind: 'incremental' | 'full') => {
      const { problems } = await audit({ kind }, broken);
      return problems.map(({ problem }) => problem).join('\n');
    };
    const verdicts = { incremental: await verdict('incremental'), full: await verdict('full') };
    for (const table of ['ledger_checkpoints', 'ledger_entries', 'jobs'] as const) {
      await broken.kysely.deleteFrom(table).where('account_id', '=', accountId).execute();
    }
    await broken.kysely.deleteFrom('accounts').where('id', '=', accountId).execute();
    await broken.kysely.deleteFrom('ledger_audits').execute();
    return verdicts;
  }

  const entries = (broken: Database, accountId: string) =>
    broken.kysely.updateTable('ledger_entries').where('account_id', '=', accountId);

  test('of a broken ledger › a balance is found by both', async t => {
    const found = await verdictsAfter((broken, accountId) =>
      addTo(broken.kysely, 'accounts', { id: accountId }, { available: 1 }),
    );
    const balance = 'available is 77, its ledger says 76';
    t.deepEqual(found, { incremental: balance, full: balance });
  });

  test('of a broken ledger › a checkpoint is found by both while the balance is right', async t => {
    const found = await verdictsAfter((broken, accountId) =>
      addTo(
        broken.kysely,
        'ledger_checkpoints',
        { account_id: accountId, closed_to: FIRST_DAY_MS + DAYS * DAY_MS },
        { granted: 1 },
      ),
    );
    const checkpoint = /^the checkpoint to 2026-01-05T00:00:00.000Z says .*grant 101,/;
    for (const verdict of Object.values(found)) t.regex(verdict, checkpoint);
  });

  test('of a broken ledger › a checkpoint that hides a wrong balance is found by the full one', async t => {
    const found = await verdictsAfter(async (broken, accountId) => {
      await addTo(broken.kysely, 'accounts', { id: accountId }, { available: 1 });
      await addTo(
        broken.kysely,
        'ledger_checkpoints',
        { account_id: accountId, closed_to: FIRST_DAY_MS + DAYS * DAY_MS },
        { granted: 1 },
      );
    });
    t.is(found.incremental, '');
    t.regex(found.full, /the checkpoint to/);
    t.regex(found.full, /available is 77, its ledger says 76/);
  });

  test('of a broken ledger › a checkpoint in the future is found by both', async t => {
    const found = await verdictsAfter((broken, accountId) =>
      setIn(
        broken.kysely,
        'ledger_checkpoints',
        { account_id: accountId, closed_to: FIRST_DAY_MS + DAYS * DAY_MS },
        { closed_to: Number.MAX_SAFE_INTEGER },
      ),
    );
    for (const verdict of Object.values(found)) t.regex(verdict, /is in the future$/);
  });

  test('of a broken ledger › an old entry that is gone, more or other is found by the full one', async t => {
    const old = FIRST_DAY_MS + DAY_MS;
    const gone = await verdictsAfter((broken, accountId) =>
      removeFrom(broken.kysely, 'ledger_entries', {
        account_id: accountId,
        kind: 'charge',
        created_at: old + 9,
      }),
    );
    t.is(gone.incremental, '');
    t.regex(gone.full, /the checkpoint to 2026-01-05T00:00:00/);
    t.regex(gone.full, /its reserve has no partner/);
    t.regex(gone.full, /reserved is 0, its ledger says 1/);
    const more = await verdictsAfter((broken, accountId) =>
      broken.kysely
        .insertInto('ledger_entries')
        .values({ ...entry(accountId, 'grant', old, null), reference: 'slipped in' })
        .execute(),
    );
    t.is(more.incremental, '');
    t.regex(more.full, /available is 76, its ledger says 176/);
    const other = await verdictsAfter((broken, accountId) =>
      entries(broken, accountId)
        .set({ kind: 'release' })
        .where('kind', '=', 'charge')
        .where('created_at', '=', old + 9)
        .execute(),
    );
    t.regex(other.full, /the checkpoint to/);
    t.regex(other.full, /available is 76, its ledger says 77/);
  });

  test('of a broken ledger › a job of which the ledger has nothing is found by both', async t => {
    const found = await verdictsAfter(async (broken, accountId, ownStores) => {
      const { job, claim } = await running(ownStores, newJob(accountId));
      await ownStores.jobs.succeed(claim, resultOf(claim), 0, {});
      await broken.kysely.deleteFrom('ledger_entries').where('job_id', '=', job.id).execute();
      await addTo(broken.kysely, 'accounts', { id: accountId }, { available: 1 });
    });
    const free = 'the job is succeeded, its ledger has no reserve and no settlement';
    t.deepEqual(found, { incremental: free, full: free });
  });

  test('of a broken ledger › a job that ended without an entry is named by both, although it was read before', async t => {
    const broken = await own.open();
    const ownStores = storesOn(broken);
    const { account: accountId, job, claim } = await runningOf(ownStores, 2);
    const past = { created_at: FIRST_DAY_MS };
    await entries(broken, accountId).set(past).execute();
    t.deepEqual(problemsOf(await audit({}, broken)), []);
    await ownStores.jobs.succeed(claim, resultOf(claim), 0, {});
    await removeFrom(broken.kysely, 'ledger_entries', { job_id: job.id, slot: 'settle' });
    for (const kind of ['incremental', 'full'] as const) {
      const { problems } = await audit({ kind }, broken);
      t.deepEqual(
        problems.map(({ problem, jobId }) => [jobId, problem]).sort(),
        [
          [job.id, 'the job is succeeded, its ledger has reserve 1 and no settlement'],
          [null, 'reserved is 0, its ledger says 1'],
        ].sort(),
      );
    }
  });
});
