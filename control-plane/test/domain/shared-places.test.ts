import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { fc } from '../../../test/support/property-tests.ts';
import { type PlaceUse, SharedPlaces } from '../../src/domain/shared-places.ts';

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

describe('shared places', () => {
  it('are half for an account alone, and half of those to one destination', () => {
    const places = new SharedPlaces(LIMITS);
    assert.equal(fill(places, 'one', 'a'), 4);
    assert.equal(fill(places, 'one', 'b'), 2);
    assert.deepEqual(places.full().accounts, ['one']);
    assert.deepEqual(places.full().uses, [use('one', 'a')]);
    assert.equal(fill(places, 'two', 'a'), 2);
    assert.equal(fill(places, 'two', 'c'), 1);
    assert.equal(places.free, 3);
    places.end(use('one', 'a'), false);
    places.end(use('one', 'b'), false);
    // Four held, five free.
    assert.equal(places.hasRoom(use('one', 'b')), true);
    assert.deepEqual(places.full().accounts, []);
  });

  it('say which destinations are full for an account and which for all', () => {
    const places = new SharedPlaces({ ...LIMITS, max: 40 });
    for (const account of ['1', '2', '3', '4']) fill(places, account, 'a');
    assert.deepEqual(places.full().destinations, ['a']);
    assert.deepEqual(places.fullFor('5'), ['a']);
    places.end(use('4', 'a'), false);
    assert.deepEqual(places.full().destinations, []);
    assert.deepEqual([places.fullFor('1'), places.fullFor('4')], [['a'], []]);
  });

  it('to destinations that were slow are few, so that another always finds one', () => {
    const places = new SharedPlaces(LIMITS);
    for (const dead of ['x', 'y']) beSlow(places, dead);
    assert.equal(fill(places, 'one', 'x'), 3);
    assert.equal(fill(places, 'one', 'y'), 0);
    assert.deepEqual(places.fullFor('one'), ['x', 'y']);
    assert.deepEqual(places.full().slow, { accounts: ['one'], destinations: ['x', 'y'] });
    assert.equal(fill(places, 'one', 'healthy'), 3);
    assert.equal(fill(places, 'two', 'x'), 2, 'of the slow ones it has its part too');
    places.end(use('one', 'x'), false);
    // One that answered is like any other, and y alone has no more than its part.
    assert.deepEqual(places.fullFor('one'), []);
  });

  it('remember a bounded number of slow destinations', () => {
    const places = new SharedPlaces(LIMITS);
    for (const dead of ['a', 'b', 'c', 'd']) beSlow(places, dead);
    assert.deepEqual(places.full().slow.destinations, ['b', 'c', 'd']);
    assert.equal(places.taken, 0);
  });

  it('that were given back without a word change nothing of that', () => {
    const places = new SharedPlaces({ ...LIMITS, slowMax: 2 });
    beSlow(places, 'a');
    assert.ok(places.take(use('one', 'a')));
    places.end(use('one', 'a'), undefined);
    assert.equal(fill(places, 'one', 'a'), 1);
  });

  it('whatever is taken and given back, agree with what they say is full', () => {
    const anyUse = fc.record({
      accountId: fc.constantFrom('1', '2', '3', '4'),
      destination: fc.constantFrom('a', 'b', 'c', 'd', 'e'),
    });
    const anyStep = fc.record({ use: anyUse, slow: fc.option(fc.boolean(), { nil: undefined }) });
    fc.assert(
      fc.property(fc.array(anyStep, { maxLength: 80 }), steps => {
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
      }),
    );
  });
});
