import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ByteTurns } from '../../../src/storage/bucket/byte-turns.ts';

const NEVER = new AbortController().signal;

/** Work that ends when it is told to. */
function work(turns: ByteTurns, bytes: number, signal = NEVER) {
  const { promise, resolve } = Promise.withResolvers<void>();
  const state = { begun: false, end: resolve };
  const done = turns.take(bytes, signal, () => {
    state.begun = true;
    return promise;
  });
  return { state, done };
}

const settled = () => new Promise(resolve => setImmediate(resolve));

describe('turns at sending', () => {
  it('let in what has room, and the rest in the order in which it came', async () => {
    const turns = new ByteTurns(10);
    const first = work(turns, 6);
    const second = work(turns, 6);
    const small = work(turns, 1);
    await settled();
    assert.deepEqual([turns.bytes, turns.waiting], [6, 2]);
    assert.deepEqual(
      [first, second, small].map(one => one.state.begun),
      [true, false, false],
    );
    first.state.end();
    await first.done;
    await settled();
    assert.deepEqual(
      [second, small].map(one => one.state.begun),
      [true, true],
    );
    assert.deepEqual([turns.bytes, turns.waiting], [7, 0]);
    second.state.end();
    small.state.end();
    await Promise.all([second.done, small.done]);
    assert.equal(turns.bytes, 0);
  });

  it('let in what is larger than all of it, alone', async () => {
    const turns = new ByteTurns(10);
    const large = work(turns, 100);
    const other = work(turns, 1);
    await settled();
    assert.deepEqual([large.state.begun, other.state.begun], [true, false]);
    large.state.end();
    await large.done;
    await settled();
    assert.equal(other.state.begun, true);
    other.state.end();
    await other.done;
  });

  it('give their place back when the work fails', async () => {
    const turns = new ByteTurns(10);
    const failing = turns.take(10, NEVER, async () => {
      throw new Error('not stored');
    });
    await assert.rejects(failing, /not stored/);
    assert.equal(turns.bytes, 0);
  });

  it('are left by one that gives up, and what waited behind it may begin', async () => {
    const turns = new ByteTurns(10);
    const first = work(turns, 6);
    const leaving = new AbortController();
    const large = work(turns, 6, leaving.signal);
    const small = work(turns, 4);
    leaving.abort(new Error('the caller has gone'));
    await assert.rejects(large.done, /the caller has gone/);
    await settled();
    assert.deepEqual([large.state.begun, small.state.begun], [false, true]);
    first.state.end();
    small.state.end();
    await Promise.all([first.done, small.done]);
    assert.deepEqual([turns.bytes, turns.waiting], [0, 0]);
  });

  it('are not taken by one that had given up before', async () => {
    const turns = new ByteTurns(10);
    const first = work(turns, 10);
    const gone = AbortSignal.abort(new Error('the caller has gone'));
    for (const bytes of [1, 10]) await assert.rejects(work(turns, bytes, gone).done, /has gone/);
    assert.equal(turns.waiting, 0);
    first.state.end();
    await first.done;
  });
});
