/**
 * Migrations: run once, and again where they were cut off; other versions' schemas; and the rule that
 * lets old and new replicas run side by side on one database: a migration only adds. What an old
 * replica's statements read, write or search by stays, and what they insert is taken.
 *
 * And a rolling upgrade from the last release: its statements, as they were recorded, make the
 * tables and leave work in every state; this version migrates; a replica of the last release goes
 * on as if nothing had happened; and this version finishes what either left, with every credit in
 * its place.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import { sql } from 'kysely';
import {
  createTestDatabase,
  DIALECTS,
  onDatabases,
  SILENT_LOG,
  type TestDatabase,
  type TestDatabaseOptions,
} from '../../test/support/database.ts';
import { rejectsWith } from '../../test/support/throws.ts';
import { openCurrentDatabase } from '../database/connect.ts';
import { type Database, query } from '../database/database.ts';
import {
  type MigrationSeries,
  migrate,
  migratorOf,
  requireCurrentSchema,
  SchemaError,
  schemaState,
} from '../database/migrate.ts';
import { tapped } from '../database/test/tapped-database.ts';
import { examineDatabase } from '../operations/doctor/database-findings.ts';
import { PACKAGES } from '../packages.ts';
import { type Stores, storesOn } from '../test/every-store.ts';
import { isFinal } from './jobs/job.ts';
import type { NewJob } from './jobs/job-transactions.ts';
import { CORE_MIGRATIONS, OLDER_FOUND } from './migrations.ts';
import { migrationsOf } from './package.ts';
import { createStores } from './stores.ts';
import {
  NOTHING_RECORDED,
  type Recorded,
  readSnapshot,
  replay,
} from './test/database/last-release/snapshot.ts';
import { brokenFor, readSchemaShape } from './test/database/schema-shape.ts';
import {
  assertBalanced,
  BACKGROUND_URL,
  claimed,
  HOUR_MS,
  LIMITS,
  newJob,
  reread,
  resultOf,
  storedBackground,
  storedInput,
  submitted,
  WITH_PICTURE,
} from './test/fixtures.ts';

const test = ava.serial;

/** What Galera answers where another member's change of a table comes first. */
const CONFLICT = Object.assign(new Error('Deadlock found'), { errno: 1213 });

const CORE_DIRECTORY = path.resolve(import.meta.dirname, './migrations');
const PORTAL_DIRECTORY = path.resolve(import.meta.dirname, '../portal/migrations');

/** By the files, as operators are told of them. */
function namesIn(directory: string, before = ''): string[] {
  const files = readdirSync(directory).filter(name => /^\d/.test(name));
  return files.map(name => `${before}${path.basename(name, '.ts')}`).sort();
}

const CORE_NAMES = namesIn(CORE_DIRECTORY);
const PACKAGE_NAMES = ['fleet-size/0001-baseline', ...namesIn(PORTAL_DIRECTORY, 'portal/')];
const PORTAL_TABLES = ['orders', 'usage_days', 'users'];

/** Of the core alone. */
const ALONE = [CORE_MIGRATIONS];

const SERIES = migrationsOf(PACKAGES);
const options = { log: SILENT_LOG, packages: SERIES };

