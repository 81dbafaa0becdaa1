import { FETCH_LIMITS } from '@matting/http/outgoing/guarded-fetch.ts';
import type { NodeAbility } from '@matting/nodes/node-view.ts';
import { CachedValue } from '@matting/program/caches.ts';
import { unavailable } from '@matting/proto/contract/errors.ts';
import type { QueuedWork } from '@matting/queue/queue.ts';
import { needsBeforeImage, needsOf, type ProcessingOptions } from '../dispatch/job-needs.ts';
import { fleetRefusalOf } from '../dispatch/node-refusals.ts';
import type { JobInput } from '../jobs/job-request.ts';
import type { Queue } from '../queue/queue.ts';
import { excessOf, retryAfterS } from '../queue/queue-bound.ts';

/** Between two reads of the queue, the rate limits bound what is accepted. */
const QUEUE_CACHE_MS = 1000;
const NO_NODE_RETRY_AFTER_S = 10;
const PACE_WINDOWS_MS = [60_000, 600_000];
const PACE_CACHE_MS = 5000;

interface AcceptanceDependencies {
  readonly queue: Pick<Queue, 'queued' | 'doneWithin'>;
  /** Time since a node was routable, or since the start. Absent: nodes start when there is work. */
  readonly unroutableMs?: (() => number) | undefined;
  readonly noNodeGraceMs: number;
  readonly advertised: () => readonly NodeAbility[] | undefined;
  readonly queueMegapixelsMax: number;
  readonly now?: () => number;
}

export class AcceptanceGate {
  readonly #dependencies: AcceptanceDependencies;
  readonly #queued: CachedValue<QueuedWork>;
  readonly #megapixelsPerS: CachedValue<number>;

  constructor(dependencies: AcceptanceDependencies) {
    const { queue, now = () => performance.now() } = dependencies;
    this.#dependencies = dependencies;
    this.#queued = new CachedValue(() => queue.queued(), QUEUE_CACHE_MS, now);
    this.#megapixelsPerS = new CachedValue(() => megapixelsPerS(queue), PACE_CACHE_MS, now);
  }

  /**
   * @param image undefined before its download; the job then checks it
   * @throws ContractError of the field or the image; SERVICE_UNAVAILABLE: no node serves the
   * default plan
   */
  requireAble(request: ProcessingOptions, image: JobInput | undefined): void {
    const nodes = this.#dependencies.advertised();
    if (nodes === undefined) return;
    const needs = image === undefined ? needsBeforeImage(request) : needsOf(image, request);
    const refusal = fleetRefusalOf(nodes, needs);
    if (refusal !== undefined) throw refusal;
    const isServed = needs.model !== undefined || nodes.some(node => !node.onlyByName);
    if (nodes.length > 0 && !isServed) throw noNode();
  }

  /** @throws ContractError SERVICE_UNAVAILABLE: no node, or a full queue for this account */
  async requireOpen(accountId: string): Promise<void> {
    const { queueMegapixelsMax } = this.#dependencies;
    this.#requireNode();
    const { byAccount } = await this.#queued.get();
    const excess = excessOf(accountId, byAccount, queueMegapixelsMax);
    if (excess === undefined) return;
    const megapixelsPerS = await this.#megapixelsPerS.get();
    throw unavailable(
      'The queue is full. Send the same request again after Retry-After.',
      retryAfterS(excess, { megapixelsPerS, fetchMsMax: FETCH_LIMITS.totalMs }),
    );
  }

  #requireNode(): void {
    const { unroutableMs, noNodeGraceMs } = this.#dependencies;
    if (unroutableMs === undefined || unroutableMs() <= noNodeGraceMs) return;
    throw noNode();
  }
}

function noNode() {
  return unavailable(
    'No inference node is available. Send the same request again after Retry-After.',
    NO_NODE_RETRY_AFTER_S,
  );
}

/** A minute without a finished job does not predict the next, so the higher pace counts. */
async function megapixelsPerS(queue: Pick<Queue, 'doneWithin'>): Promise<number> {
  const paces = PACE_WINDOWS_MS.map(async windowMs => {
    const { cost: megapixels } = await queue.doneWithin(windowMs);
    return (megapixels * 1000) / windowMs;
  });
  return Math.max(...(await Promise.all(paces)));
}
