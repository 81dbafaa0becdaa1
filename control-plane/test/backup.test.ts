/** The drill of docs/backup.md. Needs: operations. */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import {
  appendFile,
  copyFile,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  rmdir,
  stat,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { firstOf } from '@matting/core/test/families.ts';
import { fundedAccount, newJob, storesOn } from '@matting/core/test/fixtures.ts';
import { until } from '@matting/core/test/harness.ts';
import { Receiver } from '@matting/core/test/receiver.ts';
import type { Env } from '@matting/core/test/support/cli.ts';
import { type Caller, pictureBody } from '@matting/core/test/support/replicas.ts';
import { pngHeader } from '@matting/core/test/support/test-app.ts';
import { openDatabase } from '@matting/database/connect.ts';
import type { Exchange } from '@matting/nodes/test/scripted-exchange.ts';
import { OPEN_STATES } from '@matting/queue/job.ts';
import { absoluteStorage } from '@matting/storage/open-storage.ts';
import { at } from '@matting/test-support/at.ts';
import {
  createTestDatabase,
  onDatabases,
  SILENT_LOG,
  type TestDatabase,
} from '@matting/test-support/database.ts';
import { SmallDisk, skipWithoutMounts } from '@matting/test-support/small-disk.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava, { type ExecutionContext } from 'ava';
import { Replicas, runCli } from './programs.ts';

const test = ava.serial;

const directory = await temporaryFolder({ teardown: test.after.always });

const SECRET = 'a raw callback secret of the tests';
const KEY = randomBytes(32).toString('hex');
/** The node holds pictures with this text until the service has ended. */
const HELD = 'held by the node';
const LINKS = 5;
const OPEN_JOBS = 4;
const CREDITS = 1000;
const MORE: Env = {
  MATTING_SECRETS_KEY: KEY,
  MATTING_ALLOW_HTTP_CALLBACKS: 'true',
  MATTING_ALLOWED_NETWORKS: '127.0.0.1/32',
};

function heldBody(more: Record<string, unknown> = {}): Record<string, unknown> {
  const picture = Buffer.concat([pngHeader(4, 3), Buffer.from(HELD + randomUUID())]);
  return { image_base64: picture.toString('base64'), ...more };
}

interface Link {
  readonly key: string;
  readonly body: Record<string, unknown>;
  readonly jobId: string;
  readonly url: string;
  readonly bytes: Buffer;
}

interface Before {
  readonly caller: Caller;
  readonly links: readonly Link[];
  readonly open: readonly string[];
  readonly notified: string;
}

onDatabases(
  test,
  'a backup',
  (test, dialect) => {
    let root: string;
    let receiver: Receiver;
    let restoredTo: TestDatabase;
    let known: Before;
    let replicas: Replicas;
    const place = (name: string) => path.join(root, name);
    const storageDir = () => place('storage');

    const envOf = (databaseUrl: string, storage: string): Env => ({
      ...MORE,
      PATH: process.env.PATH ?? '',
      MATTING_DATA_DIR: root,
      MATTING_DATABASE_URL: databaseUrl,
      MATTING_STORAGE_URL: `file://${storage}`,
    });

    test.before(async () => {
      root = await mkdtemp(path.join(tmpdir(), 'matting-drill-'));
      receiver = await Receiver.open(SECRET);
      restoredTo = await createTestDatabase(dialect, { migrated: false });
    });
    test.after.always(async () => {
      await replicas?.close();
      await receiver[Symbol.asyncDispose]();
      await rm(root, { recursive: true });
    });

    async function link(service: Replicas, caller: Caller): Promise<Link> {
      const key = randomUUID();
      const body = pictureBody();
      const answer = await service.post(caller, body, { key });
      assert.equal(answer.status, 200, JSON.stringify(answer.body));
      const { job_id: jobId, result } = answer.body;
      const { bytes } = await service.download(0, result.url);
      return { key, body, jobId, url: result.url, bytes };
    }

    test('is made while jobs come and go', async t => {
      const service = await Replicas.open(dialect, {
        replicas: 1,
        storageDir: storageDir(),
        env: MORE,
      });
      const script = async (exchange: Exchange) => {
        exchange.admit();
        const input = await exchange.receive();
        if (input.includes(HELD)) await exchange.cancelled;
        else exchange.answer(input);
      };
      await service.addNode({ script, imagesMax: 8 });
      const caller = await service.createCaller(CREDITS);
      const links: Link[] = [];
      for (let count = 0; count < LINKS; count += 1) links.push(await link(service, caller));
      const open: string[] = [];
      for (let count = 0; count < OPEN_JOBS; count += 1) {
        const callback = { callback_url: receiver.url(), callback_secret: SECRET };
        const body = heldBody(count === 0 ? callback : {});
        const answer = await service.post(caller, body, { path: '/v1/matting/jobs' });
        open.push(answer.body.job_id);
      }
      known = { caller, links, open, notified: at(open, 0) };
      // A killed process left it: no job names it.
      await writeFile(path.join(storageDir(), 'results', `${randomUUID()}-7`), 'nobody’s');

      let backedUp = false;
      const traffic = (async () => {
        for (let count = 0; !backedUp || count < 3; count += 1) await link(service, caller);
      })();
      const env = envOf(service.databaseUrl, storageDir());
      const { code, out, err } = await runCli(env, 'backup', place('backup'), '--json');
      backedUp = true;
      await traffic;
      await service.close();
      t.is(code, 0, err);
      const manifest = JSON.parse(out);
      t.is(manifest.database.kind, dialect);
      t.regex(manifest.secrets_key_id, /^[0-9a-f]{16}$/);
      for (const file of await readdir(place('backup'))) {
        const text = file === 'blobs' ? '' : await readFile(place(`backup/${file}`), 'latin1');
        t.false(text.includes(KEY), file);
      }
    });

    test('refuses to be restored with another key', async t => {
      const env = envOf(restoredTo.url, place('restored'));
      const other = { ...env, MATTING_SECRETS_KEY: randomBytes(32).toString('hex') };
      const { code, err } = await runCli(other, 'restore', place('backup'));
      t.is(code, 1);
      t.regex(err, /needs the secrets key [0-9a-f]{16}/);
    });

    test('is restored elsewhere, whole, and not a second time', async t => {
      const env = envOf(restoredTo.url, place('restored'));
      const { code, out, err } = await runCli(env, 'restore', place('backup'), '--json');
      t.is(code, 0, out + err);
      const found = JSON.parse(out);
      t.true(found.ok);
      // Only results with links are copied.
      const results = await readdir(place('restored/results'));
      t.false(results.some(name => name.endsWith('-7')));
      const again = await runCli(env, 'restore', place('backup'));
      t.is(again.code, 1);
      t.regex(again.err, /restore into (an empty one|another place)/);
    });

    test('serves every link, and charges no retry', async t => {
      replicas = await Replicas.open(dialect, {
        replicas: 1,
        storageDir: place('restored'),
        database: restoredTo,
        env: MORE,
      });
      await replicas.addNode({ imagesMax: 8 });
      for (const { url, bytes, body, key, jobId } of known.links) {
        t.deepEqual(await replicas.download(0, url), { status: 200, bytes });
        const replayed = await replicas.post(known.caller, body, { key });
        t.is(replayed.body.job_id, jobId);
        t.is(replayed.headers.get('x-credits-charged'), '0');
      }
    });

    test('ends every open job once, and tells of it', async t => {
      const { jobs, queue } = replicas.stores;
      const openNow = () => jobs.list({ states: OPEN_STATES, endedWithinMs: 0, limit: 100 });
      // Ends the lost replica's leases, which would otherwise run out by themselves.
      for (const { id } of await openNow()) await queue.endLease(id);
      await until(async () => (await openNow()).length === 0, 'the end of every job');
      const jobOf = (id: string) => replicas.get(known.caller, `/v1/matting/jobs/${id}`);
      for (const id of known.open) {
        await until(async () => (await jobOf(id)).body.status === 'succeeded', `job ${id}`);
      }
      const told = async () => (await jobOf(known.notified)).body.callback.status === 'delivered';
      await until(told, 'the notification');
      const deliveries = receiver.of(known.notified);
      t.deepEqual(
        deliveries.map(({ signatureHolds }) => signatureHolds),
        [true],
      );
    });

    test('leaves a ledger that agrees: one charge a job, nothing reserved', async t => {
      const { stores } = replicas;
      t.is((await stores.ledger.audit()).problemCount, 0);
      const ended = await stores.jobs.list({
        states: ['succeeded', 'failed'],
        endedWithinMs: 3_600_000,
        limit: 1000,
      });
      const { succeeded = [], failed = [] } = Object.groupBy(ended, ({ state }) => state);
      t.true(succeeded.length >= LINKS + OPEN_JOBS);
      // A job under way during the copy of the database may have lost its picture.
      t.true(failed.every(({ failure }) => failure?.retryable === true));
      t.deepEqual(await stores.ledger.balances(known.caller.accountId), {
        available: CREDITS - succeeded.length,
        reserved: 0,
      });
    });

    test('is proven by a check, which finds a picture that is damaged or gone', async t => {
      const env = envOf(restoredTo.url, place('restored'));
      t.is((await runCli(env, 'restore', '--check')).code, 0);
      const [one, two] = known.links;
      const blobs = await readdir(place('restored/results'));
      const blobOf = (jobId = '') =>
        place(`restored/results/${blobs.find(name => name.startsWith(jobId))}`);
      const file = blobOf(one?.jobId);
      const bytes = await readFile(file);
      bytes[bytes.length - 1] = 255 - (bytes[bytes.length - 1] ?? 0);
      await writeFile(file, bytes);
      t.is((await runCli(env, 'restore', '--check', '--sizes-only')).code, 0);
      await rm(blobOf(two?.jobId));
      const { code, out } = await runCli(env, 'restore', '--check');
      t.is(code, 1);
      t.regex(out, /^failure +links +2 of \d+ links answer 500 RESULT_LOST/m);
      for (const { jobId } of known.links.slice(0, 2)) t.true(out.includes(jobId));
    });
  },
  { serverInCi: true },
);

let env: Env;
let jobId: string;
const place = (name: string) => path.join(directory, name);

test.before(async () => {
  env = { MATTING_DATA_DIR: place('data'), PATH: '' };
  const { code, err } = await runCli(env, 'bootstrap', '--account', 'a', '--credits', '5');
  assert.equal(code, 0, err);
  const database = await openDatabase(`sqlite:${place('data/matting.sqlite')}`, {
    log: SILENT_LOG,
  });
  const stores = storesOn(database);
  jobId = randomUUID();
  const account = await fundedAccount(stores, 5);
  await stores.queue.submit(newJob(account, { id: jobId }), { jobsInFlightMax: 10 });
  await database.close();
  await mkdir(place('data/inputs'), { recursive: true });
  await writeFile(place(`data/inputs/${jobId}`), Buffer.alloc(1234, 'x'));
});

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

async function done(t: ExecutionContext, given: Env, ...args: string[]): Promise<string> {
  const { code, out, err } = await runCli(given, ...args);
  t.is(code, 0, out + err);
  return out;
}

test('an interrupted backup continues; a finished one is left alone', async t => {
  await mkdir(place('one/blobs/inputs'), { recursive: true });
  await writeFile(place('one/database.sqlite'), 'half a data');
  await done(t, env, 'backup', place('one'));
  t.is((await stat(place('one/database.sqlite'))).mode & 0o777, 0o600);
  t.is((await readFile(place(`one/blobs/inputs/${jobId}`))).length, 1234);
  const before = await readFile(place('one/backup.json'));
  await refused(t, env, /name another directory/, 'backup', place('one'));
  t.deepEqual(await readFile(place('one/backup.json')), before);
});

test('no backup is made into a directory of something else, or of no service', async t => {
  await mkdir(place('full'));
  await writeFile(place('full/letter.txt'), 'dear');
  await refused(t, env, /not empty.*name another directory/, 'backup', place('full'));
  await refused(
    t,
    env,
    /--no-database and --no-blobs/,
    'backup',
    place('x'),
    '--no-blobs',
    '--no-database',
  );
  const none = { MATTING_DATA_DIR: place('none') };
  await refused(t, none, /no database .*MATTING_DATABASE_URL/, 'backup', place('y'));
  t.true(!existsSync(place('none')));
});

test('a directory without a manifest, or a file that has changed, is not restored', async t => {
  const elsewhere = { ...env, MATTING_DATA_DIR: place('elsewhere') };
  await mkdir(place('unfinished'), { recursive: true });
  await refused(t, elsewhere, /no finished backup/, 'restore', place('unfinished'));
  await done(t, env, 'backup', place('two'));
  await appendFile(place('two/database.sqlite'), 'x');
  await refused(t, elsewhere, /SHA-256/, 'restore', place('two'));
  t.true(!existsSync(place('elsewhere/matting.sqlite')));
});

test('a backup of SQLite is none for a server, and a restore names what it needs', async t => {
  const server = {
    ...env,
    MATTING_DATABASE_URL: 'mysql://matting:secret-of-it@127.0.0.1:1/matting',
    MATTING_SECRETS_KEY: randomBytes(32).toString('hex'),
  };
  await refused(t, server, /set MATTING_DATABASE_URL/, 'restore', place('one'));
  await refused(t, env, /directory.*--check/, 'restore');
  await refused(t, env, /directory.*--check/, 'restore', place('one'), '--check');
  await refused(t, env, /restore into another place/, 'restore', place('one'));
});

test('a picture of an open job that is gone is a warning: the job fails and costs nothing', async t => {
  const elsewhere = { ...env, MATTING_DATA_DIR: place('without') };
  await rm(place(`one/blobs/inputs/${jobId}`));
  const out = await done(t, elsewhere, 'restore', place('one'));
  t.regex(out, new RegExp(`^warning +open jobs +1 of 1 picture are missing: job ${jobId}$`, 'm'));
});

test('a missing file kept for corrections is a warning, until it would have expired', async t => {
  const data = place('correctable');
  const keeping = { ...env, MATTING_DATA_DIR: data };
  await done(t, keeping, 'bootstrap', '--account', 'a', '--credits', '5');
  const database = await openDatabase(`sqlite:${data}/matting.sqlite`, { log: SILENT_LOG });
  const stores = storesOn(database);
  const first = await firstOf(stores, await fundedAccount(stores, 5));
  const { input, matte } = first.kept!;
  for (const folder of ['inputs', 'results']) await mkdir(path.join(data, folder));
  for (const { blob, bytes } of [input!, matte, first.result!]) {
    await writeFile(path.join(data, blob), Buffer.alloc(bytes, 'x'));
  }
  const check = () => done(t, keeping, 'restore', '--check', '--sizes-only');
  t.regex(await check(), /^ok +corrections +2 files kept for them, none missing$/m);
  await rm(path.join(data, matte.blob));
  const lost = `^warning +corrections +1 of 2 files kept for them are missing: job ${first.id}$`;
  const out = await check();
  t.regex(out, new RegExp(lost, 'm'));
  t.regex(out, /^ok +links +1 link,/m);
  await database.kysely.updateTable('jobs').set({ kept_until: 1 }).execute();
  t.regex(await check(), /^ok +corrections +0 files/m);
  await database.close();
});

test('blobs and database may be backed up apart, and kept in one place for several', async t => {
  const blobs = place('blobs');
  for (const name of ['three', 'four']) {
    await done(t, env, 'backup', place(name), '--blobs-to', blobs);
  }
  t.truthy(existsSync(path.join(blobs, 'inputs', jobId)));
  const elsewhere = { ...env, MATTING_DATA_DIR: place('again') };
  await done(t, elsewhere, 'restore', place('four'));
  t.truthy(existsSync(place(`again/inputs/${jobId}`)));
});

test('a backup of pictures alone is restored beside a database of the service, and makes none', async t => {
  await done(t, env, 'backup', place('five'), '--no-database');
  t.true(!existsSync(place('five/database.sqlite')));
  const elsewhere = { ...env, MATTING_DATA_DIR: place('beside') };
  await refused(t, elsewhere, /no database .*MATTING_DATABASE_URL/, 'restore', place('five'));
  t.true(!existsSync(place('beside/matting.sqlite')));

  await mkdir(place('beside'), { recursive: true });
  const others = new DatabaseSync(place('beside/matting.sqlite'));
  others.exec('create table letters (id integer)');
  others.close();
  await refused(t, elsewhere, /no database.*tools of its engine/, 'restore', place('five'));
  await rm(place('beside/matting.sqlite'));

  await copyFile(place('four/database.sqlite'), place('beside/matting.sqlite'));
  await done(t, elsewhere, 'restore', place('five'));
  t.truthy(existsSync(place(`beside/inputs/${jobId}`)));
});

test('a backup that lost its empty directories on the way is whole; without its pictures it is not', async t => {
  await done(t, env, 'backup', place('carried'));
  await Promise.all(
    ['tmp', 'backgrounds', 'results'].map(kind => rmdir(place(`carried/blobs/${kind}`))),
  );
  const elsewhere = { ...env, MATTING_DATA_DIR: place('carried-to') };
  await done(t, elsewhere, 'restore', place('carried'));
  t.truthy(existsSync(place(`carried-to/inputs/${jobId}`)));

  await rm(place('carried/blobs'), { recursive: true });
  const again = { ...env, MATTING_DATA_DIR: place('carried-again') };
  await refused(t, again, /there is no directory .*carried\/blobs$/m, 'restore', place('carried'));
  t.true(!existsSync(place('carried-again')));
});

test.runIf(skipWithoutMounts() === false)('a restore into a full disk says so', async t => {
  await done(t, env, 'backup', place('for-the-full'));
  const disk = SmallDisk.mount('1m');
  t.teardown(() => disk.remove());
  await writeFile(path.join(disk.directory, 'filler'), Buffer.alloc(1_000_000));
  const { directory } = disk;
  const pictures = {
    MATTING_DATA_DIR: place('to-the-full'),
    MATTING_STORAGE_URL: `file://${directory}`,
  };
  const said = /1 pictures were not copied.*full/s;
  await refused(t, { ...env, ...pictures }, said, 'restore', place('for-the-full'));
  const database = { ...env, MATTING_DATA_DIR: path.join(directory, 'data') };
  await refused(t, database, /no space left/, 'restore', place('for-the-full'));
});

test('a place of pictures that was named from here is the same from everywhere', async t => {
  // `blobs` would be the backup's own directory.
  for (const name of ['blobs', 'pics']) {
    const to = place(`relative/${name}`);
    const backup = place(`relative/of-${name}`);
    const given = path.relative(process.cwd(), to);
    await done(t, env, 'backup', backup, '--blobs-to', given);
    const { blobs } = JSON.parse(await readFile(path.join(backup, 'backup.json'), 'utf8'));
    t.deepEqual(blobs, { place: to });
  }
  t.is(absoluteStorage('blobs'), path.resolve('blobs'));
  for (const url of ['s3://bucket/prefix', 'S3://bucket', 'file:///backups']) {
    t.is(absoluteStorage(url), url);
  }
  const back = { ...env, MATTING_DATA_DIR: place('relative/data') };
  const from = path.relative(process.cwd(), place('relative/pics'));
  await done(t, back, 'restore', place('relative/of-blobs'), '--blobs-from', from);
  t.truthy(existsSync(place(`relative/data/inputs/${jobId}`)));
});

test('another picture of the same name sends a backup to another place', async t => {
  await mkdir(place('shared/inputs'), { recursive: true });
  await writeFile(place(`shared/inputs/${jobId}`), 'of the service of before');
  const to = ['--blobs-to', place('shared')];
  await refused(t, env, /--blobs-to.*has other bytes/, 'backup', place('six'), ...to);
  await done(t, env, 'backup', place('six'), '--blobs-to', place('new'));
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
