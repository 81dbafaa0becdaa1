import assert from 'node:assert/strict';
import { fc, holds } from '@matting/test-support/property-tests.ts';
import test from 'ava';
import { type Release, Semaphore, type SemaphoreOptions } from '../semaphore.ts';

class Busy extends Error {}
const BUSY = new Busy();

function semaphoreOf(options: Partial<SemaphoreOptions>): Semaphore {
  return new Semaphore({ max: 1, waitingMax: 100, refusal: () => BUSY, ...options });
}

function take(semaphore: Semaphore, use: Parameters<Semaphore['take']>[0]) {
  const taken = { state: 'waiting', release: (): void => assert.fail('it is not held') };
  semaphore.take(use).then(
    release => Object.assign(taken, { state: 'held', release }),
    () => Object.assign(taken, { state: 'refused' }),
  );
  return taken;
}

const statesOf = (all: readonly { readonly state: string }[]) => all.map(({ state }) => state);
const settled = () => new Promise(setImmediate);

test('a semaphore › refuses who waits too long, and nothing is left of them', async t => {
  const semaphore = semaphoreOf({ max: 2, waitMs: 5 });
  const release = await semaphore.take({ key: 'a' });
  await t.throwsAsync(semaphore.take({ key: 'a' }), { instanceOf: Busy });
  t.deepEqual([semaphore.held, semaphore.waiting], [1, 0]);
  release();
  await semaphore.take({ key: 'a' });
  t.is(semaphore.held, 1);
});

test('a semaphore › lets no more wait than may', async t => {
  for (const key of ['a', undefined]) {
    const semaphore = semaphoreOf({ max: key === undefined ? 1 : 2, waitingMax: 1 });
    const release = await semaphore.take({ key });
    const waiting = semaphore.take({ key });
    await t.throwsAsync(semaphore.take({ key }), { instanceOf: Busy });
    // A key within its share does not wait.
    if (key !== undefined) await semaphore.take({ key: 'b' });
    release();
    await waiting;
  }
});

test('a semaphore › is given back once, however often its release is called', async t => {
  const semaphore = semaphoreOf({ max: 4 });
  const [release] = [semaphore.takeNow({ key: 'a' }), semaphore.takeNow({ key: 'a' })];
  release();
  release();
  t.deepEqual([semaphore.held, semaphore.heldBy('a')], [1, 1]);
});

test('a semaphore › is given back when the work fails', async t => {
  const semaphore = semaphoreOf({});
  const failing = semaphore.run({}, async () => {
    throw new Error('not stored');
  });
  await t.throwsAsync(failing, { message: /not stored/ });
  t.is(semaphore.held, 0);
});

test('a semaphore › lets no newcomer overtake a caller to whom it was granted', async t => {
  const semaphore = semaphoreOf({});
  const release = await semaphore.take({ key: 'a' });
  const first = take(semaphore, { key: 'b' });
  release();
  const second = take(semaphore, { key: 'c' });
  await settled();
  t.deepEqual(statesOf([first, second]), ['held', 'waiting']);
  first.release();
  await settled();
  t.is(second.state, 'held');
});

test('a weighed caller › enters in the order of arrival, as far as there is room', async t => {
  const semaphore = semaphoreOf({ max: 10 });
  const [first, second, small] = [6, 6, 1].map(weight => take(semaphore, { weight }));
  assert.ok(first && second && small);
  await settled();
  t.deepEqual([semaphore.held, semaphore.waiting], [6, 2]);
  t.deepEqual(statesOf([first, second, small]), ['held', 'waiting', 'waiting']);
  first.release();
  await settled();
  t.deepEqual(statesOf([second, small]), ['held', 'held']);
  t.deepEqual([semaphore.held, semaphore.waiting], [7, 0]);
});

test('a weighed caller › enters alone if it weighs more than the semaphore holds', async t => {
  const semaphore = semaphoreOf({ max: 10 });
  const [large, other] = [take(semaphore, { weight: 100 }), take(semaphore, {})];
  await settled();
  t.deepEqual(statesOf([large, other]), ['held', 'waiting']);
  large.release();
  await settled();
  t.is(other.state, 'held');
  other.release();
  t.is(semaphore.held, 0);
});

test('a weighed caller › enters when the one before it gives up', async t => {
  const semaphore = semaphoreOf({ max: 10 });
  semaphore.takeNow({ weight: 6 });
  const leaving = new AbortController();
  const large = semaphore.take({ weight: 6, signal: leaving.signal });
  const small = take(semaphore, { weight: 4 });
  leaving.abort(new Error('the caller has gone'));
  await t.throwsAsync(large, { message: /the caller has gone/ });
  await settled();
  t.is(small.state, 'held');
  t.deepEqual([semaphore.held, semaphore.waiting], [10, 0]);
  for (const weight of [1, 10]) {
    const gone = semaphore.take({ weight, signal: leaving.signal });
    await t.throwsAsync(gone, { message: /the caller has gone/ });
  }
  t.is(semaphore.waiting, 0);
});

