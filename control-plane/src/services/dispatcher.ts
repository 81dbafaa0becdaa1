/**
 * Gives open jobs to nodes: the loop behind every job. The deep queue is the jobs table; this
 * replica claims a job only when it has room for it on a node in hand (or downloads its source, or
 * must end it), so that nobody's lease waits for a node. What happens under a claim is the job
 * runner's.
 *
 * | state    | entered by     | left by                                                           |
 * |----------|----------------|-------------------------------------------------------------------|
 * | idle     | construction   | start                                                             |
 * | running  | start          | stop                                                              |
 * | stopping | stop           | the last run ends; at the limit or on `hurry` runs are given back |
 * | stopped  | no run is left | -                                                                 |
 *
 * It looks at the table when a job was submitted here, when a node's room changed and jobs are
 * known to wait, and every POLL_MS for what other replicas left (their submissions, expired
 * leases).
 */
import type { Logger } from 'pino';
import {
  type JobNeeds,
  megapixelsOf,
  type NodeChoice,
  type NodeSnapshot,
  pickNode,
} from '../domain/dispatch-policy.ts';
import type { JobFailure } from '../domain/job.ts';
import { type JobLane, orderJobs, type Shares } from '../domain/job-turns.ts';
import { failureDue, LEASE_MS } from '../domain/lease.ts';
import type { Offer } from '../nodes/node-link.ts';
import type { ClaimableJob, JobStore } from '../store/job-store.ts';
import { needsOf } from './claimed-job.ts';
import type { JobEvents, SubmittedJob } from './job-events.ts';
import { JobMemories } from './job-memories.ts';
import type { JobObserver } from './job-observer.ts';
import type { JobRunner } from './job-runner.ts';
import { KnownLanes } from './known-lanes.ts';

/** A job of another replica waits this long at most before it is seen here. */
const POLL_MS = 1000;
/** Jobs looked at at once: more than any fleet of one replica begins in a moment. */
const LIST_MAX = 256;
/** Downloads at once; each holds a file and a socket, and ends within a minute. */
const FETCHES_MAX = 16;
/** Between looks while the database does not answer, doubling. */
const BACKOFF_MIN_MS = 100;
const BACKOFF_MAX_MS = 2000;

export interface DispatcherFleet {
  snapshots(): NodeSnapshot[];
  offer(node: NodeSnapshot, megapixels: number): Offer | undefined;
  onChange(listener: () => void): () => void;
}

export interface DispatcherDependencies {
  readonly jobs: Pick<JobStore, 'listLanes' | 'listClaimable' | 'claim'>;
  readonly fleet: DispatcherFleet;
  readonly runner: Pick<JobRunner, 'run'>;
  readonly events: JobEvents;
  readonly observer: JobObserver;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  /** This replica, as the holder of its leases. */
  readonly holder: string;
  /** How long a job that no routable node can do waits for one that can. */
  readonly noNodeGraceMs: number;
  /** In [0, 1). */
  readonly random?: () => number;
  readonly now?: () => number;
}

interface Run {
  readonly job: ClaimableJob;
  /** Holds one of the places for downloads. */
  fetching: boolean;
  done: Promise<void>;
}

interface Start {
  readonly offer?: Offer;
  readonly failure?: JobFailure;
}

export class Dispatcher {
  readonly #dependencies: DispatcherDependencies;
  readonly #random: () => number;
  readonly #now: () => number;
  readonly #runs = new Map<string, Run>();
  readonly #memories: JobMemories;
  readonly #lanes = new KnownLanes();
  readonly #giveBack = new AbortController();
  readonly #unsubscribe: (() => void)[] = [];
  #poll: NodeJS.Timeout | undefined;
  #backoff: NodeJS.Timeout | undefined;
  #backoffMs = BACKOFF_MIN_MS;
  #looking: Promise<void> | undefined;
  #lookAgain = false;
  /** Something may be in the table that no look has seen. */
  #news = false;
  /** The last look left jobs that a node's room would let go. */
  #waiting = false;
  #stopping = false;

  constructor(dependencies: DispatcherDependencies) {
    this.#dependencies = dependencies;
    this.#random = dependencies.random ?? Math.random;
    this.#now = dependencies.now ?? (() => performance.now());
    this.#memories = new JobMemories(this.#now);
  }

