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
const inDirectory = (name: string) => path.join(directory, name);

/** Large enough that a copy takes several steps. */
test.before(async () => {
  const database = new DatabaseSync(inDirectory('from'));
  database.exec('create table blobs (bytes blob); pragma journal_mode = wal');
  const insert = database.prepare('insert into blobs values (randomblob(1000000))');
  for (let count = 0; count < 24; count += 1) insert.run();
  database.close();
  const program = `#!/bin/sh
[ "$1" = --version ] && { echo MariaDB; exit; }
echo $$ > "${inDirectory('pid')}.tmp"
mv "${inDirectory('pid')}.tmp" "${inDirectory('pid')}"
exec sleep 600
`;
  for (const name of ['mariadb', 'mariadb-dump']) {
    await writeFile(inDirectory(name), program, { mode: 0o755 });
  }
});

test('nobody but its owner may read it while it is made', async t => {
  const umask = process.umask(0);
  try {
    let done = false;
    const copying = copySqlite(inDirectory('from'), inDirectory('to')).finally(() => {
      done = true;
    });
    const modes = new Set<number>();
    while (!done) {
      const found = await stat(inDirectory('to')).catch(() => undefined);
      if (found !== undefined) modes.add(found.mode & 0o777);
      await setImmediate();
    }
    await copying;
    modes.add((await stat(inDirectory('to'))).mode & 0o777);
    t.deepEqual([...modes], [0o600]);
  } finally {
    process.umask(umask);
  }
  const copy = new DatabaseSync(inDirectory('to'));
  t.deepEqual({ ...copy.prepare('select count(*) as n from blobs').get() }, { n: 24 });
  copy.close();
});

test('nothing is left of one that fails, and what is there is not touched', async t => {
  await writeFile(inDirectory('no-database'), 'x'.repeat(5000));
  await t.throwsAsync(copySqlite(inDirectory('no-database'), inDirectory('other')));
  t.true(!existsSync(inDirectory('other')));
  await writeFile(inDirectory('there'), 'mine');
  await t.throwsAsync(copySqlite(inDirectory('from'), inDirectory('there')), { code: 'EEXIST' });
  t.is((await stat(inDirectory('there'))).size, 4);
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
      const file = inDirectory(`${call}-${signal}.sql`);
      if (call === 'loadMysql') await writeFile(file, '');
      const databaseUrl = 'mysql://matting:secret@127.0.0.1:1/matting';
      const searchPath = [directory, '/usr/bin', '/bin'].join(path.delimiter);
      const code = `
        import { ${call} } from ${JSON.stringify(TOOLS)};
        const target = ${JSON.stringify({ databaseUrl, mariadb: true, searchPath })};
        await ${call}(target, ${JSON.stringify(file)}).catch(error => {
          console.log(error.name + ': ' + error.message);
        });`;
      const child = spawn(process.execPath, ['--input-type=module', '-e', code], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let output = '';
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        output += text;
      });
      const ended = once(child, 'close');
      await until(async () => existsSync(inDirectory('pid')), 'the program');
      const pid = Number(await readFile(inDirectory('pid'), 'utf8'));
      await rm(inDirectory('pid'));
      child.kill(signal);
      try {
        t.deepEqual(await ended, [0, null]);
        const name = call === 'dumpMysql' ? 'mariadb-dump' : 'mariadb';
        t.is(output, `DatabaseCopyError: ${name} was interrupted (${signal})\n`);
        t.true(!isThere(pid));
      } finally {
        if (isThere(pid)) process.kill(pid, 'SIGKILL');
      }
    });
  }
}
