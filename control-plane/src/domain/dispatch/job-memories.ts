/**
 * What this replica remembers of jobs between its looks at the table. All of it is a shortcut: what
 * counts is in the row, and a replica that starts anew learns the rest again.
 */
import type { JobFailure } from '../job.ts';

/** Beyond any number of jobs that meet trouble at once; the ones remembered longest go first. */
const MEMORIES_MAX = 10_000;
/**
 * After claims that met refusals only, doubling: a node that reports room and refuses must not
 * spin.
 */
const REFUSED_WAIT_MIN_MS = 100;
const REFUSED_WAIT_MAX_MS = 2000;

/** What this replica remembers of a job between claims; losing it costs a detour at most. */
export interface JobMemory {
  /** Boots of nodes that cannot do it. */
  readonly excludedBoots: Set<string>;
  /** Nodes an attempt failed on. */
  readonly avoidedNodes: Set<string>;
  nodeFaults: number;
  /** Claims that ended in refusals only, since the last admission. */
  refusedClaims: number;
  /** What its last lost attempt made due. */
  failure: JobFailure | undefined;
}

interface Entry extends JobMemory {
  incapableSinceMs: number | undefined;
  /** Until then the job is not offered, as of `refusedClaims` below. */
  waitUntilMs: number;
  waitedFor: number;
}

export class JobMemories {
  readonly #now: () => number;
  readonly #entries = new Map<string, Entry>();

  constructor(now: () => number) {
    this.#now = now;
  }

  of(jobId: string): JobMemory {
    return this.#entry(jobId);
  }

  /** Makes none. */
  peek(jobId: string): JobMemory | undefined {
    return this.#entries.get(jobId);
  }

  forget(jobId: string): void {
    this.#entries.delete(jobId);
  }

  /** Since when no node could do it, without a break; undefined while one can. */
  incapableSince(jobId: string, incapable: boolean): number | undefined {
    if (!incapable) {
      const entry = this.#entries.get(jobId);
      if (entry !== undefined) entry.incapableSinceMs = undefined;
      return undefined;
    }
    const entry = this.#entry(jobId);
    entry.incapableSinceMs ??= this.#now();
    return entry.incapableSinceMs;
  }

  /** Whether its last claims met nothing but refusals, and too short a time ago. */
  mustWait(jobId: string): boolean {
    const entry = this.#entries.get(jobId);
    if (entry === undefined) return false;
    if (entry.refusedClaims > entry.waitedFor) {
      const doubled = REFUSED_WAIT_MIN_MS * 2 ** (entry.refusedClaims - 1);
      entry.waitUntilMs = this.#now() + Math.min(REFUSED_WAIT_MAX_MS, doubled);
    }
    entry.waitedFor = entry.refusedClaims;
    return this.#now() < entry.waitUntilMs;
  }

  #entry(jobId: string): Entry {
    const known = this.#entries.get(jobId);
    if (known !== undefined) return known;
    const entry: Entry = {
      excludedBoots: new Set(),
      avoidedNodes: new Set(),
      nodeFaults: 0,
      refusedClaims: 0,
      failure: undefined,
      incapableSinceMs: undefined,
      waitUntilMs: 0,
      waitedFor: 0,
    };
    if (this.#entries.size >= MEMORIES_MAX) {
      const [oldest] = this.#entries.keys();
      this.#entries.delete(oldest);
    }
    this.#entries.set(jobId, entry);
    return entry;
  }
}
