import { readFileSync } from 'node:fs';
import { migrationsOf } from '@matting/core/test/internals.ts';
import { MADE_BY_0_1_0 } from '@matting/core/test/migrating.ts';
import { readSchemaShape } from '@matting/core/test/schema-shape.ts';
import { onDatabases, useTestDatabase } from '@matting/test-support/database.ts';
import ava from 'ava';
import { sql } from 'kysely';
import { databaseFindings } from './database-findings.ts';

const examine = (url: string) => databaseFindings(url, migrationsOf([]), undefined);

onDatabases(ava.serial, 'the doctor', (test, dialect) => {
  const databases = useTestDatabase(test, dialect, { migrated: false });

  test('says of a database that 0.1.0 made that it is not read, and changes nothing', async t => {
    const database = await databases.open();
    for (const statement of MADE_BY_0_1_0) await sql.raw(statement).execute(database.kysely);
    const shape = await readSchemaShape(database);
    const bytes = () =>
      ['', '-wal'].map(end => dialect === 'sqlite' && readFileSync(databases.url().slice(7) + end));
    const before = bytes();
    const finding = (await examine(databases.url())).at(-1);
    t.is(finding?.status, 'failure');
    t.true(finding?.found.includes('made by 0.1.0'));
    t.deepEqual(bytes(), before);
    t.deepEqual(await readSchemaShape(database), shape);
  });

  if (dialect === 'sqlite') return;
  test('says which user the server refuses, and never the password', async t => {
    const url = new URL(databases.url());
    url.password = 'no-such-password';
    const [{ advice = '' } = {}] = await examine(url.href);
    t.regex(advice, new RegExp(`'${url.username}'@'[^']+'.*docs/security\\.md`));
    t.notRegex(advice, /no-such-password/);
  });

  test('says of a user whose connections are used up what to change', async t => {
    const { kysely } = await databases.open();
    const run = (statement: string) => sql.raw(statement).execute(kysely);
    const user = `few${process.pid}`;
    await run(`create user ${user}@localhost with max_connections_per_hour 1`);
    t.teardown(() => run(`drop user ${user}@localhost`));
    const url = new URL(databases.url());
    url.username = user;
    const advices: string[] = [];
    for (let tries = 0; tries < 2; tries += 1) {
      const [{ advice = '' } = {}] = await examine(url.href);
      advices.push(advice);
    }
    t.regex(advices.join(), /connection-limit/);
  });
});
