import { existsSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { SmallDisk, skipWithoutMounts } from '@matting/test-support/small-disk.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import { sql } from 'kysely';
import { openDatabase } from './connect.ts';
import { databaseErrorKind } from './engines.ts';

ava.runIf(skipWithoutMounts() === false)(
  'spare room is made, taken by the first write on a full disk, and made again',
  async t => {
    const disk = SmallDisk.mount('64m');
    t.teardown(() => disk.remove());
    const file = path.join(disk.directory, 'db.sqlite');
    const spare = `${file}-spare`;
    const warned: unknown[] = [];
    const log = { info: () => undefined, warn: (...line: unknown[]) => warned.push(line[1]) };
    const { kysely, close } = await openDatabase(`sqlite:${file}`, { log, create: true });
    t.teardown(close);
    await sql`create table t (a)`.execute(kysely);
    await until('spare room', () => existsSync(spare));
    const filler = path.join(disk.directory, 'filler');
    const { bavail, bsize } = statfsSync(disk.directory);
    writeFileSync(filler, Buffer.alloc(bavail * bsize));
    const write = () => sql`insert into t values (randomblob(100000))`.execute(kysely);
    const full = await t.throwsAsync(write);
    t.is(databaseErrorKind(full), 'unavailable');
    t.false(existsSync(spare));
    await t.notThrowsAsync(write());
    await until('a warning', () => warned.length > 0);
    t.deepEqual(warned, ['the disk of the database is full']);
    rmSync(filler);
    await until('spare room', () => existsSync(spare));
  },
);
