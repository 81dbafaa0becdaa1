/** Properties of the choice of the next job, for any queue. */
import assert from 'node:assert/strict';
import { fc, holds } from '@matting/test-support/property-tests.ts';
import test from 'ava';
import { orderJobs, type WaitingJob } from './fair-order.ts';
import { JOB_CLASSES } from './job.ts';
import { chooseLanes, LaneCache } from './lane-cache.ts';
import { ASYNC_HEAD_START_MS, type JobLane, laneKey, queuePositionMs } from './lanes.ts';

const LANES_MAX = 32;
const NOW_MS = 1_000_000;

const anyJob = fc.record({
  class: fc.constantFrom(...JOB_CLASSES),
  accountId: fc.constantFrom('a', 'b', 'c'),
  apiKeyId: fc.constantFrom('1', '2'),
  createdAtMs: fc.integer({ min: NOW_MS - 2 * ASYNC_HEAD_START_MS, max: NOW_MS }),
});
const anyQueue = fc.array(anyJob, { maxLength: 60, size: 'max' }).map(jobs =>
  jobs.map((job, id) => ({
    ...job,
    apiKeyId: `${job.accountId}${job.apiKeyId}`,
    readAtMs: NOW_MS,
    id,
  })),
);
const anyCounts = fc.dictionary(fc.constantFrom('a', 'b', 'c'), fc.nat(5));
const none = { accounts: new Map(), apiKeys: new Map() };

const laneOf = (changes: Partial<JobLane>): JobLane => ({
  needsDownload: false,
  class: 'sync',
  accountId: 'a',
  apiKeyId: '1',
  firstQueueAtMs: 1,
  readAtMs: NOW_MS,
  ...changes,
});

const isUrgent = (job: WaitingJob) =>
  job.class === 'sync' || job.readAtMs - job.createdAtMs >= ASYNC_HEAD_START_MS;

test('orderJobs › loses none and makes none up', t => {
  holds(t, [anyQueue], queue => {
    const ids = orderJobs(queue, none).map(job => job.id);
    assert.deepEqual(
      ids.toSorted((a, b) => a - b),
      queue.map(job => job.id),
    );
  });
});

test('orderJobs › puts the synchronous and the aged before the rest', t => {
  holds(t, [anyQueue], queue => {
    const urgent = orderJobs(queue, none).map(isUrgent);
    assert.deepEqual(
      urgent,
      urgent.toSorted((a, b) => Number(b) - Number(a)),
    );
  });
});

test('orderJobs › lets a group age by its rule, so that its hundred jobs never hide a neighbour’s', t => {
  const one = { class: 'async' as const, apiKeyId: '1', readAtMs: NOW_MS };
  const orderAt = (minutes: number) => {
    const createdAtMs = NOW_MS - minutes * 60_000;
    const group = { id: 'group', item: 0 };
    const old = { ...one, accountId: 'a', createdAtMs, group };
    const fresh = { ...one, accountId: 'b', createdAtMs: NOW_MS };
    const accounts = new Map([['a', 4]]);
    const rule = { syncSlotsShare: 0.25, headStartMs: 30 * 60_000 };
    const ordered = orderJobs([old, fresh], { accounts, apiKeys: new Map() }, rule);
    return ordered.map(job => job.accountId);
  };
  t.deepEqual(orderAt(29), ['b', 'a']);
  t.deepEqual(orderAt(30), ['a', 'b']);
});

test('orderJobs › never lets an account run ahead of another by more than one while both wait', t => {
  holds(t, [anyQueue, anyCounts], (queue, counts) => {
    const same = queue.map(job => ({ ...job, class: 'sync' as const }));
    const running = new Map(Object.entries(counts));
    const ordered = orderJobs(same, { accounts: running, apiKeys: new Map() });
    const counted = new Map(running);
    for (const [index, job] of ordered.entries()) {
      const mine = counted.get(job.accountId) ?? 0;
      const waiting = new Set(ordered.slice(index).map(({ accountId }) => accountId));
      for (const other of waiting) assert.ok(mine <= (counted.get(other) ?? 0));
      counted.set(job.accountId, mine + 1);
    }
  });
});

