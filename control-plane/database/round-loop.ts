/**
 * When to poll for work that waits in the database: one round at a time, another as soon as
 * something changed during it, one every `pollMs` for what other replicas left, and none for a
 * while after the database failed. What a round does is its owner's.
 */

import assert from 'node:assert/strict';
import { outsideRequests } from '@matting/program/request-owner.ts';
import { underNoSpan } from '@matting/program/tracing/active-span.ts';

/** Pauses after failures of the database, doubling up to the maximum. */
const BACKOFF_MIN_MS = 100;
const BACKOFF_MAX_MS = 2000;
/** Wake-ups that are due sooner than this wait for it, so that one round serves several. */
const WAKE_MIN_MS = 5;

/**
 * The next mode by mode and event. An event that is not there is a bug of the owner, and throws.
 * new: made. resting: no work is known of. running: a round is under way. outdated: the same, and
 * another follows. failing: the same, and a pause follows. backing-off: a pause, then a round.
 * stopping: the last round is under way. stopped: no round begins any more.
 */
// biome-ignore format: a table
const TRANSITIONS = {
  new:           { start: 'running', wake: 'new', stop: 'stopped' },
  resting:       { wake: 'running', fault: 'backing-off', stop: 'stopped' },
  running:       { wake: 'outdated', ended: 'resting', failed: 'backing-off', fault: 'failing', stop: 'stopping' },
  outdated:      { wake: 'outdated', ended: 'running', failed: 'backing-off', fault: 'failing', stop: 'stopping' },
  failing:       { wake: 'failing', ended: 'backing-off', failed: 'backing-off', fault: 'failing', stop: 'stopping' },
  'backing-off': { wake: 'backing-off', fault: 'backing-off', resumed: 'running', stop: 'stopped' },
  stopping:      { wake: 'stopping', ended: 'stopped', failed: 'stopped', fault: 'stopping', stop: 'stopping' },
  stopped:       { wake: 'stopped', fault: 'stopped', stop: 'stopped' },
} as const;

type LoopMode = keyof typeof TRANSITIONS;
/** ended, failed: the round. fault: the database failed under what an earlier round began. */
type LoopEvent = 'start' | 'wake' | 'ended' | 'failed' | 'fault' | 'resumed' | 'stop';

/** @throws AssertionError where the event is impossible in that mode. */
function nextMode(mode: LoopMode, event: LoopEvent): LoopMode {
  const row: Partial<Record<LoopEvent, LoopMode>> = TRANSITIONS[mode];
  const next = row[event];
  assert.ok(next !== undefined, `impossible in a round loop: ${event} while ${mode}`);
  return next;
}

/** Time as the loop needs it; a simulation has its own. */
interface LoopClock {
  now(): number;
  after(ms: number, act: () => void): () => void;
}

const REAL_CLOCK: LoopClock = {
  now: () => performance.now(),
  after: (ms, act) => {
    const timer = setTimeout(act, ms);
    return () => clearTimeout(timer);
  },
};

interface RoundLoopOptions {
  readonly pollMs: number;
  /**
   * Begins a round, whose end is told by `roundEnded` or `roundFailed`.
   * @param anew what other replicas did is to be read too: the first round, one that is polled or
   *   follows a pause
   */
  readonly begin: (anew: boolean) => void;
  readonly clock?: LoopClock;
}

/** A loop whose rounds are `work` alone; `onFailed` hears of one that the database failed. */
export function pollingLoop(
  pollMs: number,
  work: () => Promise<void>,
  onFailed: (err: unknown) => void,
): RoundLoop {
  const round = async () => {
    try {
      await work();
      loop.roundEnded();
    } catch (err) {
      onFailed(err);
      loop.roundFailed();
    }
  };
  const loop = new RoundLoop({ pollMs, begin: () => void round() });
  return loop;
}