onDatabases(test, 'migrations', (test, dialect) => {
  async function on(
    options: TestDatabaseOptions,
    work: (fixture: TestDatabase, database: Database) => Promise<void>,
  ) {
    const fixture = await createTestDatabase(dialect, options);
    try {
      await work(fixture, await fixture.open());
    } finally {
      await fixture.close();
    }
  }
  type Work = Parameters<typeof on>[1];
  const onEmpty = (work: Work) => on({ migrated: false }, work);
  const onMigrated = (work: Work) => on({ series: SERIES }, work);

  test('run once, each of them, however many processes start at the same time', t =>
    onEmpty(async (fixture, database) => {
      await t.throwsAsync(requireCurrentSchema(database, SERIES), {
        message: /migrate/,
      });
      const replicas = await Promise.all([1, 2, 3].map(() => fixture.open()));
      const ran = await Promise.all(replicas.map(replica => migrate(replica, SERIES)));
      t.deepEqual(ran.flat().sort(), [...CORE_NAMES, ...PACKAGE_NAMES]);
      await requireCurrentSchema(database, SERIES);
      t.deepEqual(await migrate(database, SERIES), []);
    }));

  test('that were cut off half way run again from the start', t =>
    onMigrated(async (_, database) => {
      await database.kysely.schema.dropTable('jobs').execute();
      await database.kysely.schema.dropTable('nodes').execute();
      await database.kysely.schema.dropTable('orders').execute();
      for (const table of [
        'kysely_migration',
        'kysely_migration_portal',
        'kysely_migration_fleet-size',
      ]) {
        await sql`delete from ${sql.table(table)}`.execute(database.kysely);
      }
      t.deepEqual(await migrate(database, SERIES), [...CORE_NAMES, ...PACKAGE_NAMES]);
      const tables = await tableNames(database);
      for (const name of ['jobs', 'nodes', 'orders']) t.true(tables.includes(name), name);
    }));

  test('of a package come to a database that has the core alone', t =>
    onEmpty(async (_, database) => {
      t.deepEqual(await migrate(database, ALONE), CORE_NAMES);
      await requireCurrentSchema(database, ALONE);
      t.deepEqual(await tablesOfPortal(database), []);
      t.deepEqual((await schemaState(database, SERIES)).pending, PACKAGE_NAMES);
      await t.throwsAsync(requireCurrentSchema(database, SERIES), {
        message: /^the database lacks fleet-size\/0001-baseline, portal\/0001-baseline: /,
      });
      t.deepEqual(await migrate(database, SERIES), PACKAGE_NAMES);
      t.deepEqual(await tablesOfPortal(database), PORTAL_TABLES);
    }));

  test('of a package that is away are left alone, and the core serves', t =>
    onMigrated(async (fixture, database) => {
      await enter(database, '0999-later-no-way-back', 'kysely_migration_portal');
      const state = await schemaState(database, ALONE);
      t.deepEqual(state, { older: false, pending: [], unknown: [] });
      const warned: unknown[] = [];
      const log = { ...SILENT_LOG, warn: (fields: unknown) => warned.push(fields) };
      for (const migrations of ['run', 'require'] as const) {
        const alone = { log, packages: ALONE, migrations };
        const opened = await openCurrentDatabase(fixture.url, alone);
        const account = await createStores(opened).accounts.create(`alone-${migrations}`);
        t.truthy(account);
        await opened.close();
      }
      t.false(JSON.stringify(warned).includes('0999-later'));
      await t.throwsAsync(migrate(database, SERIES), {
        message: /newer version \(portal\/0999-later-no-way-back\), and there is no way back/,
      });
    }));

  test('of a package take over the tables that the core once made for it, with their rows', t =>
    onMigrated(async (_, database) => {
      const before = await readSchemaShape(database);
      const user = { id: 'u', mail: 'a@b.example', mail_key: 'a@b.example', created_at: 1 };
      await database.kysely.insertInto('users').values(user).execute();
      for (const name of ['portal', 'fleet-size']) {
        for (const table of [`kysely_migration_${name}`, `kysely_migration_${name}_lock`]) {
          await database.kysely.schema.dropTable(table).execute();
        }
      }
      t.deepEqual(await migrate(database, SERIES), PACKAGE_NAMES);
      const after = await readSchemaShape(database);
      t.deepEqual([...brokenFor(before, after), ...brokenFor(after, before)], []);
      const rows = await database.kysely.selectFrom('users').select('id').execute();
      t.deepEqual(rows, [{ id: 'u' }]);
    }));

  test('only add: nothing that an old replica uses goes or changes', t =>
    onEmpty(async (_, database) => {
      let before = await readSchemaShape(database);
      for (const series of SERIES) {
        for (const name of Object.keys(series.migrations(dialect))) {
          await migrateTo(database, series, name);
          const after = await readSchemaShape(database);
          t.deepEqual(brokenFor(before, after), [], `${series.package}/${name}`);
          before = after;
        }
      }
    }));

  test('go on where a statement loses to another member', t =>
    onEmpty(async (_, database) => {
      let seen = 0;
      const losing = tapped(database, () => {
        seen += 1;
        if (seen === 1 || seen === 20) throw CONFLICT;
      });
      await migrate(losing, SERIES);
      t.true(seen > 20, `${seen} statements`);
      await requireCurrentSchema(database, SERIES);
    }));

  const enter = (database: Database, name: string, table = 'kysely_migration') =>
    sql`insert into ${sql.table(table)} (name, timestamp)
      values (${name}, '2999-01-01T00:00:00.000Z')`.execute(database.kysely);

  test('of a newer version are left alone, and said: they only added', t =>
    onMigrated(async (fixture, database) => {
      await enter(database, '0999-later');
      t.deepEqual((await schemaState(database, SERIES)).unknown, ['0999-later']);
      t.deepEqual(await migrate(database, SERIES), []);
      await requireCurrentSchema(database, SERIES);
      for (const migrations of ['run', 'require'] as const) {
        const warned: unknown[] = [];
        const log = { ...SILENT_LOG, warn: (fields: unknown) => warned.push(fields) };
        await (await openCurrentDatabase(fixture.url, { ...options, log, migrations })).close();
        t.deepEqual(
          warned.filter(fields => JSON.stringify(fields).includes('0999-later')),
          [{ migrations: ['0999-later'] }],
        );
      }
    }));

  test('of a newer version that leave no way back are refused, and so are gaps', t =>
    onMigrated(async (fixture, database) => {
      const [first] = CORE_NAMES;
      await enter(database, '0999-later-no-way-back');
      await t.throwsAsync(migrate(database, SERIES), { instanceOf: SchemaError });
      await t.throwsAsync(requireCurrentSchema(database, SERIES), {
        message: /newer version .* no way back/,
      });
      for (const migrations of ['run', 'require'] as const) {
        await t.throwsAsync(openCurrentDatabase(fixture.url, { ...options, migrations }), {
          instanceOf: SchemaError,
        });
      }
      await sql`delete from kysely_migration where name like '0999%'`.execute(database.kysely);
      await sql`delete from kysely_migration where name = ${first}`.execute(database.kysely);
      await enter(database, '0999-later');
      await t.throwsAsync(migrate(database, SERIES), {
        message: /newer version .* that lacks 0001-baseline/,
      });
      await t.throwsAsync(requireCurrentSchema(database, SERIES), {
        instanceOf: SchemaError,
      });
    }));

  test('of 0.1.0 are refused by name, and nothing changes', t =>
    onEmpty(async (fixture, database) => {
      for (const statement of [
        'create table kysely_migration (name varchar(255), timestamp varchar(255))',
        `insert into kysely_migration values ('0001-initial', '2999'), ('0002-rate-quotas', '2999')`,
        'create table accounts (id varchar(36) primary key, name varchar(64))',
      ]) {
        await sql.raw(statement).execute(database.kysely);
      }
      const shape = await readSchemaShape(database);
      const bytes = () =>
        ['', '-wal'].map(end => dialect === 'sqlite' && readFileSync(fixture.url.slice(7) + end));
      const before = bytes();
      const refused = {
        name: 'SchemaError',
        message: /^the database was made by 0\.1\.0, [^\n]+$/,
      };
      for (const migrations of ['run', 'require'] as const) {
        await rejectsWith(t, openCurrentDatabase(fixture.url, { ...options, migrations }), refused);
      }
      const examined = await examineDatabase(fixture.url, SERIES);
      await examined.database?.close();
      t.false(examined.current);
      t.true(examined.findings.some(one => one.status === 'failure' && one.found === OLDER_FOUND));
      t.deepEqual(bytes(), before);
      t.deepEqual(await readSchemaShape(database), shape);
    }));
});

