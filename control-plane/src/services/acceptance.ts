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
const SATURATED_RETRY_AFTER_MIN_S = 5;
const SATURATED_RETRY_AFTER_MAX_S = 120;

export interface AcceptanceDependencies {
  readonly jobs: Pick<JobStore, 'queued'>;
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
  #counted: { readonly atMs: number; readonly megapixels: Promise<number> } | undefined;

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
        retryAfterS: retryAfterS(megapixels / queueMegapixelsMax),
      });
    }
  }

  #queuedMegapixels(): Promise<number> {
    const now = this.#now();
    if (this.#counted === undefined || now - this.#counted.atMs >= QUEUE_CACHE_MS) {
      const megapixels = this.#dependencies.jobs.queued().then(queued => queued.megapixels);
      const counted = { atMs: now, megapixels };
      this.#counted = counted;
      // A failed count is not kept: the next caller asks anew, this one gets the error.
      megapixels.catch(() => {
        if (this.#counted === counted) this.#counted = undefined;
      });
    }
    return this.#counted.megapixels;
  }
}

/** The further over the bound, the later it pays to come again. */
function retryAfterS(load: number): number {
  const seconds = Math.ceil(SATURATED_RETRY_AFTER_MIN_S * load * load);
  return Math.min(SATURATED_RETRY_AFTER_MAX_S, Math.max(SATURATED_RETRY_AFTER_MIN_S, seconds));
}
