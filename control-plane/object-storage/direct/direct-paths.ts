/**
 * Which attempts let their files go straight between node and storage. It is asked for each one:
 * the node must list the storage's origin, and neither it nor the job may have met trouble on that
 * way lately. All it remembers is a shortcut: a replica that starts anew learns it again, by
 * attempts that count for nothing.
 */
import type { Logger } from 'pino';
import type {
  DirectAttemptOrder,
  DirectAttempts,
  DirectNode,
} from '../../core/attempts/direct-attempts.ts';
import type { BlobStore } from '../../core/storage/blob-store.ts';
import { type DirectParts, SignedAttempt } from './direct-attempt.ts';

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

/** Undefined: the storage signs nothing. */
export function openDirectPaths(blobs: BlobStore, log: Logger): DirectAttempts | undefined {
  const { signed } = blobs;
  return signed && new DirectPaths({ signed, blobs, log, now: () => performance.now() });
}

class DirectPaths implements DirectAttempts {
  readonly #options: DirectParts;
  readonly #pauses = new Map<string, Pause>();
  readonly #streamedJobs = new Set<string>();

  constructor(options: DirectParts) {
    this.#options = options;
  }

  begin(node: DirectNode, order: DirectAttemptOrder): SignedAttempt | undefined {
    const { signed, now } = this.#options;
    if (!node.directOrigins.includes(signed.origin)) return undefined;
    if (this.#streamedJobs.has(order.jobId)) return undefined;
    if (now() < (this.#pauses.get(node.bootId)?.untilMs ?? 0)) return undefined;
    return new SignedAttempt(this.#options, order);
  }

  worked({ bootId }: DirectNode): void {
    this.#pauses.delete(bootId);
  }

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
