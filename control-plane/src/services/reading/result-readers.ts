/**
 * Places for readers of results. A link needs no key, and its reader may be as slow as
 * program/ports/reading-pace.ts allows: so one link, one account's links and all links have a bound,
 * far below the number of connections. Accounts share the places by domain/shared-places.ts, so that
 * a few of them leave room for the links of another.
 */
import { ContractError } from '#contract/errors.ts';
import { mayTakePlace } from '../../domain/shared-places.ts';

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
  readonly #accounts = new Map<string, number>();
  #open = 0;

  constructor(bounds = RESULT_READER_BOUNDS) {
    this.#bounds = bounds;
  }

  /** Answers under way. */
  get open(): number {
    return this.#open;
  }

  /**
   * Takes a place. The returned function gives it back; a second call does nothing.
   * @throws ContractError RATE_LIMITED, SERVICE_UNAVAILABLE
   */
  enter({ jobId, accountId }: { jobId: string; accountId: string }): () => void {
    const { linkMax, accountMax, max } = this.#bounds;
    const retry = { retryAfterS: RETRY_AFTER_S };
    if ((this.#links.get(jobId) ?? 0) >= linkMax) {
      const detail = `this result is being read ${linkMax} times at once already`;
      throw new ContractError('RATE_LIMITED', detail, retry);
    }
    const held = this.#accounts.get(accountId) ?? 0;
    if (held >= accountMax) {
      const detail = `results of this account are being read ${accountMax} times at once already`;
      throw new ContractError('RATE_LIMITED', detail, retry);
    }
    if (!mayTakePlace(held, max - this.#open)) {
      throw new ContractError('SERVICE_UNAVAILABLE', 'too many results are being read', retry);
    }
    this.#open += 1;
    add(this.#links, jobId, 1);
    add(this.#accounts, accountId, 1);
    let left = false;
    return () => {
      if (left) return;
      left = true;
      this.#open -= 1;
      add(this.#links, jobId, -1);
      add(this.#accounts, accountId, -1);
    };
  }
}

/** Deletes a key whose count reaches 0. */
function add(counts: Map<string, number>, key: string, by: 1 | -1): void {
  const count = (counts.get(key) ?? 0) + by;
  if (count === 0) counts.delete(key);
  else counts.set(key, count);
}
