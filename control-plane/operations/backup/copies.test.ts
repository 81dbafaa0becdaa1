/**
 * Only its owner can read a copy of a database, one that fails leaves nothing, and the engine's
 * programs end with the command that started them.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setImmediate } from 'node:timers/promises';
import { until } from '@matting/core/test/harness.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava from 'ava';
import { copySqlite } from './database-copy.ts';

const test = ava.serial;

const directory = await temporaryFolder({ teardown: test.after.always });
const place = (name: string) => path.join(directory, name);

/** Copies take some steps; stand-ins for the engine's programs would run for long. */
test.before(async () => {
  const database = new DatabaseSync(place('from'));
  database.exec('create table blobs (bytes blob); pragma journal_mode = wal');
  const insert = database.prepare('insert into blobs values (randomblob(1000000))');
  for (let count = 0; count < 24; count += 1) insert.run();
  database.close();
  const program = `#!/bin/sh
[ "$1" = --version ] && { echo MariaDB; exit; }
echo $$ > "${place('pid')}.tmp"
mv "${place('pid')}.tmp" "${place('pid')}"
exec sleep 600
`;
  for (const name of ['mariadb', 'mariadb-dump']) {
    await writeFile(place(name), program, { mode: 0o755 });
  }
});

test('nobody but its owner may read it while it is made', async t => {
  const umask = process.umask(0);
  try {
    let done = false;
    const copying = copySqlite(place('from'), place('to')).finally(() => {
      done = true;
    });
    const modes = new Set<number>();
    while (!done) {
      const found = await stat(place('to')).catch(() => undefined);
      if (found !== undefined) modes.add(found.mode & 0o777);
      await setImmediate();
    }
    await copying;
    modes.add((await stat(place('to'))).mode & 0o777);
    t.deepEqual([...modes], [0o600]);
  } finally {
    process.umask(umask);
  }
  const copy = new DatabaseSync(place('to'));
  t.deepEqual({ ...copy.prepare('select count(*) as n from blobs').get() }, { n: 24 });
  copy.close();
});

test('nothing is left of one that fails, and what is there is not touched', async t => {
  await writeFile(place('no-database'), 'x'.repeat(5000));
  await t.throwsAsync(copySqlite(place('no-database'), place('other')));
  t.true(!existsSync(place('other')));
  await writeFile(place('there'), 'mine');
  await t.throwsAsync(copySqlite(place('from'), place('there')), { code: 'EEXIST' });
  t.is((await stat(place('there'))).size, 4);
});

const TOOLS = path.resolve(import.meta.dirname, './database-copy.ts');

function isThere(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

for (const call of ['dumpMysql', 'loadMysql']) {
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
    test(`${call} ends with its program at ${signal}`, async t => {
      const file = place(`${call}-${signal}.sql`);
      if (call === 'loadMysql') await writeFile(file, '');
      const databaseUrl = 'mysql://matting:secret@127.0.0.1:1/matting';
      const searchPath = [directory, '/usr/bin', '/bin'].join(path.delimiter);
      const code = `
        import { ${call} } from ${JSON.stringify(TOOLS)};
        const place = ${JSON.stringify({ databaseUrl, mariadb: true, searchPath })};
        await ${call}(place, ${JSON.stringify(file)}).catch(error => {
          console.log(error.name + ': ' + error.message);
        });`;
      const child = spawn(process.execPath, ['--input-type=module', '-e', code], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let said = '';
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        said += text;
      });
      const ended = once(child, 'close');
      await until(async () => existsSync(place('pid')), 'the program');
      const pid = Number(await readFile(place('pid'), 'utf8'));
      await rm(place('pid'));
      child.kill(signal);
      try {
        t.deepEqual(await ended, [0, null]);
        const name = call === 'dumpMysql' ? 'mariadb-dump' : 'mariadb';
        t.is(said, `DatabaseCopyError: ${name} was interrupted (${signal})\n`);
        t.true(!isThere(pid));
      } finally {
        if (isThere(pid)) process.kill(pid, 'SIGKILL');
      }
    });
  }
}
