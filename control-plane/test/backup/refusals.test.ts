/** What is refused as a backup or as a place for one, and what an interrupted one leaves. */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import {
  appendFile,
  copyFile,
  mkdir,
  mkdtemp,
  readFile,
  rm,
  rmdir,
  stat,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import ava, { type ExecutionContext } from 'ava';
import { SILENT_LOG } from '../../../test/support/database.ts';
import { absoluteStorage } from '../../src/storage/open-storage.ts';
import { openDatabase } from '../../src/store/database/connect.ts';
import { fundedAccount, newJob, storesOn } from '../store/fixtures.ts';
import { type Env, runCli } from '../support/cli.ts';

const test = ava.serial;

let directory: string;
let env: Env;
let jobId: string;
const place = (name: string) => path.join(directory, name);

/** A service of one open job, whose picture is there. */
test.before(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'matting-refusals-'));
  env = { MATTING_DATA_DIR: place('data'), PATH: '' };
  const { code, err } = await runCli(env, 'bootstrap', '--account', 'a', '--credits', '5');
  assert.equal(code, 0, err);
  const database = await openDatabase(`sqlite:${place('data/matting.sqlite')}`, {
    log: SILENT_LOG,
  });
  const stores = storesOn(database);
  jobId = randomUUID();
  const account = await fundedAccount(stores, 5);
  await stores.jobs.submit(newJob(account, { id: jobId }), { jobsInFlightMax: 10 });
  await database.close();
  await mkdir(place('data/inputs'), { recursive: true });
  await writeFile(place(`data/inputs/${jobId}`), Buffer.alloc(1234, 'x'));
});
test.after.always(() => rm(directory, { recursive: true }));

async function refused(
  t: ExecutionContext,
  given: Env,
  message: RegExp,
  ...args: string[]
): Promise<void> {
  const { code, err } = await runCli(given, ...args);
  t.is(code, 1, err);
  t.regex(err, message);
  t.false(err.includes('    at '), err);
}

test('what an interrupted backup left is gone on with; a finished one is left alone', async t => {
  await mkdir(place('one/blobs/inputs'), { recursive: true });
  await writeFile(place('one/database.sqlite'), 'half a data');
  t.is((await runCli(env, 'backup', place('one'))).code, 0);
  t.is((await stat(place('one/database.sqlite'))).mode & 0o777, 0o600);
  t.is((await readFile(place(`one/blobs/inputs/${jobId}`))).length, 1234);
  const before = await readFile(place('one/backup.json'));
  await refused(t, env, /holds a finished backup/, 'backup', place('one'));
  t.deepEqual(await readFile(place('one/backup.json')), before);
});

test('no backup is made into a directory of something else, or of no service', async t => {
  await mkdir(place('full'));
  await writeFile(place('full/letter.txt'), 'dear');
  await refused(t, env, /is not empty/, 'backup', place('full'));
  await refused(t, env, /nothing is left/, 'backup', place('x'), '--no-blobs', '--no-database');
  const none = { MATTING_DATA_DIR: place('none') };
  await refused(t, none, /there is no database/, 'backup', place('y'));
  t.true(!existsSync(place('none')));
});

test('a directory without a manifest, or a file that has changed, is not restored', async t => {
  const elsewhere = { ...env, MATTING_DATA_DIR: place('elsewhere') };
  await mkdir(place('unfinished'), { recursive: true });
  await refused(t, elsewhere, /holds no finished backup/, 'restore', place('unfinished'));
  t.is((await runCli(env, 'backup', place('two'))).code, 0);
  await appendFile(place('two/database.sqlite'), 'x');
  await refused(t, elsewhere, /is not as it was written/, 'restore', place('two'));
  t.true(!existsSync(place('elsewhere/matting.sqlite')));
});

test('a backup of SQLite is none for a server, and a restore names what it needs', async t => {
  const server = {
    ...env,
    MATTING_DATABASE_URL: 'mysql://matting:secret-of-it@127.0.0.1:1/matting',
    MATTING_SECRETS_KEY: randomBytes(32).toString('hex'),
  };
  await refused(t, server, /names another kind/, 'restore', place('one'));
  await refused(t, env, /either a directory or --check/, 'restore');
  await refused(t, env, /either a directory or --check/, 'restore', place('one'), '--check');
  await refused(t, env, /is there: restore into another place/, 'restore', place('one'));
});

test('a picture of an open job that is gone is a warning: the job fails and costs nothing', async t => {
  const elsewhere = { ...env, MATTING_DATA_DIR: place('without') };
  await rm(place(`one/blobs/inputs/${jobId}`));
  const { code, out } = await runCli(elsewhere, 'restore', place('one'));
  t.is(code, 0, out);
  t.regex(out, new RegExp(`^warning +open jobs +1 of 1 picture are gone: job ${jobId}$`, 'm'));
});

