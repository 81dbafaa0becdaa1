/**
 * Whether the service takes another job of an account: checked after replay and join and before a
 * credit is reserved. Jobs that were accepted are not checked again; they wait.
 */

import { ContractError } from '#contract/errors.ts';
import { Remembered } from '#program/remembered.ts';
import {
  type AskedOfNode,
  type NodeAbility,
  needsBeforeImage,
  needsOf,
  refusalOf,
} from '../dispatch/job-needs.ts';
import type { QueuedWork } from '../dispatch/job-queue.ts';
import { aheadOf, RETRY_AFTER_MAX_S, retryAfterS } from '../dispatch/queue-share.ts';
import { FETCH_LIMITS } from '../fetching/fetch-image.ts';
import type { JobInput } from '../jobs/job.ts';
import type { JobStore } from '../jobs/job-store.ts';

/**
 * The queue is counted at most this often; the rate limits bound what is accepted in between.
 */
const QUEUE_CACHE_MS = 1000;
/** A node that restarts is back within this. */
const NO_NODE_RETRY_AFTER_S = 10;
/** The pace is the work that all replicas finished in these windows. */
const PACE_WINDOWS_MS = [60_000, 600_000];
/** Read only where a submission is refused. */
const PACE_CACHE_MS = 5000;

export interface AcceptanceDependencies {
  readonly jobs: Pick<JobStore, 'queued' | 'doneWithin'>;
  /**
   * Milliseconds since a node was last routable here: 0 while one is; counted from the start of
   * this process where none has been. Absent: nodes come when there is work, so that none is no
   * reason to refuse it.
   */
  readonly unroutableMs?: (() => number) | undefined;
  readonly noNodeGraceMs: number;
  /** Nodes whose word of what they can do counts; undefined: any may come. */
  readonly advertised: () => readonly NodeAbility[] | undefined;
  readonly queueMegapixelsMax: number;
  readonly now?: () => number;
}

export class AcceptanceGate {
  readonly #dependencies: AcceptanceDependencies;
  readonly #queued: Remembered<QueuedWork>;
  readonly #megapixelsPerS: Remembered<number>;

  constructor(dependencies: AcceptanceDependencies) {
    const { jobs, now = () => performance.now() } = dependencies;
    this.#dependencies = dependencies;
    this.#queued = new Remembered(() => jobs.queued(), QUEUE_CACHE_MS, now);
    this.#megapixelsPerS = new Remembered(() => megapixelsPerS(jobs), PACE_CACHE_MS, now);
  }

  /**
   * Passes where some node can do it, was there lately and may be back, or may yet come.
   * @param image undefined: it is not there yet, and its job finds out
   * @throws ContractError of the field that none can follow, or of the image
   */
  requireAble(asked: AskedOfNode, image: JobInput | undefined): void {
    const nodes = this.#dependencies.advertised();
    if (nodes === undefined) return;
    const needs = image === undefined ? needsBeforeImage(asked) : needsOf(image, asked);
    const refusal = refusalOf(nodes, needs);
    if (refusal !== undefined) throw refusal;
  }

  /**
   * Passes where the account may add a job.
   * @throws ContractError SERVICE_UNAVAILABLE with retryAfterS.
   */
  async requireOpen(accountId: string): Promise<void> {
    const { queueMegapixelsMax } = this.#dependencies;
    this.#requireNode();
    const { byAccount } = await this.#queued.get();
    const ahead = aheadOf(accountId, byAccount, queueMegapixelsMax);
    if (ahead === undefined) return;
    const megapixelsPerS = await this.#megapixelsPerS.get();
    throw new ContractError('SERVICE_UNAVAILABLE', 'the queue is full', {
      retryAfterS: retryAfterS(ahead, { megapixelsPerS, fetchMsMax: FETCH_LIMITS.totalMs }),
    });
  }

  /**
   * Passes where the queue takes work of everyone: below its bound, however little of it is the
   * account's. A playground takes nobody's share.
   * @throws ContractError SERVICE_UNAVAILABLE with retryAfterS
   */
  async requireRoom(): Promise<void> {
    this.#requireNode();
    const { megapixels } = await this.#queued.get();
    if (megapixels < this.#dependencies.queueMegapixelsMax) return;
    throw new ContractError('SERVICE_UNAVAILABLE', 'the queue is full', {
      retryAfterS: RETRY_AFTER_MAX_S,
    });
  }

  #requireNode(): void {
    const { unroutableMs, noNodeGraceMs } = this.#dependencies;
    if (unroutableMs === undefined || unroutableMs() <= noNodeGraceMs) return;
    throw new ContractError('SERVICE_UNAVAILABLE', 'no inference node is available', {
      retryAfterS: NO_NODE_RETRY_AFTER_S,
    });
  }
}

/** The higher of two paces: a minute in which no job finished does not predict the next. */
async function megapixelsPerS(jobs: Pick<JobStore, 'doneWithin'>): Promise<number> {
  const paces = PACE_WINDOWS_MS.map(async windowMs => {
    const { megapixels } = await jobs.doneWithin(windowMs);
    return (megapixels * 1000) / windowMs;
  });
  return Math.max(...(await Promise.all(paces)));
}
