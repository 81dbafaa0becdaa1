/**
 * What a replica remembers of jobs between its rounds, each by its id. All of it is a shortcut:
 * what counts is in the row, and a replica that starts anew learns the rest again.
 */
import type { JobFailure } from '../jobs/job.ts';

/** Beyond any number of jobs that meet trouble at once; the ones remembered longest go first. */
const MEMORIES_MAX = 10_000;
/**
 * After claims that met refusals only, doubling: a node that reports room and refuses must not
 * spin.
 */
const REFUSED_WAIT_MIN_MS = 100;
const REFUSED_WAIT_MAX_MS = 2000;

/** What this replica remembers of a job; losing it costs a detour at most. */
export interface JobMemory {
  /** Boots of nodes that cannot do it. */
  readonly excludedBoots: ReadonlySet<string>;
  /** Nodes an attempt failed on. */
  readonly avoidedNodes: ReadonlySet<string>;
  /** What its last lost attempt made due. */
  readonly failure: JobFailure | undefined;
}

interface Entry {
  readonly excludedBoots: Set<string>;
  readonly avoidedNodes: Set<string>;
  nodeFaults: number;
  readFaults: number;
  /** Claims that ended in refusals only, since the last admission. */
  refusedClaims: number;
  /** Until then the job is not offered. */
  waitUntilMs: number;
  incapableSinceMs: number | undefined;
  failure: JobFailure | undefined;
}

export class JobMemories {
  readonly #now: () => number;
  readonly #entries = new Map<string, Entry>();

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Undefined: nothing. */
  find(jobId: string): JobMemory | undefined {
    return this.#entries.get(jobId);
  }

  forget(jobId: string): void {
    this.#entries.delete(jobId);
  }

  /** That boot of a node said that it cannot do it. */
  nodeIncapable(jobId: string, bootId: string): void {
    this.#entry(jobId).excludedBoots.add(bootId);
  }

  /** An attempt was lost with the node. */
  nodeLost(jobId: string, nodeId: string): void {
    this.#entry(jobId).avoidedNodes.add(nodeId);
  }

  /** An attempt met the node's own fault. @returns how many have */
  nodeFault(jobId: string, nodeId: string): number {
    const entry = this.#entry(jobId);
    entry.avoidedNodes.add(nodeId);
    entry.nodeFaults += 1;
    return entry.nodeFaults;
  }

  /** A file of it could not be read from our storage. @returns how often */
  readFault(jobId: string): number {
    const entry = this.#entry(jobId);
    entry.readFaults += 1;
    return entry.readFaults;
  }

  /** Its next claim ends it with this. */
  mustFail(jobId: string, failure: JobFailure): void {
    this.#entry(jobId).failure = failure;
  }

  admitted(jobId: string): void {
    const entry = this.#entries.get(jobId);
    if (entry !== undefined) entry.refusedClaims = 0;
  }

  /** A claim met refusals only. */
  claimRefused(jobId: string): void {
    const entry = this.#entry(jobId);
    const waitMs = REFUSED_WAIT_MIN_MS * 2 ** entry.refusedClaims;
    entry.refusedClaims += 1;
    entry.waitUntilMs = this.#now() + Math.min(REFUSED_WAIT_MAX_MS, waitMs);
  }

  /** Whether its last claims met nothing but refusals, and too short a time ago. */
  mustWait(jobId: string): boolean {
    return this.#now() < (this.#entries.get(jobId)?.waitUntilMs ?? Number.NEGATIVE_INFINITY);
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

  #entry(jobId: string): Entry {
    const known = this.#entries.get(jobId);
    if (known !== undefined) return known;
    const entry: Entry = {
      excludedBoots: new Set(),
      avoidedNodes: new Set(),
      nodeFaults: 0,
      readFaults: 0,
      refusedClaims: 0,
      waitUntilMs: Number.NEGATIVE_INFINITY,
      incapableSinceMs: undefined,
      failure: undefined,
    };
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size < MEMORIES_MAX) break;
      this.#entries.delete(oldest);
    }
    this.#entries.set(jobId, entry);
    return entry;
  }
}