export class RoundLoop {
  readonly #options: RoundLoopOptions;
  readonly #clock: LoopClock;
  readonly #stopped = Promise.withResolvers<void>();
  #mode: LoopMode = 'new';
  #anew = true;
  #round = Promise.withResolvers<void>();
  #backoffMs = BACKOFF_MIN_MS;
  #wakeAtMs = Number.POSITIVE_INFINITY;
  #cancelPoll: (() => void) | undefined;
  #cancelPause: (() => void) | undefined;
  #cancelWake: (() => void) | undefined;

  constructor(options: RoundLoopOptions) {
    this.#options = options;
    this.#clock = options.clock ?? REAL_CLOCK;
    this.#round.resolve();
  }

  start(): void {
    this.#pollLater();
    this.#on('start');
  }

  get stopping(): boolean {
    return this.#mode === 'stopping' || this.#mode === 'stopped';
  }

  /** Something may have changed: a round now, or after the one that is under way. */
  wake(): void {
    this.#on('wake');
  }

  /**
   * The same, later. Only the soonest of several wake-ups is kept: its round asks again.
   * @param ms undefined: not at all; 0: now
   */
  wakeIn(ms: number | undefined): void {
    // The poll comes before that time.
    if (ms === undefined || ms > this.#options.pollMs || this.stopping) return;
    if (ms === 0) {
      this.wake();
      return;
    }
    const waitMs = Math.max(WAKE_MIN_MS, ms);
    const atMs = this.#clock.now() + waitMs;
    if (atMs >= this.#wakeAtMs) return;
    this.#cancelWake?.();
    this.#wakeAtMs = atMs;
    this.#cancelWake = this.#clock.after(waitMs, () => {
      this.#wakeAtMs = Number.POSITIVE_INFINITY;
      this.wake();
    });
  }

  roundEnded(): void {
    this.#backoffMs = BACKOFF_MIN_MS;
    this.#endRound('ended');
  }

  roundFailed(): void {
    this.#endRound('failed');
  }

  /** The database failed under something that a round began. */
  fault(): void {
    this.#on('fault');
  }

  /** Resolves when the round that is under way has ended, and the one that follows it has begun. */
  roundUnderWay(): Promise<void> {
    return this.#round.promise;
  }

  /** No further round begins. Resolves when none is under way. May be called again. */
  stop(): Promise<void> {
    this.#cancelPoll?.();
    this.#cancelPause?.();
    this.#cancelWake?.();
    this.#on('stop');
    return this.#stopped.promise;
  }

  #endRound(event: 'ended' | 'failed'): void {
    const ended = this.#round;
    this.#on(event);
    ended.resolve();
  }

  #on(event: LoopEvent): void {
    const before = this.#mode;
    this.#mode = nextMode(before, event);
    if (this.#mode === before) return;
    if (this.#mode === 'running') this.#begin();
    else if (this.#mode === 'backing-off') this.#pause();
    else if (this.#mode === 'stopped') this.#stopped.resolve();
  }

  #begin(): void {
    const anew = this.#anew;
    this.#anew = false;
    this.#round = Promise.withResolvers();
    // A request can have woken the loop, and its trace and its share of the database end with it.
    outsideRequests(() => underNoSpan(() => this.#options.begin(anew)));
  }

  #pause(): void {
    this.#cancelPause = this.#clock.after(this.#backoffMs, () => {
      this.#anew = true;
      this.#on('resumed');
    });
    this.#backoffMs = Math.min(BACKOFF_MAX_MS, this.#backoffMs * 2);
  }

  /** All loops of a process poll at the same instants: each wake of a process at rest costs. */
  #pollLater(): void {
    const { pollMs } = this.#options;
    // A timer may fire a little early, and that instant must not count again.
    const sinceMs = (this.#clock.now() + WAKE_MIN_MS) % pollMs;
    this.#cancelPoll = this.#clock.after(pollMs - sinceMs + WAKE_MIN_MS, () => {
      this.#pollLater();
      this.#anew = true;
      this.#on('wake');
    });
  }
}
