import { NoteSightings } from '@matting/nodes/note-sightings.ts';
import type { SightedNode } from '@matting/nodes/sighting-store.ts';
import { createTestDatabase, type TestDatabase } from '@matting/test-support/database.ts';
import ava from 'ava';
import type { Stores } from '../stores.ts';
import { storesOn } from './fixtures.ts';

const test = ava.serial;

let database: TestDatabase;
let stores: Stores;
let nowMs = 0;
let seen: SightedNode[] = [];
let calls: string[] = [];

test.before(async () => {
  database = await createTestDatabase('sqlite');
  stores = storesOn(await database.open());
});
test.after.always(() => database.close());
test.beforeEach(() => {
  nowMs = 0;
  seen = [];
  calls = [];
});

function sightingsOf(replica: string): NoteSightings {
  const { note, renew, remove } = stores.sightings;
  const counted =
    <A extends unknown[], R>(name: string, call: (...args: A) => R) =>
    (...args: A): R => {
      calls.push(name);
      return call(...args);
    };
  return new NoteSightings({
    replica,
    seen: () => seen,
    store: {
      note: counted('note', note),
      renew: counted('renew', renew),
      remove: counted('remove', remove),
    },
    onFailed: error => {
      throw error;
    },
    now: () => nowMs,
  });
}

const serving: SightedNode = { nodeId: 'n', bootId: 'b', state: 'serving', cause: null };
const expired: SightedNode = { ...serving, state: 'unreachable', cause: 'expired' };

test('writes nothing without nodes, once when something changes, and renews otherwise', async t => {
  const sightings = sightingsOf('quiet');
  await sightings.runRound();
  t.deepEqual(calls, []);
  seen = [serving];
  for (let round = 0; round < 5; round += 1) await sightings.runRound();
  t.deepEqual(calls, ['note']);
  nowMs += 10_000;
  for (let round = 0; round < 5; round += 1) await sightings.runRound();
  t.deepEqual(calls, ['note', 'renew']);
  seen = [expired];
  await sightings.runRound();
  t.deepEqual(calls, ['note', 'renew', 'note']);
  t.is((await stores.sightings.list()).all.at(0)?.state, 'unreachable');
  seen = [];
  await sightings.runRound();
  t.deepEqual((await stores.sightings.list()).all, []);
});

test('keeps the time of a node’s state when it writes again for another node', async t => {
  const sightings = sightingsOf('since');
  seen = [expired];
  await sightings.runRound();
  const sinceOf = async () => {
    const { all } = await stores.sightings.list();
    return all.find(({ replica, nodeId }) => replica === 'since' && nodeId === 'n')!.sinceMs;
  };
  const first = await sinceOf();
  nowMs += 60_000;
  seen = [expired, { ...serving, nodeId: 'other' }];
  await sightings.runRound();
  // The row starts a minute before it was written; the test took less.
  t.true((await sinceOf()) <= first);
});

test('writes rows again that another replica removed, and removes its own at its end', async t => {
  const sightings = sightingsOf('ending');
  seen = [serving];
  await sightings.runRound();
  await stores.sightings.remove('ending');
  nowMs += 10_000;
  await sightings.runRound();
  t.true((await stores.sightings.list()).replicas.includes('ending'));
  await sightings.stop();
  t.false((await stores.sightings.list()).replicas.includes('ending'));
});

test('removes the rows of killed replicas', async t => {
  await stores.sightings.note('killed', [{ ...serving, forMs: 0 }], -60_000);
  t.false((await stores.sightings.list()).replicas.includes('killed'));
  const sightings = sightingsOf('living');
  seen = [serving];
  await sightings.runRound();
  t.false(await stores.sightings.renew('killed', 60_000));
});

test('tries again with the next look if the database did not answer', async t => {
  let failing = true;
  const sightings = new NoteSightings({
    replica: 'failing',
    seen: () => [serving],
    store: {
      ...stores.sightings,
      note: (...args) =>
        failing ? Promise.reject(new Error('gone')) : stores.sightings.note(...args),
    },
    onFailed: () => undefined,
  });
  await t.throwsAsync(sightings.runRound(), { message: 'gone' });
  failing = false;
  await sightings.runRound();
  t.true((await stores.sightings.list()).replicas.includes('failing'));
});