  start(): void {
    const { events, fleet } = this.#dependencies;
    this.#unsubscribe.push(events.onSubmitted(job => this.#submitted(job)));
    this.#unsubscribe.push(fleet.onChange(() => this.#kick()));
    this.#poll = setInterval(() => this.#lookAnew(), POLL_MS);
    this.#lookAnew();
  }

  /** Jobs worked on here now. */
  get running(): number {
    return this.#runs.size;
  }

  /**
   * Claims nothing more, lets what runs finish within the limit, gives back the rest. Resolves when
   * nothing is left.
   */
  async stop(limitMs: number): Promise<void> {
    this.#stopping = true;
    for (const unsubscribe of this.#unsubscribe.splice(0)) unsubscribe();
    clearInterval(this.#poll);
    clearTimeout(this.#backoff);
    await this.#looking;
    const limit = setTimeout(() => this.hurry(), limitMs);
    // A run that ends starts none, so this is all of them.
    await Promise.all([...this.#runs.values()].map(run => run.done));
    clearTimeout(limit);
  }

  /** What still runs is given back now. */
  hurry(): void {
    this.#giveBack.abort();
  }

  #hasNews(): void {
    this.#news = true;
    this.#kick();
  }

  /** Other replicas may have submitted, or died. */
  #lookAnew(): void {
    this.#lanes.outdate();
    this.#hasNews();
  }

  /** Under a flood most find no room: a look at the table for each would cost more than the job. */
  #submitted(job: SubmittedJob): void {
    this.#lanes.add(job);
    const placeable = job.input === null ? this.#fetching() < FETCHES_MAX : this.#hasRoom();
    if (placeable) this.#hasNews();
    else this.#waiting = true;
  }

  #hasRoom(): boolean {
    return this.#dependencies.fleet.snapshots().some(node => node.imagesFree > 0);
  }

  #kick(): void {
    if (this.#stopping || this.#backoff !== undefined) return;
    if (!this.#news && !this.#waiting) return;
    if (this.#looking !== undefined) {
      this.#lookAgain = true;
      return;
    }
    this.#looking = this.#look().finally(() => {
      this.#looking = undefined;
      if (this.#lookAgain) {
        this.#lookAgain = false;
        this.#kick();
      }
    });
  }

