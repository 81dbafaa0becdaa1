import assert from 'node:assert/strict';
import fs, {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as delay } from 'node:timers/promises';
import { at } from '@matting/test-support/at.ts';
import { TestAuthority } from '@matting/test-support/certificates.ts';
import {
  onDatabases,
  SILENT_LOG,
  skipReason,
  useTestDatabase,
} from '@matting/test-support/database.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith, throwsWith } from '@matting/test-support/throws.ts';
import ava from 'ava';
import { sql } from 'kysely';
import { DatabaseOpenError, databaseCertificates, openDatabase, parseMysqlUrl } from './connect.ts';
import { type Database, query, transact } from './database.ts';
import { databaseErrorKind } from './engines.ts';
import { rowOf } from './test/rows.ts';

const test = ava.serial;
const onServer = test.skipIf(skipReason('mysql') !== false);

const wrong: [url: string, message: RegExp][] = [
  ['', /must look like/],
  ['postgres://u:s3cret@h/db', /must look like/],
  ['mysql://u:s3cret@h', /names no database/],
  ['mysql://u:s3cret@h/', /names no database/],
  ['mysql://u:s3cret@h/a/b', /names no database/],
  ['mysql://u:s3cret%@h/db', /%25/],
  ['mysql://u:s3cret@h/db?ssl=true', /unknown parameter/],
  ['mysql://u:s3cret@h/db?ssl-mode=on', /VERIFY_IDENTITY/],
  ['mysql://u:s3cret@h/db?ssl-mode=verify_ca&ssl-ca=/nowhere', /ssl-ca/],
  ['mysql://u:s3cret@h/db?connection-limit=0', /1 to 1000/],
  ['mysql://u:s3cret@h/db?connection-limit=1e3', /1 to 1000/],
];
for (const [url, message] of wrong) {
  test(`the URL of a MySQL server › ${url || 'empty'} is refused without showing the password`, t => {
    throwsWith(
      t,
      () => parseMysqlUrl(url),
      (error: Error) => message.test(error.message) && !error.message.includes('s3cret'),
    );
  });
}

test('the URL of a MySQL server › says when the certificates of its files end', async t => {
  const folder = await temporaryFolder(t);
  const dayMs = 86_400_000;
  const authority = new TestAuthority('database', 30 * dayMs);
  const own = authority.issue('service', undefined, 10 * dayMs);
  const files = { ca: authority.cert, cert: own.cert, key: own.key };
  for (const [name, text] of Object.entries(files)) writeFileSync(path.join(folder, name), text);
  const named = Object.keys(files).map(name => `ssl-${name}=${path.join(folder, name)}`);
  const url = (mode: string) => `mysql://u:p@h/db?ssl-mode=${mode}&${named.join('&')}`;
  const ends = databaseCertificates(url('VERIFY_CA')).map(({ file, endMs }) => {
    return [file, Math.round((endMs - Date.now()) / dayMs)];
  });
  t.deepEqual(ends, [
    ['MATTING_DATABASE_URL ssl-ca', 30],
    ['MATTING_DATABASE_URL ssl-cert', 10],
  ]);
  t.deepEqual(databaseCertificates(url('DISABLED')), []);
  t.deepEqual(databaseCertificates('sqlite:/data/matting.sqlite'), []);
});

test('the URL of a MySQL server › is taken apart', t => {
  const options = parseMysqlUrl('mysql://us%40er:p%3Aw@[::1]:3307/m%5Fx?connection-limit=3');
  const { host, port, user, password, database, connectionLimit, ssl } = options;
  t.deepEqual(
    { host, port, user, password, database, connectionLimit, ssl },
    {
      host: '::1',
      port: 3307,
      user: 'us@er',
      password: 'p:w',
      database: 'm_x',
      connectionLimit: 3,
      ssl: undefined,
    },
  );
  t.is(parseMysqlUrl('mysql://u@h/d?socket=/run/s').socketPath, '/run/s');
  const modes = ['REQUIRED', 'verify_ca', 'VERIFY_IDENTITY'].map(mode => {
    const { ssl: given } = parseMysqlUrl(`mysql://u@h/d?ssl-mode=${mode}`);
    assert.ok(typeof given === 'object');
    return [given.rejectUnauthorized, given.verifyIdentity];
  });
  t.deepEqual(modes, [
    [false, false],
    [true, false],
    [true, true],
  ]);
});

let directory: string;
test.before(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'matting-connect-'));
});
test.after.always(() => rmSync(directory, { recursive: true, force: true }));

