/**
 * Which attempts let their files go straight between node and storage. It is asked for each one:
 * the node must list the storage's origin, and neither it nor the job may have met trouble on that
 * way lately. All it remembers is a shortcut: a replica that starts anew learns it again, by
 * attempts that count for nothing.
 */
import type { Offer } from '../../core/nodes/node-link.ts';
import { DirectAttempt, type DirectAttemptOrder, type DirectParts } from './direct-attempt.ts';

/** After a node could not reach the storage its attempts are streamed so long, doubling. */
const PAUSE_MIN_MS = 30_000;
const PAUSE_MAX_MS = 600_000;
/** Beyond any fleet; the ones remembered longest go first. */
const NODES_MAX = 1000;
/** Jobs of which an attempt failed on this way, the same. */
const JOBS_MAX = 10_000;

interface Pause {
  readonly untilMs: number;
  readonly lengthMs: number;
}

/** A node as its offer shows it. */
type DirectNode = Pick<Offer, 'bootId' | 'directOrigins'>;

export class DirectPaths {
  readonly #options: DirectParts;
  readonly #pauses = new Map<string, Pause>();
  readonly #streamedJobs = new Set<string>();

  constructor(options: DirectParts) {
    this.#options = options;
  }

  /** Undefined: this attempt is streamed. */
  begin(node: DirectNode, order: DirectAttemptOrder): DirectAttempt | undefined {
    const { signed, now } = this.#options;
    if (!node.directOrigins.includes(signed.origin)) return undefined;
    if (this.#streamedJobs.has(order.jobId)) return undefined;
    if (now() < (this.#pauses.get(node.bootId)?.untilMs ?? 0)) return undefined;
    return new DirectAttempt(this.#options, order);
  }

  /** The node got and put its files. */
  worked({ bootId }: DirectNode): void {
    this.#pauses.delete(bootId);
  }

  /**
   * The node could not: the job's further attempts are streamed, and others of the node for now.
   * @param node undefined: the way is not the node's fault.
   */
  failed(node: DirectNode | undefined, jobId: string): void {
    forgetOldest(this.#streamedJobs, JOBS_MAX);
    this.#streamedJobs.add(jobId);
    if (node !== undefined) this.#pause(node);
  }

  #pause({ bootId }: DirectNode): void {
    const before = this.#pauses.get(bootId);
    const lengthMs = before === undefined ? PAUSE_MIN_MS : before.lengthMs * 2;
    // Anew at the end: the one that was paused last is forgotten last.
    this.#pauses.delete(bootId);
    forgetOldest(this.#pauses, NODES_MAX);
    const paused = Math.min(PAUSE_MAX_MS, lengthMs);
    this.#pauses.set(bootId, { untilMs: this.#options.now() + paused, lengthMs: paused });
  }
}

function forgetOldest(entries: Map<string, unknown> | Set<string>, max: number): void {
  for (const oldest of entries.keys()) {
    if (entries.size < max) return;
    entries.delete(oldest);
  }
}
