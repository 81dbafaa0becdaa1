/**
 * What an account's requests take of the database: one that holds all it can, and has as many wait
 * as it can, delays and refuses nobody else.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ContractError } from '#contract/errors.ts';
import { Authenticate } from '../../src/services/authenticate.ts';
import { DatabaseTurns } from '../../src/services/database-turns.ts';
import { API_KEY_MEMORY_MS } from '../../src/store/accounts/api-key-store.ts';
import { imageBody, openTestApp, type TestApp } from '../support/test-app.ts';

const TURNS_MAX = 8;
const WAITING_MAX = 16;
const RESULTS = '/v1/results/';

let app: TestApp;
let other: { readonly authorization: string };
before(async () => {
  app = await openTestApp({ databaseTurns: { turnsMax: TURNS_MAX, waitingMax: WAITING_MAX } });
  const account = await app.stores.accounts.create('other');
  assert.ok(account);
  await app.stores.ledger.grant(account.id, 10, 'test');
  other = { authorization: `Bearer ${(await app.stores.apiKeys.create(account.id, 'a')).token}` };
});
after(() => app.close());

/** Takes turns until one more is refused: some are held until `free`, the others wait. */
function takeAll(take: (work: () => Promise<void>) => Promise<void>) {
  const free = Promise.withResolvers<void>();
  let refused = 0;
  let done = 0;
  const taken: Promise<unknown>[] = [];
  const one = () =>
    take(() => free.promise).then(
      () => {
        done += 1;
      },
      (error: unknown) => {
        assert.ok(error instanceof ContractError && error.code === 'SERVICE_UNAVAILABLE');
        refused += 1;
      },
    );
  return {
    counts: () => ({ refused, done }),
    fill: async (count: number) => {
      for (let n = 0; n < count; n += 1) taken.push(one());
      await new Promise(setImmediate);
    },
    end: async () => {
      free.resolve();
      await Promise.all(taken);
    },
  };
}

test('others read and submit while an account holds its turns and its places to wait', async () => {
  const { job_id: own } = (await app.post('/v1/matting/jobs', imageBody())).json();
  const hostile = takeAll(work => app.databaseTurns.ofAccount(app.accountId, work));
  await hostile.fill(100);
  const taken = TURNS_MAX / 2 + WAITING_MAX / 2;
  assert.deepEqual(hostile.counts(), { refused: 100 - taken, done: 0 });
  try {
    const made = await app.post('/v1/matting/jobs', imageBody(), other);
    assert.equal(made.statusCode, 202, made.payload);
    const reads = [`/v1/matting/jobs/${made.json().job_id}`, '/v1/account', '/v1/account/keys'];
    for (const path of reads) {
      const answer = await app.get(path, other);
      assert.equal(answer.statusCode, 200, answer.payload);
    }
    const late = await app.get(`/v1/matting/jobs/${own}`);
    assert.equal(late.statusCode, 503, late.payload);
    assert.equal(late.json().code, 'SERVICE_UNAVAILABLE');
    assert.equal(late.headers['retry-after'], '2');
    const files = await app.storedFiles();
    const refused = await app.post('/v1/matting/jobs', imageBody());
    assert.equal(refused.statusCode, 503, refused.payload);
    assert.deepEqual(await app.storedFiles(), files);
    assert.equal(hostile.counts().done, 0);
  } finally {
    await hostile.end();
  }
  assert.equal((await app.get(`/v1/matting/jobs/${own}`)).statusCode, 200);
});

test('one link, or one key, that is asked for without end keeps nobody from another', async () => {
  const { job_id: jobId } = (await app.post('/v1/matting/jobs', imageBody(), other)).json();
  const { token } = await app.succeedJob(jobId);
  const hostile = takeAll(work => app.databaseTurns.ofStranger('one', work));
  await hostile.fill(20);
  try {
    assert.equal((await app.get(RESULTS + token)).statusCode, 200);
    const key = await app.createKey();
    const answer = await app.get('/v1/account', { authorization: `Bearer ${key}` });
    assert.equal(answer.statusCode, 200, answer.payload);
    assert.equal(hostile.counts().done, 0);
  } finally {
    await hostile.end();
  }
});

test('a submission that found no turn for its row leaves no image behind', async () => {
  const files = await app.storedFiles();
  let turns = 0;
  const { ofAccount } = app.databaseTurns;
  // The row is the second that it asks for, after its Idempotency-Key: the API key is remembered.
  app.databaseTurns.ofAccount = <T>(accountId: string, work: () => Promise<T>): Promise<T> => {
    turns += 1;
    if (turns < 2) return ofAccount.call(app.databaseTurns, accountId, work) as Promise<T>;
    return Promise.reject(new ContractError('SERVICE_UNAVAILABLE', 'no turn'));
  };
  try {
    const answer = await app.post('/v1/matting/jobs', imageBody(), other);
    assert.equal(answer.statusCode, 503, answer.payload);
    assert.equal(turns, 2);
  } finally {
    app.databaseTurns.ofAccount = ofAccount;
  }
  assert.deepEqual(await app.storedFiles(), files);
});

/** Authentication that counts the rows it reads. */
function counted(turns: Pick<DatabaseTurns, 'ofAccount' | 'ofStranger'>) {
  const { apiKeys } = app.stores;
  let reads = 0;
  const authenticate = new Authenticate(
    {
      recall: token => apiKeys.recall(token),
      authenticate: token => {
        reads += 1;
        return apiKeys.authenticate(token);
      },
    },
    turns,
  );
  return { authenticate, reads: () => reads };
}

test('a thousand requests with one key that is not remembered read its row once', async () => {
  const token = await app.createKey();
  const { authenticate, reads } = counted(app.databaseTurns);
  const all = Array.from({ length: 1000 }, () => authenticate.authenticate(token));
  for (const owner of await Promise.all(all)) assert.ok(typeof owner === 'object');
  assert.equal(reads(), 1);
});

test('a key that was good is read again in its account’s turns, whatever strangers do', async () => {
  const turns = new DatabaseTurns({ turnsMax: TURNS_MAX });
  const { authenticate, reads } = counted(turns);
  const token = await app.createKey();
  assert.ok(typeof (await authenticate.authenticate(token)) === 'object');
  const strangers = [1, 2, 3].map(n => takeAll(work => turns.ofStranger(String(n), work)));
  for (const stranger of strangers) await stranger.fill(10);
  try {
    // The memory's own time: there is no clock of the test's in the store.
    while (true) {
      const known = app.stores.apiKeys.recall(token);
      assert.ok(typeof known === 'object');
      if (!known.isFresh) break;
      await delay(API_KEY_MEMORY_MS / 10);
    }
    const owner = await authenticate.authenticate(token);
    assert.ok(typeof owner === 'object' && 'accountId' in owner);
    assert.deepEqual([owner.accountId, reads()], [app.accountId, 2]);
  } finally {
    await Promise.all(strangers.map(stranger => stranger.end()));
  }
});
