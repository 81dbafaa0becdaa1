/** A copy of a SQLite file: who may read it, and what is left of one that fails. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { copySqlite } from '../../../src/store/database/database-copy.ts';

let directory: string;
const place = (name: string) => path.join(directory, name);

/** Some steps long. */
before(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'matting-copy-'));
  const database = new DatabaseSync(place('from'));
  database.exec('create table blobs (bytes blob); pragma journal_mode = wal');
  const insert = database.prepare('insert into blobs values (randomblob(1000000))');
  for (let count = 0; count < 24; count += 1) insert.run();
  database.close();
});
after(() => rm(directory, { recursive: true }));

it('nobody but its owner may read it while it is made', async () => {
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
    assert.deepEqual([...modes], [0o600]);
  } finally {
    process.umask(umask);
  }
  const copy = new DatabaseSync(place('to'));
  assert.deepEqual({ ...copy.prepare('select count(*) as n from blobs').get() }, { n: 24 });
  copy.close();
});

it('nothing is left of one that fails, and what is there is not touched', async () => {
  await writeFile(place('no-database'), 'x'.repeat(5000));
  await assert.rejects(copySqlite(place('no-database'), place('other')));
  assert.ok(!existsSync(place('other')));
  await writeFile(place('there'), 'mine');
  await assert.rejects(copySqlite(place('from'), place('there')), { code: 'EEXIST' });
  assert.equal((await stat(place('there'))).size, 4);
});
