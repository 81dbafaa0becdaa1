/**
 * Places for readers of results. A link needs no key, and its reader may be as slow as
 * program/ports/http-guard.ts allows: so one link, one account's links and all links have a bound,
 * far below the number of connections. Accounts share the places fairly, so that a few of them
 * leave room for the links of another.
 */
import { ContractError } from '#contract/errors.ts';
import { Semaphore } from '#program/semaphore.ts';

export interface ResultReaderBounds {
  /** Readers of one link: a download in parts usually takes at most 16 at once. */
  readonly linkMax: number;
  /** Readers of all links of one account, however many places are free. */
  readonly accountMax: number;
  /** Readers of all links. */
  readonly max: number;
}

export const RESULT_READER_BOUNDS: ResultReaderBounds = { linkMax: 16, accountMax: 256, max: 1024 };

/** Most downloads are over by then. */
const RETRY_AFTER_S = 5;

export class ResultReaders {
  readonly #bounds: ResultReaderBounds;
  readonly #links = new Map<string, number>();
  readonly #all: Semaphore;

  constructor(bounds = RESULT_READER_BOUNDS) {
    this.#bounds = bounds;
    this.#all = new Semaphore({
      max: bounds.max,
      waitingMax: 0,
      refusal: () => refused('SERVICE_UNAVAILABLE', 'too many results are being read'),
    });
  }

  /** Answers under way. */
  get open(): number {
    return this.#all.held;
  }

  /**
   * Takes a place. The returned function gives it back; a second call does nothing.
   * @throws ContractError RATE_LIMITED, SERVICE_UNAVAILABLE
   */
  enter({ jobId, accountId }: { jobId: string; accountId: string }): () => void {
    const { linkMax, accountMax } = this.#bounds;
    const readers = this.#links.get(jobId) ?? 0;
    if (readers >= linkMax) {
      throw refused('RATE_LIMITED', `this result is being read ${linkMax} times at once already`);
    }
    if (this.#all.heldBy(accountId) >= accountMax) {
      const detail = `results of this account are being read ${accountMax} times at once already`;
      throw refused('RATE_LIMITED', detail);
    }
    const release = this.#all.takeNow({ key: accountId });
    this.#links.set(jobId, readers + 1);
    let left = false;
    return () => {
      if (left) return;
      left = true;
      release();
      const now = this.#links.get(jobId)! - 1;
      if (now === 0) this.#links.delete(jobId);
      else this.#links.set(jobId, now);
    };
  }
}

function refused(code: 'RATE_LIMITED' | 'SERVICE_UNAVAILABLE', detail: string): ContractError {
  return new ContractError(code, detail, { retryAfterS: RETRY_AFTER_S });
}
