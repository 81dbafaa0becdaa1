/** The time and pauses of a call's retries. */
import type { MattingError } from './errors.ts';

export const GIVE_UP_MS_DEFAULT = 3_600_000;
/** Enough for an hour of pauses of a second. */
const RETRIES_MAX = 10_000;
/** Longest pause without a Retry-After. */
const PAUSE_MS_MAX = 30_000;
/** Longest delay of a timer. */
const TIMER_MS_MAX = 2_147_483_647;

export interface Retry {
  readonly error: MattingError;
  /** The pause until the next try. */
  readonly waitMs: number;
}

export interface RetryOptions {
  /** Ends the call. A submitted job continues. */
  readonly signal?: AbortSignal | undefined;
  /** Default: an hour. */
  readonly giveUpMs?: number | undefined;
  readonly onRetry?: ((retry: Retry) => void) | undefined;
}

/** Doubling pauses, each randomly between half and all of its length. */
export class Backoff {
  readonly #firstMs: number;
  #pauseMs: number;

  constructor(firstMs: number) {
    this.#firstMs = firstMs;
    this.#pauseMs = firstMs;
  }

  next(): number {
    const pauseMs = this.#pauseMs;
    this.#pauseMs = Math.min(PAUSE_MS_MAX, 2 * pauseMs);
    return pauseMs * (0.5 + Math.random() / 2);
  }

  reset(): void {
    this.#pauseMs = this.#firstMs;
  }
}

export class RetryBudget {
  readonly signal: AbortSignal | undefined;
  readonly #onRetry: ((retry: Retry) => void) | undefined;
  readonly #giveUpAtMs: number;
  #retries = 0;

  constructor({ signal, giveUpMs = GIVE_UP_MS_DEFAULT, onRetry }: RetryOptions) {
    if (!(giveUpMs > 0)) throw new TypeError('giveUpMs must be more than 0');
    this.signal = signal;
    this.#onRetry = onRetry;
    this.#giveUpAtMs = performance.now() + giveUpMs;
  }

  get leftMs(): number {
    return this.#giveUpAtMs - performance.now();
  }

  /** @throws the signal's reason */
  throwIfAborted(): void {
    if (this.signal?.aborted) throw this.signal.reason;
  }

  /**
   * Waits as long as the service asks, otherwise by `backoff`.
   * @throws `error`: no try or no time is left
   */
  async beforeRetry(error: MattingError, backoff: Backoff): Promise<void> {
    const waitMs = error.retryAfterMs ?? backoff.next();
    this.#retries += 1;
    if (this.#retries > RETRIES_MAX || waitMs >= this.leftMs) throw error;
    this.#onRetry?.({ error, waitMs });
    await this.wait(waitMs);
  }

  /** @throws the signal's reason, immediately */
  async wait(waitMs: number): Promise<void> {
    this.throwIfAborted();
    const { signal } = this;
    await new Promise<void>(resolve => {
      const done = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, Math.min(waitMs, TIMER_MS_MAX));
      signal?.addEventListener('abort', done);
    });
    this.throwIfAborted();
  }
}

/** Seconds or a date (RFC 9110 section 10.2.3). undefined: no pause. */
export function parseRetryAfterMs(value: string | null): number | undefined {
  if (value === null) return undefined;
  const waitMs = /^\d{1,9}$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now();
  return waitMs > 0 ? waitMs : undefined;
}
