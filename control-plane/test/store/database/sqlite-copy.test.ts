/** A copy of a SQLite file: who may read it, and what is left of one that fails. */
import { existsSync } from 'node:fs';
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setImmediate } from 'node:timers/promises';
import ava from 'ava';
import { copySqlite } from '../../../src/store/database/database-copy.ts';

const test = ava.serial;

let directory: string;
const place = (name: string) => path.join(directory, name);

/** Some steps long. */
test.before(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'matting-copy-'));
  const database = new DatabaseSync(place('from'));
  database.exec('create table blobs (bytes blob); pragma journal_mode = wal');
  const insert = database.prepare('insert into blobs values (randomblob(1000000))');
  for (let count = 0; count < 24; count += 1) insert.run();
  database.close();
});
test.after.always(() => rm(directory, { recursive: true }));

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
