/**
 * Follows the content of files. It polls every POLL_MS, because secrets are mounted by renaming a
 * directory above the files, which file watches do not see.
 *
 * | the files              | what happens                                             |
 * |------------------------|----------------------------------------------------------|
 * | unchanged              | nothing                                                  |
 * | usable and changed     | read again after SETTLE_MS. If equal, the new value and  |
 * |                        | `onChange`; otherwise the old value stays                |
 * | not usable             | the value stays; one warning until the reason changes    |
 *
 * The second read is necessary because a partly written file may be usable: half a token, or the
 * first of two tokens.
 */
import { setTimeout as wait } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';

const POLL_MS = 10_000;
/** Longer than the pause in which a writer has written a part of a file. */
const SETTLE_MS = 1_000;

export interface FollowLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}

interface FollowOptions<T> {
  /** Names the files in the log. */
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

  /** @param read rejects if the files are unusable, with a reason without content */
  constructor(current: T, read: () => Promise<T>, options: FollowOptions<T>) {
    this.#current = current;
    this.#read = read;
    this.#options = options;
    this.#timer = setInterval(() => void this.reload(), options.pollMs ?? POLL_MS);
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
