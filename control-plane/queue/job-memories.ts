/** Facts that a replica remembers of jobs between rounds. Losing them costs at most one attempt. */
import type { JobFailure } from './job.ts';

/** Far more jobs than fail at once. At the bound the oldest entry goes. */
const MEMORIES_MAX = 10_000;
/** Exponential backoff for a claim that every node refused: a node may report room and refuse. */
const REFUSED_WAIT_MIN_MS = 100;
export const REFUSED_WAIT_MAX_MS = 2000;

const FULL_WAIT_MIN_MS = 2000;
const FULL_WAIT_MAX_MS = 60_000;

export interface JobMemory {
  readonly excludedBoots: Set<string>;
  readonly avoidedNodes: Set<string>;
  /** Boots of nodes that failed the optional part of the job. */
  readonly extraFailed: Set<string>;
  nodeFaults: number;
  readFaults: number;
  /** Refusals since the last admission, except for lack of room. */
  refusals: number;
  /** Claims since the last admission that every node refused. */
  refusedClaims: number;
  storageFulls: number;
  waitUntilMs: number;
  incapableSinceMs: number | undefined;
  failure: JobFailure | undefined;
}

export class JobMemories {
  readonly #now: () => number;
  readonly #entries = new Map<string, JobMemory>();

  constructor(now: () => number) {
    this.#now = now;
  }

  find(jobId: string): Readonly<JobMemory> | undefined {
    return this.#entries.get(jobId);
  }

  forget(jobId: string): void {
    this.#entries.delete(jobId);
  }

  nodeIncapable(jobId: string, bootId: string): void {
    this.#entry(jobId).excludedBoots.add(bootId);
  }

  extraFailed(jobId: string, bootId: string): void {
    this.#entry(jobId).extraFailed.add(bootId);
  }

  nodeLost(jobId: string, nodeId: string): void {
    this.#entry(jobId).avoidedNodes.add(nodeId);
  }

  /** @returns how many attempts met a fault of the node or a rejection */
  nodeFault(jobId: string, nodeId: string): number {
    const entry = this.#entry(jobId);
    entry.avoidedNodes.add(nodeId);
    entry.nodeFaults += 1;
    return entry.nodeFaults;
  }

  /** @returns how often the storage failed to deliver a file of the job */
  readFault(jobId: string): number {
    const entry = this.#entry(jobId);
    entry.readFaults += 1;
    return entry.readFaults;
  }

  refused(jobId: string): number {
    const entry = this.#entry(jobId);
    entry.refusals += 1;
    return entry.refusals;
  }

  mustFail(jobId: string, failure: JobFailure): void {
    this.#entry(jobId).failure = failure;
  }

  admitted(jobId: string): void {
    const entry = this.#entries.get(jobId);
    if (entry !== undefined) Object.assign(entry, { refusedClaims: 0, refusals: 0 });
  }

  claimRefused(jobId: string): void {
    const entry = this.#entry(jobId);
    const waitMs = REFUSED_WAIT_MIN_MS * 2 ** entry.refusedClaims;
    entry.refusedClaims += 1;
    entry.waitUntilMs = this.#now() + Math.min(REFUSED_WAIT_MAX_MS, waitMs);
  }

  /** The wait grows: an operator must make room, and each attempt costs a node's work. */
  storageFull(jobId: string): void {
    const entry = this.#entry(jobId);
    const waitMs = FULL_WAIT_MIN_MS * 2 ** entry.storageFulls;
    entry.storageFulls += 1;
    entry.waitUntilMs = this.#now() + Math.min(FULL_WAIT_MAX_MS, waitMs);
  }

  mustWait(jobId: string): boolean {
    return this.#now() < (this.#entries.get(jobId)?.waitUntilMs ?? Number.NEGATIVE_INFINITY);
  }

  /** @returns since when no node can do the job; undefined: one can */
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

  #entry(jobId: string): JobMemory {
    const existing = this.#entries.get(jobId);
    if (existing !== undefined) return existing;
    const entry: JobMemory = {
      excludedBoots: new Set(),
      avoidedNodes: new Set(),
      extraFailed: new Set(),
      nodeFaults: 0,
      readFaults: 0,
      refusals: 0,
      refusedClaims: 0,
      storageFulls: 0,
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
