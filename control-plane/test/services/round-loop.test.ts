/** The loop behind dispatch and notifications: its table, and what it does by a clock of its own. */
import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import {
  type LoopClock,
  type LoopEvent,
  type LoopMode,
  nextMode,
  RoundLoop,
} from '../../src/services/round-loop.ts';

const EVENTS: readonly LoopEvent[] = [
  'start',
  'wake',
  'ended',
  'failed',
  'fault',
  'resumed',
  'stop',
];

/** Where each event leads, in the order of EVENTS; -: it is impossible there. */
const EXPECTED: Readonly<Record<LoopMode, string>> = {
  new: 'running - - - - - stopped',
  resting: '- running - - backing-off - stopped',
  running: '- outdated resting backing-off failing - stopping',
  outdated: '- outdated running backing-off failing - stopping',
  failing: '- failing backing-off backing-off failing - stopping',
  'backing-off': '- backing-off - - backing-off running stopped',
  stopping: '- stopping stopped stopped stopping - stopping',
  stopped: '- stopped - - stopped - stopped',
};

describe('the table of modes and events', () => {
  for (const [mode, row] of Object.entries(EXPECTED) as [LoopMode, string][]) {
    const ends = row.split(' ');
    for (const [at, event] of EVENTS.entries()) {
      const expected = ends.at(at);
      it(`${mode}, ${event}: ${expected === '-' ? 'impossible' : expected}`, () => {
        if (expected !== '-') return assert.equal(nextMode(mode, event), expected);
        const message = `impossible in a round loop: ${event} while ${mode}`;
        assert.throws(() => nextMode(mode, event), { code: 'ERR_ASSERTION', message });
      });
    }
  }
});

class TestClock implements LoopClock {
  readonly #timers = new Set<{ readonly atMs: number; readonly act: () => void }>();
  #nowMs = 0;

  now(): number {
    return this.#nowMs;
  }

  after(ms: number, act: () => void): () => void {
    const timer = { atMs: this.#nowMs + ms, act };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  get pending(): number {
    return this.#timers.size;
  }

  pass(ms: number): void {
    const untilMs = this.#nowMs + ms;
    for (;;) {
      const [first] = [...this.#timers].sort((a, b) => a.atMs - b.atMs);
      if (first === undefined || first.atMs > untilMs) break;
      this.#timers.delete(first);
      this.#nowMs = first.atMs;
      first.act();
    }
    this.#nowMs = untilMs;
  }
}

describe('the loop', () => {
  let clock: TestClock;
  let loop: RoundLoop;
  /** When each round began; anew ones are marked. */
  let begun: string[];

  beforeEach(() => {
    clock = new TestClock();
    begun = [];
    loop = new RoundLoop({
      pollMs: 1000,
      clock,
      begin: anew => begun.push(`${clock.now()}${anew ? ' anew' : ''}`),
    });
  });

  /** A round that ended at once at the start. */
  function started(): void {
    loop.start();
    loop.roundEnded();
    begun = [];
  }

  it('begins with a round, then one at every poll', () => {
    loop.start();
    loop.roundEnded();
    clock.pass(1000);
    loop.roundEnded();
    clock.pass(1000);
    assert.deepEqual(begun, ['0 anew', '1000 anew', '2000 anew']);
  });

  it('runs one round at a time, and one more for all that changed meanwhile', () => {
    started();
    loop.wake();
    loop.wake();
    loop.wake();
    assert.equal(begun.length, 1);
    loop.roundEnded();
    assert.equal(begun.length, 2);
    loop.roundEnded();
    assert.deepEqual(begun, ['0', '0']);
  });

  it('reads anew after a poll that came during a round', () => {
    started();
    loop.wake();
    clock.pass(1000);
    loop.roundEnded();
    assert.deepEqual(begun, ['0', '1000 anew']);
  });

  it('pauses after failures, twice as long each time, and as short again after a success', () => {
    started();
    loop.wake();
    const pauses: number[] = [];
    for (let failures = 0; failures < 7; failures++) {
      const rounds = begun.length;
      const fromMs = clock.now();
      loop.roundFailed();
      loop.wake();
      while (begun.length === rounds) clock.pass(1);
      pauses.push(clock.now() - fromMs);
    }
    assert.deepEqual(pauses, [100, 200, 400, 800, 1600, 2000, 2000]);
    assert.ok(begun.at(-1)?.endsWith('anew'));
    loop.roundEnded();
    loop.fault();
    clock.pass(99);
    const rounds = begun.length;
    clock.pass(1);
    assert.equal(begun.length, rounds + 1);
  });

  it('pauses after the round under way where the database failed under earlier work', () => {
    started();
    loop.wake();
    loop.fault();
    loop.wake();
    loop.roundEnded();
    assert.deepEqual(begun, ['0']);
    clock.pass(100);
    assert.deepEqual(begun, ['0', '100 anew']);
  });

  it('wakes at the soonest of what was asked for, and not sooner than it may', () => {
    started();
    loop.wakeIn(undefined);
    loop.wakeIn(1001);
    loop.wakeIn(50);
    loop.wakeIn(20);
    loop.wakeIn(30);
    clock.pass(999);
    assert.deepEqual(begun, ['20']);
    loop.roundEnded();
    loop.wakeIn(0.1);
    clock.pass(0.9);
    assert.deepEqual(begun, ['20']);
    loop.wakeIn(0);
    assert.deepEqual(begun, ['20', '999.9']);
  });

  it('stops when the round under way has ended, and leaves no timer', async () => {
    started();
    loop.wake();
    loop.wake();
    loop.wakeIn(20);
    let stopped = false;
    const stopping = loop.stop().then(() => {
      stopped = true;
    });
    assert.deepEqual([loop.stopping, clock.pending], [true, 0]);
    await null;
    assert.equal(stopped, false);
    loop.wakeIn(10);
    loop.roundEnded();
    await stopping;
    loop.wake();
    loop.fault();
    await loop.stop();
    assert.deepEqual([begun, clock.pending], [['0'], 0]);
  });

  it('stops at once where no round is under way', async () => {
    await loop.stop();
    assert.deepEqual(begun, []);
  });

  it('tells when the round under way has ended and the next one has begun', async () => {
    started();
    await loop.roundUnderWay();
    loop.wake();
    loop.wake();
    const ended = loop.roundUnderWay();
    loop.roundEnded();
    await ended;
    assert.equal(begun.length, 2);
  });
});
