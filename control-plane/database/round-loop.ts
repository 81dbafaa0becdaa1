/**
 * Polls for work in the database: one round at a time, another as soon as something changed during
 * it, one every `pollMs` for other replicas' changes, and a pause after the database failed.
 */

import assert from 'node:assert/strict';
import { outsideRequests } from '@matting/program/request-owner.ts';
import { underNoSpan } from '@matting/program/tracing/active-span.ts';

/** Pause after a failure of the database; doubles each time. */
const BACKOFF_MIN_MS = 100;
const BACKOFF_MAX_MS = 2000;
/** Shortest wait for a wake-up, so that one round serves several. */
const WAKE_MIN_MS = 5;

/**
 * outdated: a round runs and another follows. failing: a round runs and a pause follows. stopping:
 * the last round runs. An event that a mode lacks is a bug of the owner, and throws.
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
/** ended, failed: so did the round. fault: the database failed during work of an earlier round. */
type LoopEvent = 'start' | 'wake' | 'ended' | 'failed' | 'fault' | 'resumed' | 'stop';

/** @throws AssertionError: impossible in that mode */
function nextMode(mode: LoopMode, event: LoopEvent): LoopMode {
  const row: Partial<Record<LoopEvent, LoopMode>> = TRANSITIONS[mode];
  const next = row[event];
  assert.ok(next !== undefined, `impossible in a round loop: ${event} while ${mode}`);
  return next;
}

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
   * Begins a round. Its owner calls `roundEnded` or `roundFailed`.
   * @param reread also read changes of other replicas: in the first round, by a poll, after a pause
   */
  readonly begin: (reread: boolean) => void;
  readonly clock?: LoopClock;
}

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
  #reread = true;
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

  /** Starts a round now, or after the running one. */
  wake(): void {
    this.#on('wake');
  }

  /**
   * Only the earliest of several wake-ups is kept: its round schedules the next.
   * @param ms undefined: no wake-up
   */
  wakeIn(ms: number | undefined): void {
    // The poll comes earlier.
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

  fault(): void {
    this.#on('fault');
  }

  /** Resolves when the running round has ended and the one after it has begun. */
  roundUnderWay(): Promise<void> {
    return this.#round.promise;
  }

  /** Resolves when no round runs. */
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
    const reread = this.#reread;
    this.#reread = false;
    this.#round = Promise.withResolvers();
    // A round outlives the request that woke the loop, so it must not use the request's trace or
    // share.
    outsideRequests(() => underNoSpan(() => this.#options.begin(reread)));
  }

  #pause(): void {
    this.#cancelPause = this.#clock.after(this.#backoffMs, () => {
      this.#reread = true;
      this.#on('resumed');
    });
    this.#backoffMs = Math.min(BACKOFF_MAX_MS, this.#backoffMs * 2);
  }

  /**
   * All loops of a process poll at the same instants, because each wake-up of an idle process
   * costs.
   */
  #pollLater(): void {
    const { pollMs } = this.#options;
    // A timer may fire a little early, and that instant must not count again.
    const sinceMs = (this.#clock.now() + WAKE_MIN_MS) % pollMs;
    this.#cancelPoll = this.#clock.after(pollMs - sinceMs + WAKE_MIN_MS, () => {
      this.#pollLater();
      this.#reread = true;
      this.#on('wake');
    });
  }
}
