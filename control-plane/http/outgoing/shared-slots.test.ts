import assert from 'node:assert/strict';
import { fc, holds } from '@matting/test-support/property-tests.ts';
import test from 'ava';
import { SharedSlots, type SlotUse } from './shared-slots.ts';

const LIMITS = { max: 12, destinationMax: 8, slowMax: 6, slowDestinationsMax: 3 };

const use = (accountId: string, destination: string): SlotUse => ({ accountId, destination });

function fill(slots: SharedSlots, accountId: string, destination: string): number {
  let taken = 0;
  while (taken < 20 && slots.take(use(accountId, destination))) taken += 1;
  return taken;
}

function beSlow(slots: SharedSlots, destination: string): void {
  assert.ok(slots.take(use('somebody', destination)));
  slots.end(use('somebody', destination), true);
}

test('slots › are half for an account alone, and half of those to one destination', t => {
  const slots = new SharedSlots(LIMITS);
  t.is(fill(slots, 'one', 'a'), 4);
  t.is(fill(slots, 'one', 'b'), 2);
  t.deepEqual(slots.full().accounts, ['one']);
  t.deepEqual(slots.full().uses, [use('one', 'a')]);
  t.is(fill(slots, 'two', 'a'), 2);
  t.is(fill(slots, 'two', 'c'), 1);
  t.is(slots.free, 3);
  slots.end(use('one', 'a'), false);
  slots.end(use('one', 'b'), false);
  // Four held, five free.
  t.true(slots.hasRoom(use('one', 'b')));
  t.deepEqual(slots.full().accounts, []);
});

test('slots › say which destinations are full for an account and which for all', t => {
  const slots = new SharedSlots({ ...LIMITS, max: 40 });
  for (const account of ['1', '2', '3', '4']) fill(slots, account, 'a');
  t.deepEqual(slots.full().destinations, ['a']);
  t.deepEqual(slots.fullFor('5'), ['a']);
  slots.end(use('4', 'a'), false);
  t.deepEqual(slots.full().destinations, []);
  t.deepEqual([slots.fullFor('1'), slots.fullFor('4')], [['a'], []]);
});

test('slots › to destinations that were slow are few, so that another always finds one', t => {
  const slots = new SharedSlots(LIMITS);
  for (const dead of ['x', 'y']) beSlow(slots, dead);
  t.is(fill(slots, 'one', 'x'), 3);
  t.is(fill(slots, 'one', 'y'), 0);
  t.deepEqual(slots.fullFor('one'), ['x', 'y']);
  t.deepEqual(slots.full().slow, { accounts: ['one'], destinations: ['x', 'y'] });
  t.is(fill(slots, 'one', 'healthy'), 3);
  t.is(fill(slots, 'two', 'x'), 2, 'of the slow ones it has its part too');
  slots.end(use('one', 'x'), false);
  // x answered, so it is no longer slow, and y alone is within its share.
  t.deepEqual(slots.fullFor('one'), []);
});

test('slots › remember a bounded number of slow destinations', t => {
  const slots = new SharedSlots(LIMITS);
  for (const dead of ['a', 'b', 'c', 'd']) beSlow(slots, dead);
  t.deepEqual(slots.full().slow.destinations, ['b', 'c', 'd']);
  t.is(slots.taken, 0);
});

test('slots › that were given back without a word change nothing of that', t => {
  const slots = new SharedSlots({ ...LIMITS, slowMax: 2 });
  beSlow(slots, 'a');
  t.truthy(slots.take(use('one', 'a')));
  slots.end(use('one', 'a'), undefined);
  t.is(fill(slots, 'one', 'a'), 1);
});

test('slots › whatever is taken and given back, agree with what they say is full', t => {
  const anyUse = fc.record({
    accountId: fc.constantFrom('1', '2', '3', '4'),
    destination: fc.constantFrom('a', 'b', 'c', 'd', 'e'),
  });
  const anyStep = fc.record({ use: anyUse, slow: fc.option(fc.boolean(), { nil: undefined }) });
  holds(t, [fc.array(anyStep, { maxLength: 80, size: 'max' })], steps => {
    const slots = new SharedSlots(LIMITS);
    const held: SlotUse[] = [];
    for (const step of steps) {
      if (slots.take(step.use)) held.push(step.use);
      else if (held.length > 0) slots.end(held.shift()!, step.slow);
      assert.equal(slots.taken, held.length);
      const { destinations, accounts, uses, slow } = slots.full();
      for (const accountId of ['1', '2', '3', '4', '5']) {
        for (const destination of ['a', 'b', 'c', 'd', 'e', 'f']) {
          const listed =
            destinations.includes(destination) ||
            accounts.includes(accountId) ||
            uses.some(u => u.accountId === accountId && u.destination === destination) ||
            (slow.accounts.includes(accountId) && slow.destinations.includes(destination));
          const room = slots.hasRoom(use(accountId, destination));
          // An account without slots is refused only if no slot is free.
          if (slots.free > 0) assert.equal(listed, !room);
          const fullFor = slots.fullFor(accountId).includes(destination);
          assert.equal(room, slots.hasRoomFor(accountId) && !fullFor);
        }
      }
    }
  });
});
