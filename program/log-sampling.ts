/**
 * Leaves out lines that repeat: of each message the first some of a second are written, and then
 * every so manieth. Errors are all written. What was left out is counted, and said once a minute
 * and at the end.
 */
const WINDOW_MS = 1000;
const TELL_EVERY_MS = 60_000;
/** Messages are a fixed set but for a few that are put together; more are never left out. */
const MESSAGES_MAX = 512;
const FORM = /^([1-9]\d{0,5}|1000000)\/([1-9]\d{0,5}|1000000)$/;

export interface LogSampling {
  /** Lines of one message that a second has in any case. */
  readonly first: number;
  /** Of those behind them one in so many is written. */
  readonly thereafter: number;
}

export function parseLogSampling(text: string): LogSampling | undefined {
  const [, first, thereafter] = FORM.exec(text) ?? [];
  if (first === undefined || thereafter === undefined) return undefined;
  return { first: Number(first), thereafter: Number(thereafter) };
}

interface Seen {
  windowFromMs: number;
  lines: number;
  leftOut: number;
}

/** Lines left out since the last time that it was asked. */
export interface LeftOut {
  readonly of: string;
  readonly lines: number;
}

export class LogSampler {
  readonly #sampling: LogSampling;
  readonly #now: () => number;
  readonly #seen = new Map<string, Seen>();

  /** @param now milliseconds of a clock that never goes back */
  constructor(sampling: LogSampling, now: () => number = () => performance.now()) {
    this.#sampling = sampling;
    this.#now = now;
  }

  /** Whether this line is written. Counts it. */
  keeps(message: string): boolean {
    const seen = this.#seenOf(message);
    if (seen === undefined) return true;
    const nowMs = this.#now();
    if (nowMs - seen.windowFromMs >= WINDOW_MS) {
      seen.windowFromMs = nowMs;
      seen.lines = 0;
    }
    seen.lines += 1;
    const { first, thereafter } = this.#sampling;
    const kept = seen.lines <= first || (seen.lines - first) % thereafter === 0;
    if (!kept) seen.leftOut += 1;
    return kept;
  }

  takeLeftOut(): LeftOut[] {
    const leftOut: LeftOut[] = [];
    for (const [of, seen] of this.#seen) {
      if (seen.leftOut > 0) leftOut.push({ of, lines: seen.leftOut });
      seen.leftOut = 0;
    }
    return leftOut;
  }

  /** Calls `tell` for each message of which lines were left out, once a minute and at the end. */
  tellEveryMinute(tell: (leftOut: LeftOut) => void): void {
    const tellAll = () => this.takeLeftOut().forEach(tell);
    setInterval(tellAll, TELL_EVERY_MS).unref();
    // Before the log's own listener, which writes the last lines.
    process.prependOnceListener('exit', tellAll);
  }

  #seenOf(message: string): Seen | undefined {
    const known = this.#seen.get(message);
    if (known !== undefined || this.#seen.size >= MESSAGES_MAX) return known;
    const seen: Seen = { windowFromMs: this.#now(), lines: 0, leftOut: 0 };
    this.#seen.set(message, seen);
    return seen;
  }
}
