/** Needs: operations. */

import { execFile, execFileSync } from 'node:child_process';
import { existsSync, globSync, mkdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import ava from 'ava';
import { spawnMatting } from '../running-service.ts';
import { findProgram } from '../support/foreign-program.ts';
import { isNotTested } from '../support/skip.ts';
import { STARTED_ENV } from '../support/started-env.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const test = ava.serial;

const ROOT = path.resolve(import.meta.dirname, '../..');
const FOLDER = path.join(ROOT, 'deploy/systemd');
const COMMAND = path.join(FOLDER, 'matting-command');
const ANALYZE = findProgram('systemd-analyze');
const DAY_S = 86_400;

const unitsOf = (ending: string) => globSync(`*.${ending}`, { cwd: FOLDER });
const namesOfTimers = () =>
  unitsOf('timer').flatMap(file => {
    const [, name] =
      /^Unit=matting@(.+)\.service$/m.exec(readFileSync(path.join(FOLDER, file), 'utf8')) ?? [];
    return name ?? [];
  });

test('a database is checked, backed up and proven by the command of each timer', async t => {
  const directory = await temporaryFolder(t);
  const backups = path.join(directory, 'backups');
  const env = {
    ...STARTED_ENV,
    MATTING_DATA_DIR: path.join(directory, 'data'),
    BACKUP_DIR: backups,
    BACKUP_DAYS: '2',
  };
  const migrated = spawnMatting(['migrate'], env);
  t.is(await migrated.exited, 0, migrated.output());
  const old = path.join(backups, '2020-01-01');
  const kept = path.join(backups, 'not-a-backup');
  const picture = path.join(backups, 'blobs', 'results', 'old');
  for (const made of [old, kept, path.dirname(picture)]) mkdirSync(made, { recursive: true });
  writeFileSync(picture, '');
  const longAgo = Date.now() / 1000 - 30 * DAY_S;
  for (const place of [old, kept, picture]) utimesSync(place, longAgo, longAgo);
  t.deepEqual(namesOfTimers().toSorted(), ['backup', 'credits-check', 'restore-check']);
  for (const name of namesOfTimers()) {
    t.notThrows(() => execFileSync(COMMAND, [name], { cwd: ROOT, env, stdio: 'pipe' }), name);
  }
  const [today = ''] = globSync('20*', { cwd: backups });
  t.true(existsSync(path.join(backups, today, 'backup.json')));
  t.deepEqual([existsSync(old), existsSync(kept), existsSync(picture)], [false, true, false]);
  // A file of the day from before an upgrade; links outlive the picture.
  writeFileSync(picture, '');
  const before = Date.now() / 1000 - 2 * DAY_S;
  utimesSync(picture, before, before);
  const again = { ...env, MATTING_RESULT_TTL_MS: `${7 * DAY_S * 1000}` };
  execFileSync(COMMAND, ['backup'], { cwd: ROOT, env: again, stdio: 'pipe' });
  t.true(existsSync(picture));
  t.is(globSync('20*/backup.json', { cwd: backups }).length, 2);
  // The timer and a person start one at once: both run in turn, in own folders.
  const both = [1, 2].map(() => promisify(execFile)(COMMAND, ['backup'], { cwd: ROOT, env }));
  t.deepEqual(
    (await Promise.allSettled(both)).map(({ status }) => status),
    ['fulfilled', 'fulfilled'],
  );
  t.is(globSync('20*/backup.json', { cwd: backups }).length, 4);
  t.throws(() => execFileSync(COMMAND, ['else'], { cwd: ROOT, env, stdio: 'pipe' }));
});

test.skipIf(isNotTested(ANALYZE === undefined && 'no systemd-analyze here: install systemd'))(
  'systemd takes every unit',
  t => {
    const units = [...unitsOf('service').filter(name => !name.includes('@')), ...unitsOf('timer')];
    const said = execFileSync(ANALYZE ?? '', ['verify', ...units], { cwd: FOLDER, stdio: 'pipe' });
    t.is(said.toString(), '');
  },
);
