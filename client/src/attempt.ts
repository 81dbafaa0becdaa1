/** One request under way: its time limit, the caller's signal, and the file of its answer. */
import { noAnswer } from './errors.ts';
import type { Patience } from './patience.ts';

/** Between two pieces of an answer. */
const PIECE_MS_MAX = 60_000;

/** The client must end it, or the caller's signal keeps it in memory. */
export class Attempt {
  readonly #controller = new AbortController();
  readonly #patience: Patience;
  readonly #onAbort = () => this.#controller.abort(this.#patience.signal?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Set if the time limit ended the attempt. */
  timedOut: Error | undefined;

  constructor(patience: Patience) {
    this.#patience = patience;
    patience.signal?.addEventListener('abort', this.#onAbort);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Allows this much time from now, within the time of the whole call. */
  allow(maxMs: number): void {
    clearTimeout(this.#timer);
    const ms = Math.max(1, Math.min(maxMs, this.#patience.leftMs));
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
    this.#patience.signal?.removeEventListener('abort', this.#onAbort);
  }
}

/** Pieces of a file as they come. The caller must read to the end, or call `end`. */
export class PieceReader {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  readonly #attempt: Attempt;

  constructor(response: Response, attempt: Attempt) {
    this.#reader = response.body?.getReader();
    this.#attempt = attempt;
    // The time limit does not count the time that the consumer takes.
    attempt.pause();
  }

  /**
   * Undefined at the end. Rejects with NO_ANSWER if the answer breaks off, or with the reason of
   * the caller's signal.
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
    // The client does not need the rest of the body, and a broken body was already reported.
    this.#reader?.cancel().catch(() => undefined);
  }
}
