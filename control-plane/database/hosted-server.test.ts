import { ContractError } from '@matting/proto/contract/errors.ts';
import { createTestDatabase, SILENT_LOG } from '@matting/test-support/database.ts';
import { findMariadb, MariadbServer } from '@matting/test-support/mariadb-server.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava from 'ava';
import { sql } from 'kysely';
import { openDatabase } from './connect.ts';
import { type Database, query, transact } from './database.ts';
import { DatabaseProxy } from './test/database-proxy.ts';

const test = ava.serial.skipIf(findMariadb() === undefined);

const TEXT = 'é Ж 図 😀';

let server: MariadbServer;
let root: Database;

const urlOf = (user: string, name: string) =>
  `mysql://${user}@localhost/${name}?socket=${encodeURIComponent(server.socket)}`;
const asRoot = (statement: string) => sql.raw(statement).execute(root.kysely);

ava.serial.before(async () => {
  if (findMariadb() === undefined) return;
  const options = ['--skip-character-set-client-handshake', '--character-set-server=latin1'];
  server = await MariadbServer.create({ options });
  root = await openDatabase(urlOf('root', 'mysql'), { log: SILENT_LOG });
  await asRoot('create database hosted character set latin1');
  await asRoot('create user hosted@localhost');
  await asRoot('grant all on hosted.* to hosted@localhost');
});
ava.serial.after.always(async () => {
  await root?.close();
  await server?.kill();
});

async function openHosted(t: { teardown(end: () => Promise<void>): void }): Promise<Database> {
  const database = await openDatabase(urlOf('hosted', 'hosted'), { log: SILENT_LOG });
  t.teardown(() => database.close());
  return database;
}

const SPOILERS = [
  '',
  'set names latin1',
  'set names utf8mb3',
  'set names binary',
  'set character_set_results = null',
  'set character_set_results = koi8r, collation_connection = latin1_general_cs',
  "set names utf8mb4, sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES'",
];
for (const spoiler of SPOILERS) {
  test(`text comes back as it was sent, and is found › init_connect "${spoiler}"`, async t => {
    await asRoot(`set global init_connect = "${spoiler}"`);
    t.teardown(() => asRoot("set global init_connect = ''"));
    const database = await openHosted(t);
    await query(database, db => sql.raw('drop table if exists words').execute(db));
    const column = 'word varchar(99) character set utf8mb4 collate utf8mb4_bin';
    await query(database, db => sql.raw(`create table words (${column})`).execute(db));
    await query(database, db => sql`insert into words values (${TEXT})`.execute(db));
    const { rows } = await query(database, db =>
      sql<{ word: string; hex: string }>`select word, hex(word) as hex from words
        where word = ${TEXT}`.execute(db),
    );
    t.deepEqual(rows, [{ word: TEXT, hex: Buffer.from(TEXT).toString('hex').toUpperCase() }]);
  });
}

test('text comes back as it was sent, and is found › the start refuses a proxy that sets another character set', async t => {
  const proxy = new DatabaseProxy(urlOf('hosted', 'hosted'));
  await proxy.open();
  t.teardown(() => proxy.close());
  proxy.rewrite = data =>
    Buffer.from(
      data
        .toString('latin1')
        .replace('set names utf8mb4 collate utf8mb4_bin', 'set names  latin1 collate  latin1_bin'),
      'latin1',
    );
  await t.throwsAsync(openDatabase(proxy.url, { log: SILENT_LOG }), {
    message: /text changes on its way.*set names utf8mb4/,
  });
});

test('a session is the same whatever the server sets for all › rows, joins and commits are whole', async t => {
  const spoiler =
    "set sql_select_limit = 1, max_join_size = 1, completion_type = 'CHAIN', autocommit = 0, sql_mode = ''";
  await asRoot(`set global init_connect = "${spoiler}"`);
  t.teardown(() => asRoot("set global init_connect = ''"));
  const database = await openHosted(t);
  const run = (text: string) => query(database, db => sql.raw<{ n: number }>(text).execute(db));
  await run('create table if not exists numbers (n int)');
  await run('insert into numbers values (1), (2), (3)');
  const { rows } = await run('select a.n from numbers a join numbers b');
  t.is(rows.length, 9);
  await transact(database, tx => sql`insert into numbers values (4)`.execute(tx));
  await run('insert into numbers values (5)');
  const seen = await sql<{ n: number }>`select n from hosted.numbers`.execute(root.kysely);
  t.is(seen.rows.length, 5, 'a statement after a commit is committed');
});

test('a session is the same whatever the server sets for all › tables change, and constraints hold', async t => {
  const spoiler = `set alter_algorithm = INSTANT, max_statement_time = 0.3, unique_checks = 0,
    check_constraint_checks = 0, foreign_key_checks = 0, default_storage_engine = MyISAM`;
  await asRoot(`set global init_connect = "${spoiler}"`);
  t.teardown(() => asRoot("set global init_connect = ''"));
  const database = await openHosted(t);
  const run = (text: string) => query(database, db => sql.raw(text).execute(db));
  await run('create table positive (n int primary key, constraint above check (n > 0))');
  await run('alter table positive add index again (n)');
  await run('select sleep(0.6)');
  await t.throwsAsync(run('insert into positive values (-1)'), { message: /constraint.*above/i });
});

