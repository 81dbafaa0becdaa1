/**
 * Two control planes, killed ten times: every image ends, is charged once, and one message reports
 * the end. Needs: batches.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { assertBalanced, creditsOf } from '@matting/core/test/fixtures.ts';
import { Receiver } from '@matting/core/test/receiver.ts';
import { planeEnv } from '@matting/core/test/support/plane-env.ts';
import { submitTo } from '@matting/core/test/support/replicas.ts';
import { pngHeader } from '@matting/core/test/support/test-app.ts';
import { openSource } from '@matting/http/test/loopback-source.ts';
import { ScriptedNode } from '@matting/nodes/test/scripted-node.ts';
import { createTestDatabase } from '@matting/test-support/database.ts';
import { until as untilHolds } from '@matting/test-support/processes.ts';
import ava from 'ava';
import { openCaller, series, storesOn } from '../fixtures.ts';
import { ReplicaChild } from '../programs.ts';

const test = ava.serial;
test.beforeEach(t => t.timeout(900_000));

const SECRET = 'a raw callback secret of the tests';
const ITEMS = 250;
const KILLS = 10;
/** For all images, on a busy machine. */
const WAIT_MS_MAX = 300_000;
/** The node holds an image this long. */
const IMAGE_MS = 40;

const until = (holds: () => boolean | Promise<boolean>, what: string) =>
  untilHolds(holds, { timeoutMs: WAIT_MS_MAX, what });

async function openWorld(t: { teardown(end: () => Promise<unknown>): void }, credits: number) {
  const directory = await mkdtemp(path.join(tmpdir(), 'matting-batches-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const database = await createTestDatabase('mysql', { series });
  t.teardown(() => database.close());
  const source = await openSource((request, response) => {
    request.resume();
    const picture = Buffer.concat([pngHeader(4, 3), Buffer.from(request.url ?? '')]);
    response.writeHead(200, { 'content-type': 'image/png' }).end(picture);
  });
  t.teardown(async () => await source[Symbol.asyncDispose]());
  const receiver = await Receiver.open(SECRET);
  t.teardown(async () => await receiver[Symbol.asyncDispose]());
  const token = await openCaller(database.url, credits);
  const env = {
    ...planeEnv(directory, database.url),
    MATTING_ALLOW_PRIVATE_ADDRESSES: 'true',
    MATTING_ALLOW_HTTP_CALLBACKS: 'true',
    MATTING_SUBMISSIONS_PER_MINUTE: '1000000',
    MATTING_READS_PER_MINUTE: '1000000',
    MATTING_READS_REQUIRE_IDEMPOTENCY_KEY: 'false',
  };
  const node = await ScriptedNode.start({
    imagesMax: 4,
    script: async exchange => {
      exchange.admit();
      const input = await exchange.receive();
      await delay(IMAGE_MS);
      exchange.answer(input);
    },
  });
  t.teardown(() => node.down());
  const stores = storesOn(await database.open());
  return { database, source, receiver, token, env, node, stores };
}

type World = Awaited<ReturnType<typeof openWorld>>;

function batchOf({ source, receiver }: World) {
  const items = Array.from({ length: ITEMS }, (_, item) => ({
    image_url: `${source.url}/${item}.png`,
    reference: `image ${item}`,
  }));
  return { items, callback_url: receiver.url(), callback_secret: SECRET };
}

async function readBatch({ http }: ReplicaChild['ports'], token: string, id: string) {
  const authorization = `Bearer ${token}`;
  const url = `http://127.0.0.1:${http}/v1/matting/batches/${id}`;
  const answer = await fetch(url, { headers: { authorization } });
  return (await answer.json()) as { status: string; counts: Record<string, number> };
}

test('images of a batch end once each, whoever is killed meanwhile', async t => {
  const world = await openWorld(t, ITEMS);
  const { token, env, node, stores, receiver } = world;
  const start = (name: string) => ReplicaChild.start(env, { name });
  const replicas = [await start('first'), await start('second')];
  t.teardown(() => Promise.all(replicas.map(one => one.kill())));
  const join = () => node.join(replicas[0]!.ports.registry);
  await join();
  const key = randomUUID();
  const path = '/v1/matting/batches';
  const origin = `http://127.0.0.1:${replicas[1]!.ports.http}`;
  const answer = await submitTo(origin, token, batchOf(world), { path, key });
  assert.equal(answer.status, 202, await answer.clone().text());
  const { batch_id: id } = (await answer.json()) as { batch_id: string };
  const ended = async () => {
    const { succeeded = 0, failed = 0 } = (await readBatch(replicas[0]!.ports, token, id)).counts;
    return succeeded + failed;
  };
  for (let kill = 0; kill < KILLS; kill += 1) {
    const from = Math.round(((kill + 0.5) * ITEMS) / (KILLS + 1));
    await until(async () => (await ended()) >= from, `${from} images`);
    const index = kill % 2;
    await replicas[index]!.kill();
    replicas[index] = await start(`replica-${kill}`);
    await join();
  }
  await until(
    async () => (await readBatch(replicas[0]!.ports, token, id)).status === 'finished',
    'the end',
  );
  const { counts } = await readBatch(replicas[0]!.ports, token, id);
  t.is(counts.succeeded, ITEMS, JSON.stringify(counts));
  const [account] = await stores.accounts.list();
  const credits = await creditsOf(stores, account!.id);
  t.deepEqual([credits?.available, credits?.reserved], [0, 0]);
  t.deepEqual(
    [credits?.sums.reserve, credits?.sums.charge, credits?.sums.release],
    [ITEMS, ITEMS, 0],
  );
  await assertBalanced(stores);
  await until(() => receiver.of(id).some(({ status }) => status === 204), 'the message');
  const told = await world.stores.outbox.list({ limit: 10 });
  t.is(told.length, 1);
  t.true(receiver.of(id).every(({ signatureHolds }) => signatureHolds));
  t.log(`${receiver.of(id).length} deliveries of one message`);
});