test('orderJobs › shares an account between its keys, and keeps the order within a key', t => {
  holds(t, [anyQueue], queue => {
    const same = queue.map(job => ({ ...job, class: 'sync' as const, accountId: 'a' }));
    const ordered = orderJobs(same, none);
    const counted = new Map<string, number>();
    for (const [index, job] of ordered.entries()) {
      const mine = counted.get(job.apiKeyId) ?? 0;
      const later = ordered.slice(index + 1);
      for (const other of later) assert.ok(mine <= (counted.get(other.apiKeyId) ?? 0));
      const ownLater = later.filter(({ apiKeyId }) => apiKeyId === job.apiKeyId);
      for (const other of ownLater) assert.ok(job.createdAtMs <= other.createdAtMs);
      counted.set(job.apiKeyId, mine + 1);
    }
  });
});

const anyLanes = fc
  .uniqueArray(fc.integer({ min: 0, max: 199 }), { maxLength: 120, size: 'max' })
  .chain(ids =>
    fc.tuple(
      fc.constant(ids),
      fc.array(fc.integer({ min: NOW_MS - 100_000, max: NOW_MS + 60_000 }), {
        minLength: ids.length,
        maxLength: ids.length,
      }),
    ),
  )
  .map(([ids, positions]) =>
    ids.map((id, index) =>
      laneOf({
        class: id % 3 === 0 ? 'sync' : 'async',
        accountId: `account-${id % 7}`,
        apiKeyId: `key-${id}`,
        firstQueueAtMs: positions[index] ?? 0,
      }),
    ),
  );
const countsOfAccounts = fc.dictionary(fc.integer({ min: 0, max: 6 }).map(String), fc.nat(9));
const anyStuck = fc.uniqueArray(fc.integer({ min: 0, max: 199 }), {
  maxLength: 120,
  size: 'max',
});
const sharesOf = (counts: Record<string, number>) => ({
  accounts: new Map(Object.entries(counts).map(([id, count]) => [`account-${id}`, count])),
  apiKeys: new Map<string, number>(),
});
const isUrgentLane = (lane: JobLane) => lane.class === 'sync' || lane.firstQueueAtMs <= NOW_MS;

test('chooseLanes › chooses among the lanes there are, as many as it may', t => {
  holds(t, [anyLanes, countsOfAccounts], (lanes, counts) => {
    const chosen = chooseLanes(lanes, sharesOf(counts), new Set());
    assert.equal(chosen.length, Math.min(LANES_MAX, lanes.length));
    assert.equal(new Set(chosen).size, chosen.length);
    assert.ok(chosen.every(lane => lanes.includes(lane)));
  });
});

const stuckOf = (ids: readonly number[], lanes: readonly JobLane[]) =>
  new Set(lanes.filter(lane => ids.includes(Number(lane.apiKeyId.slice(4)))).map(laneKey));

test('chooseLanes › gives no account a further lane while one with fewer has some left out', t => {
  holds(t, [anyLanes, countsOfAccounts, anyStuck], (lanes, counts, stuckIds) => {
    const shares = sharesOf(counts);
    const chosen = chooseLanes(lanes, shares, stuckOf(stuckIds, lanes));
    const left = lanes.filter(lane => !chosen.includes(lane));
    const takenBy = (id: string) =>
      (shares.accounts.get(id) ?? 0) + chosen.filter(lane => lane.accountId === id).length;
    for (const out of left) {
      for (const lane of chosen) {
        assert.ok(Number(isUrgentLane(lane)) >= Number(isUrgentLane(out)));
        const ofAccount = chosen.filter(({ accountId }) => accountId === lane.accountId);
        if (ofAccount.some(each => isUrgentLane(each) !== isUrgentLane(out))) continue;
        assert.ok(takenBy(lane.accountId) - 1 <= takenBy(out.accountId));
      }
    }
  });
});