test('keys of a semaphore › that hold their share keep no other out', async t => {
  const semaphore = semaphoreOf({ max: 4 });
  const slow = Array.from({ length: 5 }, () => take(semaphore, { key: 'slow' }));
  await settled();
  t.deepEqual(statesOf(slow), ['held', 'held', 'waiting', 'waiting', 'waiting']);
  const [b, c] = [await semaphore.take({ key: 'b' }), await semaphore.take({ key: 'c' })];
  const late = take(semaphore, { key: 'd' });
  b();
  await settled();
  // Before the key at its share, although that came first.
  t.deepEqual(statesOf([late, slow[2]!]), ['held', 'waiting']);
  slow[0]!.release();
  await settled();
  // The last free one is for a key without any.
  t.is(slow[2]!.state, 'waiting');
  c();
  await settled();
  t.deepEqual(statesOf(slow), ['held', 'held', 'held', 'waiting', 'waiting']);
});

test('keys of a semaphore › are all granted what one release gives them room for', async t => {
  const semaphore = semaphoreOf({ max: 5 });
  const held = ['a', 'a', 'b'].map(key => semaphore.takeNow({ key }));
  // Two are free. Each key holds as many, or takes one and then does.
  const [second, third] = [take(semaphore, { key: 'b' }), take(semaphore, { key: 'a' })];
  await settled();
  t.deepEqual(statesOf([second, third]), ['held', 'waiting']);
  const fourth = take(semaphore, { key: 'b' });
  held[0]!();
  held[1]!();
  await settled();
  t.deepEqual(statesOf([third, fourth]), ['held', 'waiting']);
  t.is(semaphore.held, 3);
  second.release();
  await settled();
  t.is(fourth.state, 'held');
  t.deepEqual([semaphore.held, semaphore.waiting], [3, 0]);
});

test('keys of a semaphore › that ask for much are not passed over by those that ask for little', async t => {
  const semaphore = semaphoreOf({ max: 16 });
  const light = Array.from({ length: 40 }, (_, n) => take(semaphore, { key: n % 2 ? 'a' : 'b' }));
  await settled();
  const heavy = take(semaphore, { key: 'c', weight: 8 });
  const newcomer = take(semaphore, { key: 'd' });
  for (const one of light.filter(({ state }) => state === 'held')) {
    t.deepEqual(statesOf([heavy, newcomer]), ['waiting', 'waiting']);
    one.release();
    await settled();
    if (heavy.state === 'held') break;
  }
  t.is(heavy.state, 'held');
  t.true(light.some(({ state }) => state === 'waiting'));
});

test('keys of a semaphore › whose callers all wait leave others room to wait', async t => {
  const semaphore = semaphoreOf({ max: 4, waitingMax: 8 });
  const flood = Array.from({ length: 20 }, () => take(semaphore, { key: 'flood' }));
  await settled();
  const count = (state: string) => flood.filter(one => one.state === state).length;
  t.deepEqual([count('held'), count('waiting'), count('refused')], [2, 4, 14]);
  const good = ['b', 'b', 'b', 'c'].map(key => take(semaphore, { key }));
  await settled();
  t.deepEqual(statesOf(good), ['held', 'waiting', 'waiting', 'held']);
  flood[0]!.release();
  good[3]!.release();
  await settled();
  // Two are free. b and the flood hold one each, and the flood came first.
  t.deepEqual([good[1]!.state, count('held')], ['waiting', 3]);
  good[0]!.release();
  await settled();
  // b holds none now, so it goes before the flood.
  t.deepEqual([good[1]!.state, good[2]!.state, count('held')], ['held', 'waiting', 3]);
});

test('keys of a semaphore › that are busy get one part each and leave one, whatever came before', t => {
  const anyRun = fc.tuple(
    fc.integer({ min: 1, max: 200 }),
    fc.integer({ min: 1, max: 8 }),
    fc.array(fc.nat(7), { maxLength: 50 }),
  );
  const run = ([max, keys, before]: [number, number, number[]]) => {
    const semaphore = semaphoreOf({ max });
    const all = Array.from({ length: keys }, (): Release[] => []);
    const fill = (held: Release[], key: number) => {
      try {
        for (;;) held.push(semaphore.takeNow({ key: `${key}` }));
      } catch (error) {
        assert.ok(error instanceof Busy);
      }
    };
    for (const key of before) if (key < keys) fill(all[key]!, key);
    // Everything is released and taken again by the first that may.
    for (let round = 0; round < 4 * max * keys; round += 1) {
      all.reduce((a, b) => (b.length > a.length ? b : a)).pop()?.();
      all.forEach(fill);
    }
    const part = max / (keys + 1);
    for (const held of all) assert.ok(Math.abs(held.length - part) <= 1.5, `of ${max}`);
  };
  holds(t, [anyRun], run);
});
