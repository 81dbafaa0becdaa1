/**
 * The drill of docs/backup.md: a service at work is backed up, ends, and is restored elsewhere. Its
 * ledger agrees, its links are alive, each open job ends once, and nothing is paid for twice.
 */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import ava from 'ava';
import { at } from '../../../test/support/at.ts';
import {
  createTestDatabase,
  onDatabases,
  type TestDatabase,
} from '../../../test/support/database.ts';
import { OPEN_STATES } from '../../src/domain/job.ts';
import type { Exchange } from '../nodes/scripted-exchange.ts';
import { until } from '../services/dispatch/harness.ts';
import { Receiver } from '../services/notification/receiver.ts';
import { type Env, runCli } from '../support/cli.ts';
import { type Caller, pictureBody, Replicas } from '../support/replicas.ts';
import { pngHeader } from '../support/test-app.ts';

const test = ava.serial;

const SECRET = 'a raw callback secret of the tests';
const KEY = randomBytes(32).toString('hex');
/** In a picture that the node keeps until the service has ended. */
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

/** What the service that ends knew. */
interface Before {
  readonly caller: Caller;
  readonly links: readonly Link[];
  readonly open: readonly string[];
  readonly notified: string;
}

onDatabases(test, 'a backup', (test, dialect) => {
  let directory: string;
  let receiver: Receiver;
  let restoredTo: TestDatabase;
  let known: Before;
  let replicas: Replicas;
  const place = (name: string) => path.join(directory, name);
  const storageDir = () => place('storage');

  const envOf = (databaseUrl: string, storage: string): Env => ({
    ...MORE,
    PATH: process.env.PATH ?? '',
    MATTING_DATA_DIR: directory,
    MATTING_DATABASE_URL: databaseUrl,
    MATTING_STORAGE_URL: `file://${storage}`,
  });

  test.before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'matting-drill-'));
    receiver = await Receiver.open(SECRET);
    restoredTo = await createTestDatabase(dialect, { migrated: false });
  });
  test.after.always(async () => {
    await replicas?.close();
    await receiver[Symbol.asyncDispose]();
    await rm(directory, { recursive: true });
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
    // What a killed process left: no job names it.
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

  test('refuses to be made over another, and to be restored with another key', async t => {
    const env = envOf(restoredTo.url, place('restored'));
    const again = await runCli(env, 'backup', place('backup'), '--no-database');
    t.is(again.code, 1);
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
    // Of results those of links alone: what nobody named stayed behind.
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
    const { jobs } = replicas.stores;
    const openNow = () => jobs.list({ states: OPEN_STATES, endedWithinMs: 0, limit: 100 });
    // Their leases are those of a replica that is gone: without this they end by themselves.
    for (const { id } of await openNow()) await jobs.endLease(id);
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
    t.is((await stores.ledger.audit({ kind: 'full' })).problemCount, 0);
    const ended = await stores.jobs.list({
      states: ['succeeded', 'failed'],
      endedWithinMs: 3_600_000,
      limit: 1000,
    });
    const { succeeded = [], failed = [] } = Object.groupBy(ended, ({ state }) => state);
    t.true(succeeded.length >= LINKS + OPEN_JOBS);
    // One that was under way while the database was copied may have taken its picture along.
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
    t.regex(out, /^failure +links +2 of \d+ links answer 410/m);
    for (const { jobId } of known.links.slice(0, 2)) t.true(out.includes(jobId));
  });
});
