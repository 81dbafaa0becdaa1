/**
 * Follows files while the program runs: it reads them every POLL_MS.
 *
 * | the files               | what happens                                            |
 * |-------------------------|---------------------------------------------------------|
 * | as before               | nothing                                                 |
 * | usable, and say another | read again after SETTLE_MS. The same: it is the current |
 * |                         | value; `onChange`. Another: as before                   |
 * | not usable              | the value stays; one warning until the reason changes   |
 *
 * A file that is being written in pieces can be usable in the middle: a token that is half there,
 * or the first of two tokens.
 *
 * Polled, since files mounted from a secret are replaced by renaming a directory above them, which
 * watches do not see.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';

const POLL_MS = 10_000;
/** Longer than a writer pauses between the pieces of a file. */
const SETTLE_MS = 1_000;

export interface FollowLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}

interface FollowOptions<T> {
  /** The name in the log. */
  readonly what: string;
  readonly log: FollowLog;
  readonly onChange: (value: T) => void;
  readonly pollMs?: number | undefined;
}

export class Followed<T> {
  readonly #read: () => Promise<T>;
  readonly #options: FollowOptions<T>;
  readonly #timer: NodeJS.Timeout;
  #current: T;
  #reading: Promise<void> | undefined;
  #complaint: string | undefined;

  /** @param read rejects where the files are not usable, with a reason that holds no content */
  constructor(current: T, read: () => Promise<T>, options: FollowOptions<T>) {
    this.#current = current;
    this.#read = read;
    this.#options = options;
    this.#timer = setInterval(() => void this.reload(), options.pollMs ?? POLL_MS);
    // Ports alone keep a program running.
    this.#timer.unref();
  }

  /** Never rejects. */
  reload(): Promise<void> {
    this.#reading ??= this.#readAgain().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  close(): void {
    clearInterval(this.#timer);
  }

  async #readAgain(): Promise<void> {
    const { what, log, onChange, pollMs = POLL_MS } = this.#options;
    let value: T;
    let isSettled = true;
    try {
      value = await this.#read();
      if (!isDeepStrictEqual(value, this.#current)) {
        await wait(Math.min(SETTLE_MS, pollMs));
        isSettled = isDeepStrictEqual(await this.#read(), value);
      }
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      // The same complaint every ten seconds would hide the others.
      if (reason !== this.#complaint) log.warn({ what, reason }, 'files not usable; kept');
      this.#complaint = reason;
      return;
    }
    if (!isSettled) return;
    const isNew = !isDeepStrictEqual(value, this.#current);
    if (this.#complaint !== undefined && !isNew) log.info({ what }, 'files usable again');
    this.#complaint = undefined;
    if (!isNew) return;
    this.#current = value;
    onChange(value);
  }
}