async function tableNames(database: Database): Promise<string[]> {
  const tables = await query(database, db => db.introspection.getTables());
  return tables.map(({ name }) => name);
}

async function tablesOfPortal(database: Database): Promise<string[]> {
  const found = await tableNames(database);
  return PORTAL_TABLES.filter(name => found.includes(name));
}

/** On Galera a change of tables that another test makes ends it, as it ends `migrate`'s own rounds. */
function migrateTo(database: Database, series: MigrationSeries, name: string): Promise<void> {
  return query(database, async db => {
    const { dialect } = database;
    const { error } = await migratorOf({ kysely: db, dialect }, series).migrateTo(name);
    if (error !== undefined) throw error;
  });
}

const old = {
  tables: new Set(['jobs']),
  columns: new Map([
    ['jobs.id', { type: 'text', optional: false }],
    ['jobs.note', { type: 'text', optional: true }],
  ]),
  indexes: new Map([['jobs: jobs_note', 'plain note']]),
  checks: new Map<string, string>(),
};
const more = {
  ...old,
  tables: new Set([...old.tables, 'more']),
  columns: new Map([
    ...old.columns,
    ['jobs.more', { type: 'text', optional: true }],
    ['more.id', { type: 'text', optional: false }],
  ]),
  indexes: new Map([...old.indexes, ['more: more_once', 'unique id']]),
};
const changes: [what: string, next: typeof old, said?: string][] = [
  ['what is only added', more],
  ['a table', { ...old, tables: new Set(), columns: old.columns }, 'jobs is gone'],
  ['a column', { ...old, columns: new Map([...old.columns].slice(0, 1)) }, 'jobs.note is gone'],
  [
    'a column that has to be given',
    { ...old, columns: new Map([...old.columns, ['jobs.x', { type: 'text', optional: false }]]) },
    'jobs.x must be given',
  ],
  ['an index', { ...old, indexes: new Map() }, 'the index jobs: jobs_note is gone'],
  [
    'an index that refuses',
    { ...old, indexes: new Map([...old.indexes, ['jobs: once', 'unique note']]) },
    'jobs: once refuses what was taken',
  ],
  [
    'a check that refuses',
    { ...old, checks: new Map([['jobs: jobs_note', 'note > 0']]) },
    'jobs: jobs_note refuses what was taken',
  ],
];
test('what old statements stumble over is said', t => {
  for (const [what, next, said] of changes) {
    t.deepEqual(brokenFor(old, next), said === undefined ? [] : [said], what);
  }
});

