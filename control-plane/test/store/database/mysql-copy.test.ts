/** The engine's programs end with the command that started them: stand-ins that would run for long. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import ava from 'ava';
import { until } from '../../services/dispatch/harness.ts';

const test = ava.serial;

const TOOLS = path.resolve(import.meta.dirname, '../../../src/store/database/database-copy.ts');
let directory: string;
const place = (name: string) => path.join(directory, name);

test.before(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'matting-tools-'));
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
test.after.always(() => rm(directory, { recursive: true }));

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
