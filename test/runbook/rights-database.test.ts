/** With exactly the rights of docs/security.md. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import ava from 'ava';
import { runCli } from '../../control-plane/test/programs.ts';
import { findMariadb } from '../support/mariadb-server.ts';
import { RightsDatabase } from './rights-database.ts';

const test = ava.serial;
/** Each refusal says what to do. */
const AS_MIGRATOR = /no right to change tables.*MATTING_DATABASE_URL.*docs\/security\.md/;

test.skipIf(findMariadb() === undefined)(
  'a user who must not change tables is told whose URL to use, and the migrator’s works',
  async t => {
    const directory = await mkdtemp(path.join(tmpdir(), 'rights-'));
    const database = await RightsDatabase.create();
    t.teardown(() => database.close());
    t.teardown(() => rm(directory, { recursive: true }));
    const run = (url: string, ...args: string[]) =>
      runCli(
        {
          PATH: process.env.PATH ?? '',
          MATTING_DATABASE_URL: url,
          MATTING_STORAGE_URL: pathToFileURL(path.join(directory, 'pictures')).href,
          MATTING_DATA_DIR: path.join(directory, 'data'),
          MATTING_SECRETS_KEY: '5'.repeat(64),
        },
        ...args,
      );
    const refused = async (...args: string[]) => {
      const { code, err } = await run(database.url, ...args);
      t.is(code, 1, err);
      t.regex(err, AS_MIGRATOR);
      t.notRegex(err, /create table/i);
    };
    const done = async (url: string, ...args: string[]) => {
      const { code, err } = await run(url, ...args);
      t.is(code, 0, `${args[0]}: ${err}`);
    };
    await refused('migrate');
    await done(database.migratorUrl, 'migrate');
    await done(database.url, 'migrate');
    await done(database.url, 'accounts', 'create', 'shop');
    await done(database.url, 'credits', 'grant', 'shop', '5');
    const backup = path.join(directory, 'backup');
    await done(database.url, 'backup', backup, '--no-blobs');
    await database.ask('DROP DATABASE matting');
    await database.ask('CREATE DATABASE matting CHARACTER SET utf8mb4');
    await refused('restore', backup, '--no-blobs');
    await done(database.migratorUrl, 'restore', backup, '--no-blobs');
    await done(database.url, 'restore', '--check');
  },
);