test('blobs and database may be backed up apart, and kept in one place for several', async t => {
  const blobs = place('blobs');
  for (const name of ['three', 'four']) {
    t.is((await runCli(env, 'backup', place(name), '--blobs-to', blobs)).code, 0);
  }
  t.truthy(existsSync(path.join(blobs, 'inputs', jobId)));
  const elsewhere = { ...env, MATTING_DATA_DIR: place('again') };
  const { code, out } = await runCli(elsewhere, 'restore', place('four'));
  t.is(code, 0, out);
  t.truthy(existsSync(place(`again/inputs/${jobId}`)));
});

test('a backup of pictures alone is restored beside a database of the service, and makes none', async t => {
  t.is((await runCli(env, 'backup', place('five'), '--no-database')).code, 0);
  t.true(!existsSync(place('five/database.sqlite')));
  const elsewhere = { ...env, MATTING_DATA_DIR: place('beside') };
  await refused(t, elsewhere, /there is no database/, 'restore', place('five'));
  t.true(!existsSync(place('beside/matting.sqlite')));

  await mkdir(place('beside'), { recursive: true });
  const others = new DatabaseSync(place('beside/matting.sqlite'));
  others.exec('create table letters (id integer)');
  others.close();
  await refused(t, elsewhere, /there is none of the service here/, 'restore', place('five'));
  await rm(place('beside/matting.sqlite'));

  await copyFile(place('four/database.sqlite'), place('beside/matting.sqlite'));
  const { code, out, err } = await runCli(elsewhere, 'restore', place('five'));
  t.is(code, 0, out + err);
  t.truthy(existsSync(place(`beside/inputs/${jobId}`)));
});

test('a backup that lost its empty directories on the way is whole; without its pictures it is not', async t => {
  t.is((await runCli(env, 'backup', place('carried'))).code, 0);
  await Promise.all(
    ['tmp', 'backgrounds', 'results'].map(kind => rmdir(place(`carried/blobs/${kind}`))),
  );
  const elsewhere = { ...env, MATTING_DATA_DIR: place('carried-to') };
  const { code, out, err } = await runCli(elsewhere, 'restore', place('carried'));
  t.is(code, 0, out + err);
  t.truthy(existsSync(place(`carried-to/inputs/${jobId}`)));

  await rm(place('carried/blobs'), { recursive: true });
  const again = { ...env, MATTING_DATA_DIR: place('carried-again') };
  await refused(t, again, /there is no directory .*carried\/blobs$/m, 'restore', place('carried'));
  t.true(!existsSync(place('carried-again')));
});

test('a place of pictures that was named from here is the same from everywhere', async t => {
  // Not `blobs` of the backup's own directory.
  for (const name of ['blobs', 'pics']) {
    const to = place(`relative/${name}`);
    const backup = place(`relative/of-${name}`);
    const given = path.relative(process.cwd(), to);
    t.is((await runCli(env, 'backup', backup, '--blobs-to', given)).code, 0);
    const { blobs } = JSON.parse(await readFile(path.join(backup, 'backup.json'), 'utf8'));
    t.deepEqual(blobs, { place: to });
  }
  t.is(absoluteStorage('blobs'), path.resolve('blobs'));
  for (const url of ['s3://bucket/prefix', 'S3://bucket', 'file:///backups']) {
    t.is(absoluteStorage(url), url);
  }
  const back = { ...env, MATTING_DATA_DIR: place('relative/data') };
  const from = path.relative(process.cwd(), place('relative/pics'));
  const { code, err } = await runCli(
    back,
    'restore',
    place('relative/of-blobs'),
    '--blobs-from',
    from,
  );
  t.is(code, 0, err);
  t.truthy(existsSync(place(`relative/data/inputs/${jobId}`)));
});

test('another picture of the same name sends a backup to another place', async t => {
  await mkdir(place('shared/inputs'), { recursive: true });
  await writeFile(place(`shared/inputs/${jobId}`), 'of the service of before');
  const to = ['--blobs-to', place('shared')];
  await refused(t, env, /name another place .*has other bytes/, 'backup', place('six'), ...to);
  t.is((await runCli(env, 'backup', place('six'), '--blobs-to', place('new'))).code, 0);
});

test('a check migrates nothing, and no directory is made for what is not mounted', async t => {
  const data = { ...env, MATTING_DATA_DIR: place('checked') };
  await mkdir(place('checked'));
  await copyFile(place('four/database.sqlite'), place('checked/matting.sqlite'));
  const unmounted = { ...data, MATTING_STORAGE_URL: `file://${place('unmounted')}` };
  const line = /MATTING_STORAGE_URL: there is no directory/;
  await refused(t, unmounted, line, 'restore', '--check');
  await refused(t, unmounted, line, 'backup', place('of-unmounted'));
  t.true(!existsSync(place('unmounted')));

  const { code, out } = await runCli(data, 'restore', '--check');
  t.deepEqual([code, existsSync(place('checked/inputs'))], [0, false], out);
  const database = new DatabaseSync(place('checked/matting.sqlite'));
  const last = 'select max(name) from kysely_migration';
  database.exec(`delete from kysely_migration where name = (${last})`);
  const before = database.prepare(last).get();
  await refused(t, data, /the database lacks/, 'restore', '--check');
  t.deepEqual(database.prepare(last).get(), before);
  database.close();
});
