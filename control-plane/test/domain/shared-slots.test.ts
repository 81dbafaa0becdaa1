import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SharedSlots } from '../../src/domain/shared-slots.ts';

class Busy extends Error {}

function slotsOf(options: { slotsMax: number; waitingMax?: number; waitMs?: number }): SharedSlots {
  return new SharedSlots({ waitingMax: 100, refusal: () => new Busy(), ...options });
}

/** What became of a taking by now. */
function watch(taking: Promise<void>) {
  const seen: { state: 'waiting' | 'held' | 'refused' } = { state: 'waiting' };
  taking.then(
    () => {
      seen.state = 'held';
    },
    () => {
      seen.state = 'refused';
    },
  );
  return seen;
}

const settled = () => new Promise(setImmediate);

test('who waits too long is refused and leaves nothing behind', async () => {
  const slots = slotsOf({ slotsMax: 2, waitMs: 5 });
  await slots.take('a');
  await assert.rejects(slots.take('a'), Busy);
  assert.deepEqual([slots.held, slots.waiting], [1, 0]);
  slots.release('a');
  await slots.take('a');
  assert.equal(slots.held, 1);
});

test('no more wait than may', async () => {
  const slots = slotsOf({ slotsMax: 2, waitingMax: 1 });
  await slots.take('a');
  const waiting = slots.take('a');
  await assert.rejects(slots.take('a'), Busy);
  // Whose share is free does not wait.
  await slots.take('b');
  slots.release('a');
  await waiting;
});

test('a slot that is not held cannot be released', () => {
  assert.throws(() => slotsOf({ slotsMax: 1 }).release('a'), /not held/);
});

test('an account that holds its share keeps no other out', async () => {
  const slots = slotsOf({ slotsMax: 4 });
  const slow = Array.from({ length: 5 }, () => watch(slots.take('slow')));
  await settled();
  assert.deepEqual(
    slow.map(({ state }) => state),
    ['held', 'held', 'waiting', 'waiting', 'waiting'],
  );
  await slots.take('b');
  await slots.take('c');
  const late = watch(slots.take('d'));
  slots.release('b');
  await settled();
  // Before those of the account at its share, though they came first.
  assert.equal(late.state, 'held');
  assert.equal(slow[2]?.state, 'waiting');
  slots.release('slow');
  await settled();
  // The last free slot is for an account that has none.
  assert.equal(slow[2]?.state, 'waiting');
  slots.release('c');
  await settled();
  assert.deepEqual(
    slow.map(({ state }) => state),
    ['held', 'held', 'held', 'waiting', 'waiting'],
  );
});

test('one release grants slots to all that have room by it', async () => {
  const slots = slotsOf({ slotsMax: 5 });
  for (const accountId of ['a', 'a', 'b']) await slots.take(accountId);
  // Two are free, and each holds as many or takes one and then does.
  const [second, third] = [watch(slots.take('b')), watch(slots.take('a'))];
  await settled();
  assert.deepEqual([second.state, third.state], ['held', 'waiting']);
  const fourth = watch(slots.take('b'));
  slots.release('a');
  slots.release('a');
  await settled();
  assert.deepEqual([third.state, fourth.state, slots.held], ['held', 'waiting', 3]);
  slots.release('b');
  await settled();
  assert.deepEqual([fourth.state, slots.held, slots.waiting], ['held', 3, 0]);
});

test('an account whose callers all wait leaves others room to wait', async () => {
  const slots = slotsOf({ slotsMax: 4, waitingMax: 8 });
  const flood = Array.from({ length: 20 }, () => watch(slots.take('flood')));
  await settled();
  const count = (state: string) => flood.filter(seen => seen.state === state).length;
  assert.deepEqual([count('held'), count('waiting'), count('refused')], [2, 4, 14]);
  const good = ['b', 'b', 'b', 'c'].map(accountId => watch(slots.take(accountId)));
  await settled();
  assert.deepEqual(
    good.map(({ state }) => state),
    ['held', 'waiting', 'waiting', 'held'],
  );
  slots.release('flood');
  slots.release('c');
  await settled();
  // Two are free; b and the flood hold one each, and the flood came first.
  assert.deepEqual([good[1]?.state, count('held')], ['waiting', 3]);
  slots.release('b');
  await settled();
  // Now b holds none: its turn is before the flood's.
  assert.deepEqual([good[1]?.state, good[2]?.state, count('held')], ['held', 'waiting', 3]);
});

test('a newcomer does not overtake a caller that was granted a slot', async () => {
  const slots = slotsOf({ slotsMax: 1 });
  await slots.take('a');
  const first = watch(slots.take('b'));
  slots.release('a');
  const second = watch(slots.take('c'));
  await settled();
  assert.deepEqual([first.state, second.state], ['held', 'waiting']);
  slots.release('b');
  await settled();
  assert.equal(second.state, 'held');
});