test('a database that cannot be opened › says so in one line: no file, a directory, another kind of file', async t => {
  const text = path.join(directory, 'text');
  writeFileSync(text, 'this is no database, and it is longer than a hundred bytes '.repeat(3));
  mkdirSync(path.join(directory, 'folder'));
  const wrong = ['', ':memory:', path.join(directory, 'folder'), text, path.join(text, 'below')];
  for (const file of wrong) {
    await rejectsWith(
      t,
      openDatabase(`sqlite:${file}`, { log: SILENT_LOG }),
      (error: Error) => error instanceof DatabaseOpenError && !error.message.includes('\n'),
      file,
    );
  }
});

test('a database that cannot be opened › on a file system without modes says so', async t => {
  const file = path.join(directory, 'open-to-others');
  writeFileSync(file, '');
  chmodSync(file, 0o666);
  const { chmodSync: change } = fs;
  fs.chmodSync = () => {
    throw Object.assign(new Error('EPERM: chmod'), { code: 'EPERM', syscall: 'chmod' });
  };
  syncBuiltinESMExports();
  t.teardown(() => {
    fs.chmodSync = change;
    syncBuiltinESMExports();
  });
  const opening = openDatabase(`sqlite:${file}`, { log: SILENT_LOG, create: true });
  await t.throwsAsync(opening, { message: /EPERM.*local file system/ });
});

test('a database that cannot be opened › says which file systems cannot hold it', async t => {
  const { prototype } = DatabaseSync;
  const { exec } = prototype;
  prototype.exec = () => {
    const error = new Error('disk I/O error');
    throw Object.assign(error, { code: 'ERR_SQLITE_ERROR', errcode: 5386 });
  };
  t.teardown(() => {
    prototype.exec = exec;
  });
  const opening = openDatabase(`sqlite:${path.join(directory, 'nfs')}`, {
    log: SILENT_LOG,
    create: true,
  });
  await t.throwsAsync(opening, { message: /disk I\/O error\. .*NFS/ });
});

test('a database that cannot be opened › says so in one line: no server, and nothing keeps running', async t => {
  await rejectsWith(
    t,
    openDatabase('mysql://u:s3cret@127.0.0.1:1/db', { log: SILENT_LOG }),
    (error: Error) =>
      error instanceof DatabaseOpenError &&
      /ECONNREFUSED/.test(error.message) &&
      !error.message.includes('s3cret'),
  );
});

onDatabases(test, 'transactions', (test, dialect) => {
  const databases = useTestDatabase(test, dialect);
  let handles: [Database, Database, Database];

  test.before(async () => {
    handles = await Promise.all([databases.open(), databases.open(), databases.open()]);
    await handles[0].kysely
      .insertInto('accounts')
      .values({ id: 'a', name: 'a', available: 0, reserved: 0, created_at: 0 })
      .execute();
  });

  test('that read before they write see no stale snapshot, and none is lost', async t => {
    const add = (database: Database) =>
      transact(database, async tx => {
        await tx.selectFrom('accounts').selectAll().execute();
        await delay(1);
        await tx
          .updateTable('accounts')
          .set(eb => ({ available: eb('available', '+', 1) }))
          .where('id', '=', 'a')
          .execute();
      });
    const rounds = Array.from({ length: 30 }, (_, index) => add(at(handles, index % 3)));
    await Promise.all(rounds);
    const row = await rowOf(handles[0].kysely, 'accounts', {});
    t.is(row.available, 30);
  });

  test('keep the event loop free while they wait for another replica', async t => {
    const [holder, waiter] = handles;
    let turns = 0;
    const clock = setInterval(() => turns++, 5);
    try {
      let waiting: Promise<unknown> | undefined;
      await transact(holder, async tx => {
        await tx.updateTable('accounts').set({ available: 1 }).execute();
        waiting = transact(waiter, db =>
          db
            .updateTable('accounts')
            .set(eb => ({ available: eb('available', '+', 1) }))
            .execute(),
        );
        // SQLite's own wait would block the event loop.
        const lateAtMs = performance.now() + 2500;
        while (turns < 5) await delay(5);
        t.true(performance.now() < lateAtMs, 'the loop stood still');
      });
      await waiting;
    } finally {
      clearInterval(clock);
    }
    const row = await rowOf(holder.kysely, 'accounts', {});
    t.is(row.available, 2);
  });

  test('know a duplicate from other violations', async t => {
    const account = { name: 'b', available: 0, reserved: 0, created_at: 0 };
    const insert = (values: { id: string; name: string; available: number; reserved: number }) =>
      handles[0].kysely
        .insertInto('accounts')
        .values({ ...values, created_at: 0 })
        .execute();
    const kindOf = async (work: Promise<unknown>) =>
      work.then(
        () => 'accepted',
        error => databaseErrorKind(error),
      );
    t.is(await kindOf(insert({ ...account, id: 'b' })), 'accepted');
    t.is(await kindOf(insert({ ...account, id: 'b', name: 'c' })), 'duplicate');
    t.is(await kindOf(insert({ ...account, id: 'c' })), 'duplicate');
    t.is(await kindOf(insert({ ...account, id: 'c', name: 'B' })), 'accepted');
    t.is(await kindOf(insert({ ...account, id: 'd', name: 'd', available: -1 })), 'other');
  });
});

