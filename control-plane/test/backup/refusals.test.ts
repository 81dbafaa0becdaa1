/** What is refused as a backup or as a place for one, and what an interrupted one leaves. */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { appendFile, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, it } from 'node:test';
import { SILENT_LOG } from '../../../test/support/database.ts';
import { openDatabase } from '../../src/store/database/connect.ts';
import { fundedAccount, newJob, storesOn } from '../store/fixtures.ts';
import { type Env, runCli } from '../support/cli.ts';

let directory: string;
let env: Env;
let jobId: string;
const place = (name: string) => path.join(directory, name);

/** A service of one open job, whose picture is there. */
before(async () => {
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
after(() => rm(directory, { recursive: true }));

async function refused(given: Env, message: RegExp, ...args: string[]): Promise<void> {
  const { code, err } = await runCli(given, ...args);
  assert.equal(code, 1, err);
  assert.match(err, message);
  assert.ok(!err.includes('    at '), err);
}

it('what an interrupted backup left is gone on with; a finished one is left alone', async () => {
  await mkdir(place('one/blobs/inputs'), { recursive: true });
  await writeFile(place('one/database.sqlite'), 'half a data');
  assert.equal((await runCli(env, 'backup', place('one'))).code, 0);
  assert.equal((await stat(place('one/database.sqlite'))).mode & 0o777, 0o600);
  assert.equal((await readFile(place(`one/blobs/inputs/${jobId}`))).length, 1234);
  const before = await readFile(place('one/backup.json'));
  await refused(env, /holds a finished backup/, 'backup', place('one'));
  assert.deepEqual(await readFile(place('one/backup.json')), before);
});

it('no backup is made into a directory of something else, or of no service', async () => {
  await mkdir(place('full'));
  await writeFile(place('full/letter.txt'), 'dear');
  await refused(env, /is not empty/, 'backup', place('full'));
  await refused(env, /nothing is left/, 'backup', place('x'), '--no-blobs', '--no-database');
  const none = { MATTING_DATA_DIR: place('none') };
  await refused(none, /there is no database/, 'backup', place('y'));
  assert.ok(!existsSync(place('none')));
});

it('a directory without a manifest, or a file that has changed, is not restored', async () => {
  const elsewhere = { ...env, MATTING_DATA_DIR: place('elsewhere') };
  await mkdir(place('unfinished'), { recursive: true });
  await refused(elsewhere, /holds no finished backup/, 'restore', place('unfinished'));
  assert.equal((await runCli(env, 'backup', place('two'))).code, 0);
  await appendFile(place('two/database.sqlite'), 'x');
  await refused(elsewhere, /is not as it was written/, 'restore', place('two'));
  assert.ok(!existsSync(place('elsewhere/matting.sqlite')));
});

it('a backup of SQLite is none for a server, and a restore names what it needs', async () => {
  const server = {
    ...env,
    MATTING_DATABASE_URL: 'mysql://matting:secret-of-it@127.0.0.1:1/matting',
    MATTING_SECRETS_KEY: randomBytes(32).toString('hex'),
  };
  await refused(server, /names another kind/, 'restore', place('one'));
  await refused(env, /either a directory or --check/, 'restore');
  await refused(env, /either a directory or --check/, 'restore', place('one'), '--check');
  await refused(env, /is there: restore into another place/, 'restore', place('one'));
});

it('a picture of an open job that is gone is a warning: the job fails and costs nothing', async () => {
  const elsewhere = { ...env, MATTING_DATA_DIR: place('without') };
  await rm(place(`one/blobs/inputs/${jobId}`));
  const { code, out } = await runCli(elsewhere, 'restore', place('one'));
  assert.equal(code, 0, out);
  assert.match(out, new RegExp(`^warning +open jobs +1 of 1 picture are gone: job ${jobId}$`, 'm'));
});

it('blobs and database may be backed up apart, and kept in one place for several', async () => {
  const blobs = place('blobs');
  for (const name of ['three', 'four']) {
    assert.equal((await runCli(env, 'backup', place(name), '--blobs-to', blobs)).code, 0);
  }
  assert.ok(existsSync(path.join(blobs, 'inputs', jobId)));
  const elsewhere = { ...env, MATTING_DATA_DIR: place('again') };
  const { code, out } = await runCli(elsewhere, 'restore', place('four'));
  assert.equal(code, 0, out);
  assert.ok(existsSync(place(`again/inputs/${jobId}`)));
  assert.equal((await runCli(env, 'backup', place('five'), '--no-database')).code, 0);
  assert.ok(!existsSync(place('five/database.sqlite')));
});
