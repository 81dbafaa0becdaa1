/** Places that accounts share, by their properties. */
import assert from 'node:assert/strict';
import { fc, holds } from '@matting/test-support/property-tests.ts';
import test from 'ava';
import { type PlaceUse, SharedPlaces } from './shared-places.ts';

const LIMITS = { max: 12, destinationMax: 8, slowMax: 6, slowDestinationsMax: 3 };

const use = (accountId: string, destination: string): PlaceUse => ({ accountId, destination });

/** Takes as many as there are, at most 20. */
function fill(places: SharedPlaces, accountId: string, destination: string): number {
  let taken = 0;
  while (taken < 20 && places.take(use(accountId, destination))) taken += 1;
  return taken;
}

function beSlow(places: SharedPlaces, destination: string): void {
  assert.ok(places.take(use('somebody', destination)));
  places.end(use('somebody', destination), true);
}

test('places › are half for an account alone, and half of those to one destination', t => {
  const places = new SharedPlaces(LIMITS);
  t.is(fill(places, 'one', 'a'), 4);
  t.is(fill(places, 'one', 'b'), 2);
  t.deepEqual(places.full().accounts, ['one']);
  t.deepEqual(places.full().uses, [use('one', 'a')]);
  t.is(fill(places, 'two', 'a'), 2);
  t.is(fill(places, 'two', 'c'), 1);
  t.is(places.free, 3);
  places.end(use('one', 'a'), false);
  places.end(use('one', 'b'), false);
  // Four held, five free.
  t.true(places.hasRoom(use('one', 'b')));
  t.deepEqual(places.full().accounts, []);
});

test('places › say which destinations are full for an account and which for all', t => {
  const places = new SharedPlaces({ ...LIMITS, max: 40 });
  for (const account of ['1', '2', '3', '4']) fill(places, account, 'a');
  t.deepEqual(places.full().destinations, ['a']);
  t.deepEqual(places.fullFor('5'), ['a']);
  places.end(use('4', 'a'), false);
  t.deepEqual(places.full().destinations, []);
  t.deepEqual([places.fullFor('1'), places.fullFor('4')], [['a'], []]);
});

test('places › to destinations that were slow are few, so that another always finds one', t => {
  const places = new SharedPlaces(LIMITS);
  for (const dead of ['x', 'y']) beSlow(places, dead);
  t.is(fill(places, 'one', 'x'), 3);
  t.is(fill(places, 'one', 'y'), 0);
  t.deepEqual(places.fullFor('one'), ['x', 'y']);
  t.deepEqual(places.full().slow, { accounts: ['one'], destinations: ['x', 'y'] });
  t.is(fill(places, 'one', 'healthy'), 3);
  t.is(fill(places, 'two', 'x'), 2, 'of the slow ones it has its part too');
  places.end(use('one', 'x'), false);
  // One that answered is like any other, and y alone has no more than its part.
  t.deepEqual(places.fullFor('one'), []);
});

test('places › remember a bounded number of slow destinations', t => {
  const places = new SharedPlaces(LIMITS);
  for (const dead of ['a', 'b', 'c', 'd']) beSlow(places, dead);
  t.deepEqual(places.full().slow.destinations, ['b', 'c', 'd']);
  t.is(places.taken, 0);
});

test('places › that were given back without a word change nothing of that', t => {
  const places = new SharedPlaces({ ...LIMITS, slowMax: 2 });
  beSlow(places, 'a');
  t.truthy(places.take(use('one', 'a')));
  places.end(use('one', 'a'), undefined);
  t.is(fill(places, 'one', 'a'), 1);
});

test('places › whatever is taken and given back, agree with what they say is full', t => {
  const anyUse = fc.record({
    accountId: fc.constantFrom('1', '2', '3', '4'),
    destination: fc.constantFrom('a', 'b', 'c', 'd', 'e'),
  });
  const anyStep = fc.record({ use: anyUse, slow: fc.option(fc.boolean(), { nil: undefined }) });
  holds(t, [fc.array(anyStep, { maxLength: 80, size: 'max' })], steps => {
    const places = new SharedPlaces(LIMITS);
    const held: PlaceUse[] = [];
    for (const step of steps) {
      if (places.take(step.use)) held.push(step.use);
      else if (held.length > 0) places.end(held.shift()!, step.slow);
      assert.equal(places.taken, held.length);
      const { destinations, accounts, uses, slow } = places.full();
      for (const accountId of ['1', '2', '3', '4', '5']) {
        for (const destination of ['a', 'b', 'c', 'd', 'e', 'f']) {
          const listed =
            destinations.includes(destination) ||
            accounts.includes(accountId) ||
            uses.some(u => u.accountId === accountId && u.destination === destination) ||
            (slow.accounts.includes(accountId) && slow.destinations.includes(destination));
          const room = places.hasRoom(use(accountId, destination));
          // One that holds nothing finds no place only where there is none at all.
          if (places.free > 0) assert.equal(listed, !room);
          const fullFor = places.fullFor(accountId).includes(destination);
          assert.equal(room, places.hasRoomFor(accountId) && !fullFor);
        }
      }
    }
  });
});
