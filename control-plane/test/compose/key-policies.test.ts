/**
 * Policies of keys over whole control planes that share a database: what is changed at one place
 * holds at all of them within what a replica remembers of a key; and a cap that is neither overrun
 * nor lost while replicas are killed in the middle of submissions.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import {
  createTestDatabase,
  describeOnDatabases,
  type TestDatabase,
} from '../../../test/support/database.ts';
import type { ApiKey } from '../../src/store/accounts/api-key-store.ts';
import { API_KEY_MEMORY_MS } from '../../src/store/accounts/api-key-store.ts';
import type { Stores } from '../../src/store/stores.ts';
import {
  assertBalanced,
  claimed,
  fundedAccount,
  IMAGE_FAULT,
  storesOn,
} from '../store/fixtures.ts';
import { planeEnv, ReplicaChild } from '../support/child.ts';
import { type Caller, pictureBody, Replicas, submitTo } from '../support/replicas.ts';

const BY = { kind: 'operator' } as const;
const ASYNC = '/v1/matting/jobs';

describeOnDatabases('keys at two replicas', dialect => {
  const replicas = Replicas.use(dialect);
  let caller: Caller;
  before(async () => {
    caller = await replicas.createCaller(50);
  });

  /** What both answer, once what they remember of the key is over. */
  async function statuses(of: Caller): Promise<number[]> {
    await delay(API_KEY_MEMORY_MS);
    const asked = [0, 1].map(replica => replicas.get(of, '/v1/account', { replica }));
    return (await Promise.all(asked)).map(({ status }) => status);
  }

  it('follow a change, a rotation and a revocation that another process made', async () => {
    const { apiKeys } = replicas.stores;
    const { accountId, apiKeyId } = caller;
    const by = { accountId, actor: BY };
    assert.deepEqual(await statuses(caller), [200, 200]);
    await apiKeys.change(apiKeyId, by, { policy: { scopes: ['submit'] } });
    assert.deepEqual(await statuses(caller), [403, 403]);
    await apiKeys.change(apiKeyId, by, { policy: {} });
    assert.deepEqual(await statuses(caller), [200, 200]);
    const rotated = await apiKeys.rotate(apiKeyId, { ...by, overlapMs: 60_000 });
    assert.ok(rotated);
    const next = { ...caller, token: rotated.token };
    // The new secret is good at once, wherever the old one is remembered.
    for (const replica of [0, 1]) {
      assert.equal((await replicas.get(next, '/v1/account', { replica })).status, 200);
    }
    assert.deepEqual(
      [await statuses(caller), await statuses(next)],
      [
        [200, 200],
        [200, 200],
      ],
    );
    const key = randomUUID();
    const body = pictureBody();
    const made = await replicas.post(caller, body, { path: ASYNC, key, replica: 0 });
    const again = await replicas.post(next, body, { path: ASYNC, key, replica: 1 });
    assert.equal(again.body.job_id, made.body.job_id, 'one job under both secrets');
    await apiKeys.rotate(apiKeyId, { ...by, overlapMs: 0 });
    assert.deepEqual(
      [await statuses(caller), await statuses(next)],
      [
        [401, 401],
        [401, 401],
      ],
    );
    const other = await replicas.addKey(accountId);
    assert.deepEqual(await statuses(other), [200, 200]);
    await apiKeys.revoke(other.apiKeyId, by);
    assert.deepEqual(await statuses(other), [401, 401]);
  });
});

describeOnDatabases('a cap and replicas that are killed', dialect => {
  const CAP = 25;
  const CREDITS = 60;
  const REQUESTS = 60;
  let directory: string;
  let test: TestDatabase;
  let stores: Stores;
  let accountId: string;
  let key: ApiKey;
  let token: string;
  const children: ReplicaChild[] = [];

  before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'matting-caps-'));
    test = await createTestDatabase(dialect);
    stores = storesOn(await test.open());
    accountId = await fundedAccount(stores, CREDITS);
    const policy = { cap: { credits: CAP, period: 'total' } } as const;
    ({ key, token } = await stores.apiKeys.create(accountId, 'capped', { policy }));
  });
  after(async () => {
    await Promise.all(children.map(child => child.end()));
    await test.close();
    await rm(directory, { recursive: true, force: true });
  });

  async function start(index: number): Promise<void> {
    const env = planeEnv(directory, test.url);
    children[index] = await ReplicaChild.start(env, { name: `replica-${index}` });
  }

  const kill = (index: number) => children[index]?.end();

  /** As a client does: the same request at one replica and the other until it is answered. */
  async function submit(turn: number): Promise<number> {
    const idempotencyKey = randomUUID();
    const body = pictureBody();
    for (let attempt = turn; ; attempt += 1) {
      const { http = 0 } = children[attempt % 2]?.ports ?? {};
      try {
        const answer = await submitTo(`http://127.0.0.1:${http}`, token, body, {
          key: idempotencyKey,
        });
        await answer.arrayBuffer();
        if (answer.status < 500) return answer.status;
      } catch {
        // Killed: the next one.
      }
      await delay(20);
    }
  }

  it('is used to the credit, and given back what failed', async () => {
    await Promise.all([start(0), start(1)]);
    const first = Array.from({ length: REQUESTS / 2 }, (_, turn) => submit(turn));
    await Promise.race(first);
    await kill(0);
    await start(0);
    await kill(1);
    await start(1);
    const answers = await Promise.all(first);
    assert.deepEqual([...new Set(answers)].sort(), [202, 402]);
    const made = () =>
      stores.jobs.list({
        states: ['accepted', 'fetching', 'ready', 'running'],
        accountId,
        endedWithinMs: 0,
        limit: 100,
      });
    const open = await made();
    assert.equal(open.length, CAP, 'as many jobs as the cap has credits, none more');
    const used = async () => (await stores.apiKeys.find(key.id))?.capUse?.used;
    assert.equal(await used(), CAP);

    // Jobs fail and give back while others are submitted, and a replica dies again.
    const back = open.slice(0, 10);
    const second = Array.from({ length: REQUESTS / 2 }, (_, turn) => submit(turn));
    const failing = back.map(async job => {
      const claim = await claimed(stores, job, { holder: 'test' });
      assert.ok(await stores.jobs.fail(claim, IMAGE_FAULT));
    });
    await Promise.race(second);
    await kill(0);
    await start(0);
    await Promise.all([...failing, ...second]);
    const left = (await made()).length;
    assert.ok(left <= CAP);
    assert.equal(await used(), left, 'the count is that of the jobs that hold or took a credit');
    const balances = await stores.ledger.balances(accountId);
    assert.deepEqual(balances, { available: CREDITS - left, reserved: left });
    await assertBalanced(stores);
    while (await submit(0).then(status => status === 202));
    assert.equal(await used(), CAP);
    assert.equal((await made()).length, CAP);
    await assertBalanced(stores);
  });
});