const databases = useTestDatabase(test, 'sqlite');

test('the file of SQLite › is in WAL mode, and a commit is on the disk before it is answered', async t => {
  const { kysely } = await databases.open();
  const pragma = async (name: string) =>
    Object.values(at((await sql.raw<object>(`pragma ${name}`).execute(kysely)).rows, 0))[0];
  t.is(await pragma('journal_mode'), 'wal');
  t.is(await pragma('synchronous'), 2);
});

test('the file of SQLite › refuses values of another type', async t => {
  const { kysely } = await databases.open();
  const values = { id: 'x', name: 'x', available: 'many' as never, reserved: 0, created_at: 0 };
  await t.throwsAsync(kysely.insertInto('accounts').values(values).execute());
});

{
  const databases = useTestDatabase(test, 'mysql');

  onServer(
    'the session on a server › reads committed rows, is strict, and has no summer time',
    async t => {
      const { kysely } = await databases.open();
      const { rows } = await sql<{ Variable_name: string; Value: string }>`show session variables
      where variable_name in ('tx_isolation', 'transaction_isolation', 'time_zone', 'sql_mode',
        'character_set_connection')`.execute(kysely);
      const session = new Map(rows.map(row => [row.Variable_name, row.Value]));
      t.is(session.get('transaction_isolation') ?? session.get('tx_isolation'), 'READ-COMMITTED');
      t.is(session.get('time_zone'), '+00:00');
      t.is(session.get('character_set_connection'), 'utf8mb4');
      t.regex(session.get('sql_mode') ?? '', /STRICT_ALL_TABLES/);
    },
  );

  onServer(
    'the session on a server › keeps identifiers apart that default collations merge',
    async t => {
      const select = sql<{ Collation: string | null }>`select collation_name as Collation
      from information_schema.columns where table_schema = database()
        and table_name not like 'kysely%' and collation_name is not null`;
      const { rows } = await query(await databases.open(), db => select.execute(db));
      const collations = new Set(rows.map(row => row.Collation));
      t.deepEqual([...collations].sort(), ['ascii_bin', 'utf8mb4_bin']);
    },
  );

  onServer('the session on a server › warns of a server that may lose commits', async t => {
    const warnings: string[] = [];
    const log = {
      ...SILENT_LOG,
      warn: (...args: unknown[]) => warnings.push(JSON.stringify(args)),
    };
    const database = await databases.open();
    const read = sql<{ n: number }>`select @@innodb_flush_log_at_trx_commit as n`;
    const { rows } = await read.execute(database.kysely);
    const unsafe = Number(at(rows, 0).n) !== 1;
    await databases.open(log as never);
    t.is(
      warnings.some(line => line.includes('innodb_flush_log_at_trx_commit')),
      unsafe,
    );
  });
}

test('a SQLite database › and its two files beside it are closed to other users, also old ones', async t => {
  const folder = mkdtempSync(path.join(tmpdir(), 'matting-test-rights-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  chmodSync(folder, 0o755);
  const file = path.join(folder, 'matting.sqlite');
  const modes = () =>
    readdirSync(folder).map(name => [name, statSync(path.join(folder, name)).mode & 0o777]);
  const openAndWrite = async () => {
    const database = await openDatabase(`sqlite:${file}`, { log: SILENT_LOG, create: true });
    await query(database, kysely => sql`CREATE TABLE IF NOT EXISTS a (b int)`.execute(kysely));
    const found = modes();
    await database.close();
    return found;
  };
  const before = process.umask(0o022);
  t.teardown(() => process.umask(before));
  const made = await openAndWrite();
  t.true(made.length > 1);
  t.true(
    made.every(([, mode]) => mode === 0o600),
    JSON.stringify(made),
  );
  chmodSync(file, 0o664);
  const tightened = await openAndWrite();
  t.true(
    tightened.every(([, mode]) => mode === 0o660),
    JSON.stringify(tightened),
  );
});