test('chooseLanes › drops an account’s lanes without room before those that had some', t => {
  holds(t, [anyLanes, countsOfAccounts, anyStuck], (lanes, counts, stuckIds) => {
    const stuck = stuckOf(stuckIds, lanes);
    const chosen = chooseLanes(lanes, sharesOf(counts), stuck);
    const left = lanes.filter(lane => !chosen.includes(lane));
    for (const out of left.filter(lane => !stuck.has(laneKey(lane)))) {
      const kept = chosen.filter(
        lane => lane.accountId === out.accountId && isUrgentLane(lane) === isUrgentLane(out),
      );
      assert.ok(kept.every(lane => !stuck.has(laneKey(lane))));
    }
  });
});

test('no asynchronous job waits for ever behind synchronous ones', t => {
  t.true(queuePositionMs('sync', NOW_MS) < queuePositionMs('async', NOW_MS));
  const later = NOW_MS + ASYNC_HEAD_START_MS + 1;
  t.true(queuePositionMs('async', NOW_MS) < queuePositionMs('sync', later));
});

const lane = (apiKeyId: string) => laneOf({ needsDownload: true, class: 'async', apiKeyId });
const job = (apiKeyId: string) => ({
  state: 'accepted' as const,
  class: 'async' as const,
  accountId: 'a',
  apiKeyId,
  createdAtMs: 1,
  readAtMs: 1,
});
const keysOf = (cache: LaneCache) => cache.choose(none).lanes.map(({ apiKeyId }) => apiKeyId);

test('known lanes › are asked for at first and when they are outdated', t => {
  const cache = new LaneCache();
  t.truthy(cache.outdated);
  cache.update([lane('1')]);
  t.true(!cache.outdated);
  cache.outdate();
  t.truthy(cache.outdated);
});

test('known lanes › are forgotten when nothing is found in them', t => {
  const cache = new LaneCache();
  cache.update([lane('1'), lane('2')]);
  const { lanes } = cache.choose(none);
  cache.listed(lanes, [job('2')], []);
  t.deepEqual(keysOf(cache), ['2']);
});

test('known lanes › are kept where hosts were passed over, whose jobs are not listed', t => {
  const cache = new LaneCache();
  cache.update([lane('1'), lane('2')]);
  const [first, second] = cache.choose(none).lanes;
  assert.ok(first !== undefined && second !== undefined);
  t.truthy(cache.listed([{ ...first, exceptHosts: ['slow'] }, second], [], []));
  t.deepEqual(keysOf(cache), ['1']);
  t.true(!cache.listed([{ ...first, exceptHosts: ['slow'] }], [], []));
  t.truthy(cache.listed([first], [], []));
  t.deepEqual(keysOf(cache), []);
});

test('known lanes › are skipped, not forgotten, if none of their jobs could begin', t => {
  const cache = new LaneCache();
  cache.update([lane('1'), lane('2')]);
  const { lanes, all } = cache.choose(none, ({ apiKeyId }) => apiKeyId !== '1');
  t.deepEqual([lanes.map(({ apiKeyId }) => apiKeyId), all], [['2'], true]);
  cache.listed(lanes, [], []);
  t.deepEqual(keysOf(cache), ['1']);
});

test('known lanes › are kept if a job came during the round', t => {
  const cache = new LaneCache();
  cache.update([lane('1')]);
  const { lanes } = cache.choose(none);
  cache.add(job('1'));
  cache.add(job('3'));
  cache.listed(lanes, [], []);
  t.deepEqual(keysOf(cache), ['1', '3']);
});

test('known lanes › move behind the others if none of their jobs found room', t => {
  const cache = new LaneCache();
  cache.update(Array.from({ length: 40 }, (_, index) => lane(String(index))));
  const first = cache.choose(none);
  t.false(first.all);
  cache.listed(
    first.lanes,
    first.lanes.map(({ apiKeyId }) => job(apiKeyId)),
    [],
  );
  const second = keysOf(cache);
  for (let index = 32; index < 40; index += 1) t.true(second.includes(String(index)));
});