  /** Never rejects. */
  async #look(): Promise<void> {
    const { jobs, log } = this.#dependencies;
    if (!this.#news && !this.#hasRoom()) return;
    this.#news = false;
    // Set again by what this look leaves, and by what is submitted while it is under way.
    this.#waiting = false;
    try {
      if (this.#lanes.stale) this.#lanes.found(await jobs.listLanes());
      const { lanes, all } = this.#lanes.choose(this.#shares());
      const claimable = lanes.length === 0 ? [] : await jobs.listClaimable(LIST_MAX, lanes);
      this.#backoffMs = BACKOFF_MIN_MS;
      if (!all) this.#waiting = true;
      if (!this.#stopping) this.#place(lanes, claimable);
      // All that were looked into had nothing, and are forgotten: there is room to look further.
      if (!all && claimable.length === 0) this.#hasNews();
    } catch (err) {
      log.warn({ err }, 'jobs not readable');
      this.#backOff();
    }
  }

  /** While the database is away looks are spaced out; whatever happens meanwhile is found then. */
  #backOff(): void {
    if (this.#stopping || this.#backoff !== undefined) return;
    this.#backoff = setTimeout(() => {
      this.#backoff = undefined;
      this.#lookAnew();
    }, this.#backoffMs);
    this.#backoffMs = Math.min(BACKOFF_MAX_MS, this.#backoffMs * 2);
  }

  #place(lanes: readonly JobLane[], claimable: readonly ClaimableJob[]): void {
    const free = claimable.filter(job => !this.#runs.has(job.id));
    const placed = orderJobs(free, this.#shares()).filter(job => this.#placeOne(job));
    this.#lanes.looked(lanes, claimable, placed);
    // Behind as many as were asked for a lane may have more.
    const full = claimable.length >= Math.max(1, Math.floor(LIST_MAX / lanes.length));
    this.#waiting ||= full || placed.length < free.length;
  }

  /** False: it waits for room. */
  #placeOne(job: ClaimableJob): boolean {
    const failure = this.#failureDue(job);
    if (failure !== undefined) {
      this.#begin(job, { failure });
      return true;
    }
    if (job.input === null) {
      if (this.#fetching() >= FETCHES_MAX) return false;
      this.#begin(job, {});
      return true;
    }
    if (this.#memories.mustWait(job.id)) return false;
    const offer = this.#takeOffer(job.id, needsOf(job.input, job.outputFormat));
    if (offer === undefined) return false;
    this.#begin(job, { offer });
    return true;
  }

  #failureDue(job: ClaimableJob): JobFailure | undefined {
    // The lost attempts are not in the list: who lost the last one left them in the memory, and the
    // claim reads them again.
    const counted = { ...job, lostAttempts: 0, lostWithProcess: 0 };
    const remembered = this.#memories.peek(job.id)?.failure;
    return remembered ?? failureDue(counted) ?? this.#incapableFailure(job);
  }

  /** Routable nodes, none of which can do it, for longer than the grace. */
  #incapableFailure(job: ClaimableJob): JobFailure | undefined {
    if (job.input === null) return undefined;
    const choice = this.#choose(job.id, needsOf(job.input, job.outputFormat));
    const sinceMs = this.#memories.incapableSince(job.id, choice.kind === 'incapable');
    if (sinceMs === undefined || this.#now() - sinceMs <= this.#dependencies.noNodeGraceMs) {
      return undefined;
    }
    return {
      code: 'PROCESSING_FAILED',
      detail: 'no inference node can process an image of this format and size',
      retryable: true,
    };
  }

  #choose(jobId: string, needs: JobNeeds): NodeChoice {
    const memory = this.#memories.peek(jobId);
    return pickNode(this.#dependencies.fleet.snapshots(), needs, {
      excludedBoots: memory?.excludedBoots,
      avoidedNodes: memory?.avoidedNodes,
      random: this.#random,
    });
  }

  #takeOffer(jobId: string, needs: JobNeeds): Offer | undefined {
    if (this.#stopping) return undefined;
    const choice = this.#choose(jobId, needs);
    if (choice.kind !== 'picked') return undefined;
    return this.#dependencies.fleet.offer(choice.node, megapixelsOf(needs.pixels));
  }

  #begin(job: ClaimableJob, start: Start): void {
    const fetching = job.input === null && start.failure === undefined;
    const run: Run = { job, fetching, done: Promise.resolve() };
    this.#runs.set(job.id, run);
    run.done = this.#run(run, start).finally(() => {
      this.#runs.delete(job.id);
      this.#fetchEnded(run);
      this.#kick();
    });
  }

  #fetchEnded(run: Run): void {
    if (!run.fetching) return;
    run.fetching = false;
    // Another may have waited for its place, which no node's room tells.
    this.#hasNews();
  }

  /** Never rejects. */
  async #run(run: Run, { offer, failure }: Start): Promise<void> {
    const { job } = run;
    const { jobs, runner, observer, holder, log } = this.#dependencies;
    try {
      const claimed = await jobs.claim(job, holder, LEASE_MS);
      if (claimed === undefined) return;
      if (job.leaseExpired) {
        observer.takenOver();
        log.info({ jobId: job.id, fence: claimed.claim.fence }, 'job taken over');
      }
      const end = await runner.run({
        ...claimed,
        memory: this.#memories.of(job.id),
        failure,
        offer,
        takeOffer: needs => {
          this.#fetchEnded(run);
          return this.#takeOffer(job.id, needs);
        },
        stop: this.#giveBack.signal,
      });
      if (end === 'final') this.#memories.forget(job.id);
      else this.#givenBack(job);
    } catch (err) {
      log.error({ err, jobId: job.id }, 'job left to its lease');
      this.#backOff();
    } finally {
      offer?.end();
    }
  }

  /** It waits for the next look like any other. */
  #givenBack(job: ClaimableJob): void {
    this.#lanes.add(job);
    this.#news = true;
  }

  #fetching(): number {
    let fetching = 0;
    for (const run of this.#runs.values()) if (run.fetching) fetching += 1;
    return fetching;
  }

  #shares(): Shares {
    const accounts = new Map<string, number>();
    const apiKeys = new Map<string, number>();
    for (const { job } of this.#runs.values()) {
      accounts.set(job.accountId, (accounts.get(job.accountId) ?? 0) + 1);
      apiKeys.set(job.apiKeyId, (apiKeys.get(job.apiKeyId) ?? 0) + 1);
    }
    return { accounts, apiKeys };
  }
}
