/** From a directory to a bucket, under load. Needs: object-storage, operations. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { ListObjectsV2Command } from '@aws-sdk/client-s3';
import { assertBalanced, fundedAccount } from '@matting/core/test/fixtures.ts';
import { until } from '@matting/core/test/harness.ts';
import type { ControlPlane } from '@matting/core/test/internals.ts';
import { planeEnv } from '@matting/core/test/support/plane-env.ts';
import { pictureBody, submitTo } from '@matting/core/test/support/replicas.ts';
import { ScriptedNode } from '@matting/nodes/test/scripted-node.ts';
import { openStorage } from '@matting/storage/open-storage.ts';
import { createTestDatabase, groupIf, type TestDatabase } from '@matting/test-support/database.ts';
import {
  missingStore,
  OBJECT_STORES,
  useObjectStore,
} from '@matting/test-support/object-storage/object-store.ts';
import ava from 'ava';
import { series, storesOn } from '../fixtures.ts';
import { openTestPlane, runCli } from '../programs.ts';

const test = ava.serial;

const BASE_URL = 'http://links.example';
const PAUSE_MS = 20;
const JOBS_EACH_STEP = 6;

interface WireJob {
  readonly status: string;
  readonly result?: { readonly url: string };
}

type Storage = Readonly<Record<string, string>>;

for (const kind of OBJECT_STORES) {
  const group = groupIf(
    missingStore(kind) === false,
    test,
    `a service that moves to a bucket: ${kind}`,
  );
  const store = useObjectStore(group, kind);
  const links = new Map<string, Buffer>();
  const failures: string[] = [];
  let root: string;
  let fixture: TestDatabase;
  let node: ScriptedNode;
  let token: string;
  let accountId: string;
  let replicas: readonly [ControlPlane, ControlPlane];

  const open = async (name: string, storage: Storage) => {
    const env = {
      ...planeEnv(path.join(root, 'data'), fixture.url),
      MATTING_BASE_URL: BASE_URL,
      MATTING_SUBMISSIONS_PER_MINUTE: '1000000',
      MATTING_READS_PER_MINUTE: '1000000',
      ...storage,
    };
    const plane = await openTestPlane(env, name);
    await node.join(plane.ports.registry);
    const ready = async () => (await fetch(urlOf(plane, '/readyz'))).ok;
    await until(ready, 'readiness');
    return plane;
  };
  const urlOf = (plane: ControlPlane, place: string) =>
    `http://127.0.0.1:${plane.ports.http}${place}`;

  group.before(async () => {
    root = await mkdtemp(path.join(tmpdir(), 'matting-moving-'));
    fixture = await createTestDatabase('sqlite', { series });
    const stores = storesOn(await fixture.open());
    accountId = await fundedAccount(stores, 1000);
    ({ token } = await stores.apiKeys.create(accountId, 'test'));
    node = await ScriptedNode.start();
    node.script = exchange => exchange.cutOut();
  });
  group.after.always(async () => {
    const hurry = AbortSignal.abort();
    for (const plane of replicas ?? []) await plane.drain(hurry);
    await node?.down();
    await fixture?.close();
    await rm(root, { recursive: true });
  });

  async function submit(plane: ControlPlane): Promise<void> {
    const answer = await submitTo(`http://127.0.0.1:${plane.ports.http}`, token, pictureBody(), {
      path: '/v1/matting',
    });
    const job = (await answer.json()) as WireJob;
    assert.equal(job.status, 'succeeded', JSON.stringify(job));
    const { url } = job.result!;
    links.set(url.slice(BASE_URL.length), await read(plane, url));
  }

  async function read(plane: ControlPlane, url: string): Promise<Buffer> {
    const answer = await fetch(urlOf(plane, new URL(url, BASE_URL).pathname));
    assert.equal(answer.status, 200, url);
    return Buffer.from(await answer.arrayBuffer());
  }

  async function readAll(): Promise<void> {
    for (const [link, bytes] of [...links]) {
      for (const plane of replicas) {
        const got = await read(plane, link).catch((error: Error) => error);
        // It ended meanwhile: a load balancer would have chosen the other.
        if (!Buffer.isBuffer(got) && !replicas.includes(plane)) continue;
        if (!Buffer.isBuffer(got)) failures.push(got.message);
        else if (!got.equals(bytes)) failures.push(`other bytes: ${link}`);
      }
    }
  }

  async function restart(step: string, storage: Storage): Promise<void> {
    for (const index of [0, 1] as const) {
      const next = await open(`${step}-${index}`, storage);
      const last = replicas[index];
      replicas = index === 0 ? [next, replicas[1]] : [replicas[0], next];
      const jobs = Array.from({ length: JOBS_EACH_STEP }, (_, n) => submit(replicas[n % 2]!));
      await Promise.all(jobs);
      await readAll();
      await last.drain(AbortSignal.abort());
    }
  }

  group('answers every link and ends every job all the while', async t => {
    const directory = { MATTING_STORAGE_URL: `file://${path.join(root, 'blobs')}` };
    const bucketUrl = store.url({ prefix: 'service' });
    const bucket = { MATTING_STORAGE_URL: bucketUrl };
    replicas = [await open('old-0', directory), await open('old-1', directory)];
    await Promise.all(Array.from({ length: 20 }, (_, n) => submit(replicas[n % 2]!)));
    const reading = new AbortController();
    const readers = (async () => {
      while (!reading.signal.aborted) {
        await readAll();
        await delay(PAUSE_MS);
      }
    })();

    await restart('both', { ...directory, MATTING_STORAGE_FALLBACK_URL: bucketUrl });
    const fallback = { MATTING_STORAGE_FALLBACK_URL: directory.MATTING_STORAGE_URL };
    await restart('swapped', { ...bucket, ...fallback, MATTING_RESULT_DOWNLOADS: 'redirect' });
    const blobs = path.join(root, 'blobs');
    const moved = await migrate(blobs, bucketUrl);
    t.true(moved.complete);
    t.true(moved.copied >= 20);
    await restart('new', { ...bucket, MATTING_RESULT_DOWNLOADS: 'redirect' });

    await readAll();
    reading.abort();
    await readers;
    t.deepEqual(failures, []);
    await assertMoved(blobs);
  });

  async function migrate(from: string, to: string) {
    const args = ['storage', 'migrate', from, to, '--remove', '--json'];
    const { code, out, err } = await runCli({}, ...args);
    assert.equal(code, 0, err);
    return JSON.parse(out);
  }

  /** The bucket has exactly the results, and each was paid once. */
  async function assertMoved(blobs: string): Promise<void> {
    const left: string[] = [];
    const old = await openStorage(blobs);
    for await (const name of old.listOlderThan(-3_600_000)) left.push(name);
    assert.deepEqual(left, []);
    const place = { Bucket: store.bucket, Prefix: 'service/' };
    const { Contents = [] } = await store.client.send(new ListObjectsV2Command(place));
    const results = Contents.filter(({ Key }) => Key?.startsWith('service/results/'));
    assert.equal(results.length, links.size);
    const inputs = Contents.filter(({ Key }) => Key?.startsWith('service/inputs/'));
    assert.deepEqual(inputs, []);
    const stores = storesOn(await fixture.open());
    const credits = await stores.ledger.credits(accountId);
    assert.deepEqual([credits?.reserved, credits?.charged], [0, links.size]);
    await assertBalanced(stores, accountId);
  }
}
