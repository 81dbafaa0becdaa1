import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ReceiverSlots } from '../../src/webhooks/receiver-slots.ts';

const LIMITS = { max: 10, receiverMax: 3, accountMax: 6, slowMax: 4, slowReceiversMax: 3 };

function to(receiver: string, accountId = receiver) {
  return { receiver, accountId };
}

/** Takes as many as there are, at most 20. */
function fill(slots: ReceiverSlots, receiver: string, accountId?: string): number {
  let taken = 0;
  while (taken < 20 && slots.take(to(receiver, accountId))) taken += 1;
  return taken;
}

describe('places for notifications', () => {
  it('are bounded for a receiver, for an account and in all', () => {
    const slots = new ReceiverSlots(LIMITS);
    assert.equal(fill(slots, 'a', 'one'), 3);
    assert.equal(fill(slots, 'b', 'one'), 3);
    assert.equal(fill(slots, 'c', 'one'), 0);
    assert.deepEqual(slots.full(), { receivers: ['a', 'b'], accounts: ['one'] });
    assert.equal(fill(slots, 'c', 'two'), 3);
    assert.equal(fill(slots, 'd', 'three'), 1);
    assert.equal(slots.free, 0);
    slots.end(to('a', 'one'), false);
    assert.deepEqual(slots.full(), { receivers: ['b', 'c'], accounts: [] });
    assert.equal(slots.take(to('a', 'one')), true);
  });

  it('of receivers that were slow are few, so that another always finds one', () => {
    const slots = new ReceiverSlots({ ...LIMITS, accountMax: 10 });
    for (const dead of ['x', 'y']) {
      assert.ok(slots.take(to(dead)));
      slots.end(to(dead), true);
    }
    assert.equal(fill(slots, 'x'), 3);
    assert.equal(fill(slots, 'y'), 1);
    assert.deepEqual(new Set(slots.full().receivers), new Set(['x', 'y']));
    assert.equal(fill(slots, 'healthy'), 3);
    slots.end(to('x'), false);
    assert.equal(fill(slots, 'x'), 1, 'one that answered is like any other');
  });

  it('remember a bounded number of slow receivers', () => {
    const slots = new ReceiverSlots({ ...LIMITS, slowMax: 0 });
    for (const dead of ['a', 'b', 'c', 'd']) {
      assert.ok(slots.take(to(dead)), dead);
      slots.end(to(dead), true);
    }
    assert.deepEqual(slots.full().receivers, ['b', 'c', 'd']);
    assert.equal(slots.taken, 0);
  });

  it('that were given back without a word change nothing of that', () => {
    const slots = new ReceiverSlots({ ...LIMITS, slowMax: 1 });
    assert.ok(slots.take(to('a')));
    slots.end(to('a'), true);
    assert.ok(slots.take(to('a')));
    slots.end(to('a'), undefined);
    assert.ok(slots.take(to('a')));
    assert.equal(slots.take(to('a')), false);
  });
});
