import { noAnswer } from './errors.ts';
import type { RetryBudget } from './retry-budget.ts';

/** Longest wait between two pieces of an answer. */
const PIECE_MS_MAX = 60_000;

/** Call `end` when the attempt is over; otherwise the caller's signal keeps it in memory. */
export class Attempt {
  readonly #controller = new AbortController();
  readonly #budget: RetryBudget;
  readonly #onAbort = () => this.#controller.abort(this.#budget.signal?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Set once the time is over. */
  timedOut: Error | undefined;

  constructor(budget: RetryBudget) {
    this.#budget = budget;
    budget.signal?.addEventListener('abort', this.#onAbort);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Starts the time limit again, within the call's own time. */
  allow(maxMs: number): void {
    clearTimeout(this.#timer);
    const ms = Math.max(1, Math.min(maxMs, this.#budget.leftMs));
    this.#timer = setTimeout(() => {
      this.timedOut = new Error(`nothing came for ${Math.round(ms)} ms`);
      this.#controller.abort(this.timedOut);
    }, ms);
  }

  pause(): void {
    clearTimeout(this.#timer);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#budget.signal?.removeEventListener('abort', this.#onAbort);
  }
}

/** Read it to its end, or call `end`. */
export class PieceReader {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  readonly #attempt: Attempt;

  constructor(response: Response, attempt: Attempt) {
    this.#reader = response.body?.getReader();
    this.#attempt = attempt;
    // The time that the consumer takes between two reads does not count.
    attempt.pause();
  }

  /**
   * @returns undefined at the end. Rejects with NO_ANSWER for a broken answer, or with the signal's
   * reason.
   */
  async read(): Promise<Uint8Array | undefined> {
    const attempt = this.#attempt;
    attempt.allow(PIECE_MS_MAX);
    try {
      const piece = await this.#reader?.read();
      attempt.pause();
      if (piece?.value === undefined) this.end();
      return piece?.value;
    } catch (cause) {
      this.end();
      if (attempt.signal.aborted && attempt.timedOut === undefined) throw attempt.signal.reason;
      throw noAnswer('the answer broke off', { cause: attempt.timedOut ?? cause });
    }
  }

  end(): void {
    this.#attempt.end();
    // The rest is not needed, and a broken body was already reported.
    this.#reader?.cancel().catch(() => undefined);
  }
}