/** A statement of the last release that needs the tables it was recorded on would say so. */
const OPEN = ['accepted', 'fetching', 'ready', 'given', 'running', 'lost', 'freed'] as const;
/** Jobs of this version. */
const OWN: readonly Partial<NewJob>[] = [
  {},
  { finishing: { outputWidth: 100 } },
  { finishing: {}, outputFormat: 'zip' },
  { finishing: {}, channels: 'alpha' },
  { ...WITH_PICTURE, ...BACKGROUND_URL, sourceUrl: 'https://a.example/' },
];

for (const dialect of DIALECTS) {
  if (readSnapshot(dialect)) continue;
  test.skip(`a rolling upgrade on ${dialect}`, t => t.fail(NOTHING_RECORDED));
}

onDatabases(test, 'a rolling upgrade', (test, dialect) => {
  const snapshot = readSnapshot(dialect);
  if (snapshot === undefined) return;
  const { legacy } = snapshot;

  let fixture: TestDatabase;
  let database: Database;
  let stores: Stores;

  test.before(async () => {
    fixture = await createTestDatabase(dialect, { migrated: false });
    database = await fixture.open();
    stores = storesOn(database);
    await replay(database, snapshot.schema);
    await replay(database, snapshot.before);
  });
  test.after.always(() => fixture?.close());

  /** As this version's dispatcher would, from wherever it was left. */
  async function finish(jobId: string): Promise<void> {
    const claim = await claimed(stores, await reread(stores, jobId), { holder: 'new-replica' });
    const { state } = await reread(stores, jobId);
    if (state === 'fetching') {
      const backgroundUrl = (await reread(stores, jobId)).background?.url ?? undefined;
      const input = storedInput(`${jobId}-new`);
      assert.ok(await stores.jobs.inputStored(claim, input, { backgroundUrl }));
      if (backgroundUrl !== undefined) {
        assert.ok(await stores.jobs.backgroundStored(claim, storedBackground(jobId)));
      }
    }
    assert.ok(await stores.jobs.admitted(claim));
    assert.ok(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
  }

  test('migrates what the last release made', async t => {
    await migrate(database, SERIES);
    await requireCurrentSchema(database, SERIES);
    const balances = await stores.ledger.balances(legacy.accountId);
    t.is(balances?.available, legacy.available, 'no balance moved');
  });

  test('lets a replica of the last release go on, statement by statement', async t => {
    await t.notThrowsAsync(replay(database, snapshot.after));
  });

  test('knows its keys, its results and its requests again', async t => {
    const { accountId, apiKeyId, token, jobs } = legacy;
    t.deepEqual(await stores.apiKeys.authenticate(token), { apiKeyId, accountId });
    const found = await stores.jobs.findByResultToken(legacy.resultToken);
    t.is(found?.id, jobs.untold);
    const hash = legacy.idempotencyKeyHash;
    const known = await stores.jobs.findByIdempotencyKey(apiKeyId, hash);
    t.true(known !== undefined && Object.values(jobs).includes(known.id));
    const again = { ...newJob(accountId, { apiKeyId }), idempotencyKeyHash: hash };
    const { kind } = await stores.jobs.submit(again, LIMITS);
    t.is(kind, 'exists');
  });

  test('finishes what was left open, and work of its own', async t => {
    const left = openJobsOf(snapshot.after);
    t.is(left.length, OPEN.length);
    const seen = (await stores.jobs.listClaimable(1000)).map(({ id }) => id);
    for (const jobId of [...OPEN.map(name => legacy.jobs[name]), ...left]) {
      t.true(seen.includes(jobId), `the dispatcher sees ${jobId}`);
    }
    for (const jobId of [...OPEN.map(name => legacy.jobs[name]), ...left]) {
      t.true(!isFinal(await reread(stores, jobId)), jobId);
      await finish(jobId);
    }
    for (const asked of OWN) {
      const { id } = await submitted(stores, newJob(legacy.accountId, asked));
      await finish(id);
    }
    t.deepEqual(await stores.jobs.listLanes(), [], 'nothing is open');
    const credits = await stores.ledger.credits(legacy.accountId);
    const charged = OPEN.length + 3 + OWN.length;
    t.deepEqual([credits?.reserved, credits?.sums.charge], [0, charged]);
    await assertBalanced(stores);
  });

  test('delivers what was not', async t => {
    const pending = await stores.outbox.list({ status: 'pending', limit: 500 });
    const waiting = new Set(pending.map(({ jobId }) => jobId));
    for (const name of ['untold', 'expired', 'retried', ...OPEN] as const) {
      t.true(waiting.has(legacy.jobs[name]), name);
    }
    for (const { jobId, attempts } of pending) {
      // Each attempt had a claim of its own.
      const claim = { id: jobId, holder: 'new-replica', fence: attempts + 1 };
      t.truthy(await stores.outbox.claim(claim, HOUR_MS), jobId);
      const end = { statusCode: 204, durationMs: 5 };
      t.truthy(await stores.outbox.delivered(claim, end));
    }
    t.deepEqual(await stores.outbox.list({ status: 'pending', limit: 1 }), []);
  });

  test('removes what has expired, whichever release made it', async t => {
    await stores.jobs.takeExpiredResultBlobs(100);
    for (let removed = 1; removed > 0; ) {
      removed = (await stores.jobs.removeFinalOlderThan(-HOUR_MS, 100)).rows;
    }
    t.is((await stores.jobs.find(legacy.jobs.refused))?.id, undefined);
    await assertBalanced(stores);
  });
});

/** The ids that the recorded life left open: those it inserted and never ended. */
function openJobsOf(steps: readonly Recorded[]): string[] {
  const inserted = steps.filter(({ sql }) => /^insert into .jobs./.test(sql));
  const ended = steps.filter(({ sql }) => /^update .jobs. set .*finished_at/.test(sql));
  const ids = inserted.map(({ parameters }) => String(parameters[0]));
  return ids.filter(id => !ended.some(({ parameters }) => parameters.includes(id)));
}
