import ava from 'ava';
import { RoundLoop } from './round-loop.ts';

const test = ava.serial;

class TestClock {
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

let clock: TestClock;
let loop: RoundLoop;
/** Start times of the rounds; polls are marked. */
let begun: string[];

test.beforeEach(() => {
  clock = new TestClock();
  begun = [];
  loop = new RoundLoop({
    pollMs: 1000,
    clock,
    begin: reread => begun.push(`${clock.now()}${reread ? ' reread' : ''}`),
  });
});

function started(): void {
  loop.start();
  loop.roundEnded();
  begun = [];
}

test('the loop › begins with a round, then one at every poll', async t => {
  loop.start();
  loop.roundEnded();
  clock.pass(1000);
  loop.roundEnded();
  clock.pass(1000);
  t.deepEqual(begun, ['0 reread', '1000 reread', '2000 reread']);
});

test('the loop › polls at whole multiples of its time, as all loops of the process do', t => {
  clock.pass(400);
  started();
  clock.pass(599.4);
  t.deepEqual(begun, []);
  clock.pass(0.6);
  loop.roundEnded();
  clock.pass(1000);
  t.deepEqual(begun, ['1000 reread', '2000 reread']);
});

test('the loop › runs one round at a time, and one more for all that changed meanwhile', async t => {
  started();
  loop.wake();
  loop.wake();
  loop.wake();
  t.is(begun.length, 1);
  loop.roundEnded();
  t.is(begun.length, 2);
  loop.roundEnded();
  t.deepEqual(begun, ['0', '0']);
});

test('the loop › reads again after a poll that came during a round', async t => {
  started();
  loop.wake();
  clock.pass(1000);
  loop.roundEnded();
  t.deepEqual(begun, ['0', '1000 reread']);
});

test('the loop › pauses after failures, twice as long each time, and as short again after a success', async t => {
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
  t.deepEqual(pauses, [100, 200, 400, 800, 1600, 2000, 2000]);
  t.truthy(begun.at(-1)?.endsWith('reread'));
  loop.roundEnded();
  loop.fault();
  clock.pass(99);
  const rounds = begun.length;
  clock.pass(1);
  t.is(begun.length, rounds + 1);
});

test('the loop › pauses after the round under way where the database failed under earlier work', async t => {
  started();
  loop.wake();
  loop.fault();
  loop.wake();
  loop.roundEnded();
  t.deepEqual(begun, ['0']);
  clock.pass(100);
  t.deepEqual(begun, ['0', '100 reread']);
});

test('the loop › wakes at the soonest of what was asked for, and not sooner than it may', async t => {
  started();
  loop.wakeIn(undefined);
  loop.wakeIn(1001);
  loop.wakeIn(50);
  loop.wakeIn(20);
  loop.wakeIn(30);
  clock.pass(999);
  t.deepEqual(begun, ['20']);
  loop.roundEnded();
  loop.wakeIn(0.1);
  clock.pass(0.9);
  t.deepEqual(begun, ['20']);
  loop.wakeIn(0);
  t.deepEqual(begun, ['20', '999.9']);
});

test('the loop › stops when the round under way has ended, and leaves no timer', async t => {
  started();
  loop.wake();
  loop.wake();
  loop.wakeIn(20);
  let stopped = false;
  const stopping = loop.stop().then(() => {
    stopped = true;
  });
  t.deepEqual([loop.stopping, clock.pending], [true, 0]);
  await null;
  t.false(stopped);
  loop.wakeIn(10);
  loop.roundEnded();
  await stopping;
  loop.wake();
  loop.fault();
  await loop.stop();
  t.deepEqual([begun, clock.pending], [['0'], 0]);
});

test('the loop › stops at once where no round is under way', async t => {
  await loop.stop();
  t.deepEqual(begun, []);
});

test('the loop › tells when the round under way has ended and the next one has begun', async t => {
  started();
  await loop.roundUnderWay();
  loop.wake();
  loop.wake();
  const ended = loop.roundUnderWay();
  loop.roundEnded();
  await ended;
  t.is(begun.length, 2);
});
