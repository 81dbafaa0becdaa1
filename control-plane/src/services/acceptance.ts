/**
 * Whether the service as a whole takes another job: asked after replay and join and before a credit
 * is touched. Jobs accepted earlier are not its matter; they wait.
 */
import { ContractError } from '#contract/errors.ts';
import type { JobStore } from '../store/job-store.ts';

/**
 * The queue is counted at most this often; what is overshot meanwhile is bounded by the rate
 * limits.
 */
const QUEUE_CACHE_MS = 1000;
/** A node that restarts is back within this. */
const NO_NODE_RETRY_AFTER_S = 10;
/** Throughput is what all replicas finished in this long. */
const THROUGHPUT_WINDOW_MS = 60_000;
const SATURATED_RETRY_AFTER_MIN_S = 5;
/** Longer than a job may wait for its first admission says nothing more. */
const SATURATED_RETRY_AFTER_MAX_S = 3600;
/** Nothing was finished in the window: a fleet that starts, or one that stands still. */
const STANDSTILL_RETRY_AFTER_S = 120;

export interface AcceptanceDependencies {
  readonly jobs: Pick<JobStore, 'queued' | 'doneWithin'>;
  /**
   * Milliseconds since a node was last routable here: 0 while one is; counted from the start of
   * this process where none has been.
   */
  readonly unroutableMs: () => number;
  readonly noNodeGraceMs: number;
  readonly queueMegapixelsMax: number;
  readonly now?: () => number;
}

export class AcceptanceGate {
  readonly #dependencies: AcceptanceDependencies;
  readonly #now: () => number;
  #counted: Counted | undefined;
  #finished: Counted | undefined;

  constructor(dependencies: AcceptanceDependencies) {
    this.#dependencies = dependencies;
    this.#now = dependencies.now ?? (() => performance.now());
  }

  /** @throws ContractError SERVICE_UNAVAILABLE with retryAfterS. */
  async requireOpen(): Promise<void> {
    const { unroutableMs, noNodeGraceMs, queueMegapixelsMax } = this.#dependencies;
    if (unroutableMs() > noNodeGraceMs) {
      throw new ContractError('SERVICE_UNAVAILABLE', 'no inference node is available', {
        retryAfterS: NO_NODE_RETRY_AFTER_S,
      });
    }
    const megapixels = await this.#queuedMegapixels();
    if (megapixels > queueMegapixelsMax) {
      throw new ContractError('SERVICE_UNAVAILABLE', 'the queue is full', {
        retryAfterS: retryAfterS(megapixels - queueMegapixelsMax, await this.#done()),
      });
    }
  }

  #queuedMegapixels(): Promise<number> {
    this.#counted = this.#cached(this.#counted, async () => {
      const { megapixels } = await this.#dependencies.jobs.queued();
      return megapixels;
    });
    return this.#counted.megapixels;
  }

  /** Asked only where somebody is refused. */
  #done(): Promise<number> {
    this.#finished = this.#cached(this.#finished, async () => {
      const { megapixels } = await this.#dependencies.jobs.doneWithin(THROUGHPUT_WINDOW_MS);
      return megapixels;
    });
    return this.#finished.megapixels;
  }

  #cached(counted: Counted | undefined, count: () => Promise<number>): Counted {
    const now = this.#now();
    const isFresh = counted !== undefined && now - counted.atMs < QUEUE_CACHE_MS;
    if (isFresh && !counted.failed) return counted;
    const fresh: Counted = { atMs: now, megapixels: count(), failed: false };
    // A failed count is not kept: the next caller asks anew, this one gets the error.
    fresh.megapixels.catch(() => {
      fresh.failed = true;
    });
    return fresh;
  }
}

interface Counted {
  readonly atMs: number;
  readonly megapixels: Promise<number>;
  failed: boolean;
}

/** Until the queue is below its bound, at the pace at which jobs were finished lately. */
function retryAfterS(excessMegapixels: number, doneMegapixels: number): number {
  if (doneMegapixels <= 0) return STANDSTILL_RETRY_AFTER_S;
  const seconds = Math.ceil((excessMegapixels * THROUGHPUT_WINDOW_MS) / (1000 * doneMegapixels));
  return Math.min(SATURATED_RETRY_AFTER_MAX_S, Math.max(SATURATED_RETRY_AFTER_MIN_S, seconds));
}