test('what is asked of a connection after its end says why it ended', async t => {
  const database = await openHosted(t);
  const pending = database.kysely.connection().execute(async db => {
    await t.throwsAsync(sql`kill query connection_id()`.execute(db), { message: /interrupted/ });
    await sql`select 1`.execute(db);
  });
  await t.throwsAsync(pending, { message: /interrupted/ });
});

/** By outcome: 'ok', or the code of a ContractError. */
async function answersOf(pending: readonly Promise<unknown>[]): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const one of await Promise.allSettled(pending)) {
    const { reason } = one as { reason?: unknown };
    const code = reason instanceof ContractError ? reason.code : String(reason);
    const name = one.status === 'fulfilled' ? 'ok' : code;
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
}

const LIMITS = ['max_user_connections 3', 'max_queries_per_hour 20', 'max_connections_per_hour 2'];
for (const limit of LIMITS) {
  test(`a user with a limit gets its work done, or a word to wait › ${limit}`, async t => {
    const database = await openHosted(t);
    t.teardown(() =>
      asRoot(
        `alter user hosted@localhost with ${LIMITS.map(one => one.replace(/\d+/, '0')).join(' ')}`,
      ),
    );
    await asRoot(`alter user hosted@localhost with ${limit}`);
    const pending = Array.from({ length: 24 }, () =>
      query(database, db => sql`select sleep(0.05)`.execute(db)),
    );
    const { ok = 0, SERVICE_UNAVAILABLE = 0, ...others } = await answersOf(pending);
    t.deepEqual(others, {});
    t.true(ok > 0);
    t.is(ok + SERVICE_UNAVAILABLE, 24);
  });
}

const REFUSALS: readonly [what: string, change: string, back: string][] = [
  [
    'a password that was changed',
    "alter user hosted@localhost identified by 'x'",
    "alter user hosted@localhost identified by ''",
  ],
  [
    'a locked account',
    'alter user hosted@localhost account lock',
    'alter user hosted@localhost account unlock',
  ],
  [
    'a right that was taken',
    'revoke all on hosted.* from hosted@localhost',
    'grant all on hosted.* to hosted@localhost',
  ],
];
for (const [what, change, back] of REFUSALS) {
  test(`what a server refuses for now is unavailable, not a fault of the service › ${what}`, async t => {
    const database = await openHosted(t);
    await query(database, db => sql.raw('create table if not exists numbers (n int)').execute(db));
    await asRoot(change);
    t.teardown(() => asRoot(back));
    await endSessions();
    const pending = query(database, db => sql`select sleep(1) from numbers`.execute(db));
    await rejectsWith(
      t,
      pending,
      error => error instanceof ContractError && error.code === 'SERVICE_UNAVAILABLE',
    );
  });
}

/** New sessions take the server's current settings. */
async function endSessions(): Promise<void> {
  const { rows } = await sql<{ id: number }>`select id from information_schema.processlist
    where user = 'hosted'`.execute(root.kysely);
  for (const { id } of rows) await asRoot(`kill ${id}`);
}

test('the start names a way to log in that it does not know, and what to use', async t => {
  await asRoot("install soname 'auth_ed25519'");
  t.teardown(() => asRoot("uninstall soname 'auth_ed25519'"));
  await asRoot("create user modern@localhost identified via ed25519 using password('x')");
  t.teardown(() => asRoot('drop user modern@localhost'));
  const opening = openDatabase(urlOf('modern', 'mysql'), { log: SILENT_LOG });
  const { message = '' } = (await t.throwsAsync(opening)) ?? {};
  t.regex(message, /client_ed25519.*mysql_native_password/);
  t.notRegex(message, /unknown plugin/);
});

test('the start warns of settings with which the service does not work for long', async t => {
  await asRoot('set global max_allowed_packet = 65536');
  t.teardown(() => asRoot('set global max_allowed_packet = 16777216'));
  const warnings: unknown[] = [];
  const warn = (details: unknown) => warnings.push(details);
  const database = await openDatabase(urlOf('hosted', 'hosted'), { log: { info: warn, warn } });
  await database.close();
  t.deepEqual(
    warnings.find(details => Object.hasOwn(details as object, 'max_allowed_packet')),
    { max_allowed_packet: '65536' },
  );
});

test('every table fits where the host made another format of rows the default', async t => {
  await asRoot('set global innodb_default_row_format = compact');
  t.teardown(() => asRoot('set global innodb_default_row_format = dynamic'));
  const fixture = await createTestDatabase('mysql', { server: urlOf('root', 'mysql') });
  await fixture.close();
  t.pass();
});
