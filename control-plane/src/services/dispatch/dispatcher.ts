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
  isIncapable,
  type JobNeeds,
  megapixelsOf,
  type NodeSnapshot,
  needsOf,
  pickNode,
} from '../../domain/dispatch/dispatch-policy.ts';
import { JobMemories } from '../../domain/dispatch/job-memories.ts';
import { type JobLane, type LaneRead, orderJobs } from '../../domain/dispatch/job-turns.ts';
import { KnownLanes } from '../../domain/dispatch/known-lanes.ts';
import type { Job, JobFailure } from '../../domain/job.ts';
import { failureDue, LEASE_TIMING, type LeaseTiming } from '../../domain/lease.ts';
import type { FleetChange, Offer } from '../../nodes/node-link.ts';
import type { ClaimableJob, JobStore } from '../../store/jobs/job-store.ts';
import type { JobEvents } from '../job-events.ts';
import { type Download, Downloads } from './downloads.ts';
import type { JobObserver } from './job-observer.ts';
import type { JobRunner } from './job-runner.ts';
import { type Run, RunningJobs } from './running-jobs.ts';
import { SoonestTimer } from './soonest-timer.ts';

/** A job of another replica waits this long at most before it is seen here. */
const POLL_MS = 1000;
/** Jobs looked at at once: more than any fleet of one replica begins in a moment. */
const LIST_MAX = 256;
/** A claim and a header, about: then the node has reported that it is taken. */
const REPORT_PAUSE_MS = 10;
/** Between looks while the database does not answer, doubling. */
const BACKOFF_MIN_MS = 100;
const BACKOFF_MAX_MS = 2000;

export interface DispatcherFleet {
  snapshots(): NodeSnapshot[];
  offer(node: NodeSnapshot, megapixels: number, waitMsMax: number): Offer | undefined;
  onChange(listener: (cause: FleetChange) => void): () => void;
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
  /** LEASE_TIMING where absent. */
  readonly leaseTiming?: LeaseTiming;
  /** In [0, 1). */
  readonly random?: () => number;
  readonly now?: () => number;
}

interface Start {
  readonly offer?: Offer;
  readonly download?: Download;
  readonly failure?: JobFailure;
}

export class Dispatcher {
  readonly #dependencies: DispatcherDependencies;
  readonly #random: () => number;
  readonly #now: () => number;
  readonly #runs = new RunningJobs();
  readonly #downloads: Downloads;
  readonly #memories: JobMemories;
  readonly #lanes = new KnownLanes();
  readonly #giveBack = new AbortController();
  readonly #unsubscribe: (() => void)[] = [];
  readonly #retry = new SoonestTimer(() => this.#kick());
  #poll: NodeJS.Timeout | undefined;
  #backoff: NodeJS.Timeout | undefined;
  #backoffMs = BACKOFF_MIN_MS;
  #looking: Promise<void> | undefined;
  #lookAgain = false;
  /** Something may be in the table that no look has seen. */
  #news = false;
  /** Jobs are known to wait that a node's room would let go. */
  #waiting = false;
  /** The same as of before the look that is under way, whose `#waiting` is what came since. */
  #leftWaiting = false;
  /** Jobs are known to wait whose download has no place. A place that is given back is news. */
  #downloadsWait = false;
  #stopping = false;

  constructor(dependencies: DispatcherDependencies) {
    this.#dependencies = dependencies;
    this.#random = dependencies.random ?? Math.random;
    this.#now = dependencies.now ?? (() => performance.now());
    this.#memories = new JobMemories(this.#now);
    this.#downloads = new Downloads(this.#now);
  }

  start(): void {
    const { events, fleet } = this.#dependencies;
    this.#unsubscribe.push(events.onSubmitted(job => this.#submitted(job)));
    this.#unsubscribe.push(fleet.onChange(cause => this.#roomChanged(cause)));
    this.#poll = setInterval(() => this.#lookAnew(), POLL_MS);
    this.#lookAnew();
  }

  /** Jobs worked on here now. */
  get running(): number {
    return this.#runs.size;
  }

  /** Downloads under way here now. */
  get downloading(): number {
    return this.#downloads.underWay;
  }

  /**
   * Claims nothing more, lets what runs finish within the limit, gives back the rest. Resolves when
   * nothing is left.
   */
  async stop(limitMs: number): Promise<void> {
    this.#stopping = true;
    for (const unsubscribe of this.#unsubscribe.splice(0)) unsubscribe();
    clearInterval(this.#poll);
    this.#retry.clear();
    clearTimeout(this.#backoff);
    await this.#looking;
    const limit = setTimeout(() => this.hurry(), limitMs);
    // A run that ends starts none, so this is all of them.
    await this.#runs.ended();
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

  /**
   * Where nobody waits before it the job is placed at once: a look would only find it. Under a
   * flood most find no room, and a look at the table for each would cost more than the job.
   */
  #submitted(job: Job): void {
    if (this.#stopping) return;
    this.#lanes.add(job);
    if (job.input === null) {
      if (this.#downloadsWait) {
        if (this.#downloads.hasRoom(job)) this.#hasNews();
      } else if (!this.#placeOne({ ...job, state: 'accepted', leaseExpired: false })) {
        this.#downloadsWait = true;
      }
    } else if (this.#waiting) {
      if (this.#hasRoom()) this.#kick();
    } else if (!this.#placeOne({ ...job, state: 'ready', leaseExpired: false })) {
      this.#waiting = true;
    }
  }

  #hasRoom(): boolean {
    return this.#dependencies.fleet.snapshots().some(node => node.imagesFree > 0);
  }

  /**
   * Every replica hears a node's report, and all would claim the same job for it at once: the one
   * whose attempt made the room knows first, and the others leave it a moment.
   */
  #roomChanged(cause: FleetChange): void {
    if (cause === 'ended') this.#kick();
    else if (this.#waiting) this.#retry.within(REPORT_PAUSE_MS * (0.5 + this.#random()));
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
    this.#leftWaiting ||= this.#waiting;
    this.#waiting = false;
    this.#downloadsWait = false;
    try {
      if (this.#lanes.stale) this.#lanes.found(await jobs.listLanes());
      const { lanes, all } = this.#lanes.choose(this.#runs.shares(), lane => this.#isOpen(lane));
      const looks = lanes.map(lane => this.#lookInto(lane));
      const claimable = looks.length === 0 ? [] : await jobs.listClaimable(LIST_MAX, looks);
      this.#backoffMs = BACKOFF_MIN_MS;
      if (!all) this.#waiting = true;
      const forgotten = !this.#stopping && this.#place(looks, claimable);
      this.#leftWaiting = this.#waiting;
      // Nothing waits in what was looked into: there is room to look further.
      if (!all && claimable.length === 0 && forgotten) this.#hasNews();
    } catch (err) {
      log.warn({ err }, 'jobs not readable');
      this.#backOff();
    }
  }

  /** Lanes of downloads are left out where none could begin, so that they hide no other. */
  #isOpen({ needsDownload, accountId }: JobLane): boolean {
    if (!needsDownload || this.#downloads.hasRoomFor(accountId)) return true;
    this.#downloadsWait = true;
    return false;
  }

  #lookInto(lane: JobLane): LaneRead {
    if (!lane.needsDownload) return lane;
    const exceptHosts = this.#downloads.fullHosts(lane.accountId);
    if (exceptHosts.length > 0) this.#downloadsWait = true;
    return { ...lane, exceptHosts };
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

  /** Whether a lane was found empty. */
  #place(lanes: readonly LaneRead[], claimable: readonly ClaimableJob[]): boolean {
    const free = claimable.filter(job => !this.#runs.has(job.id));
    const placed = orderJobs(free, this.#runs.shares()).filter(job => this.#placeOne(job));
    const forgotten = this.#lanes.looked(lanes, claimable, placed);
    // Behind as many as were asked for a lane may have more.
    const eachMax = Math.max(1, Math.floor(LIST_MAX / lanes.length));
    const leaves = (needsDownload: boolean) => {
      const ofKind = (job: ClaimableJob) => (job.input === null) === needsDownload;
      const isFull = claimable.filter(ofKind).length >= eachMax;
      return isFull || placed.filter(ofKind).length < free.filter(ofKind).length;
    };
    this.#waiting ||= leaves(false);
    this.#downloadsWait ||= leaves(true);
    return forgotten;
  }

  /** False: it waits for room. */
  #placeOne(job: ClaimableJob): boolean {
    const failure = this.#failureDue(job);
    if (failure !== undefined) {
      this.#begin(job, { failure });
      return true;
    }
    if (job.input === null) {
      const download = this.#downloads.begin(job);
      if (download !== undefined) this.#begin(job, { download });
      return download !== undefined;
    }
    if (this.#memories.mustWait(job.id)) return false;
    const offer = this.#takeOffer(job, needsOf(job.input, job.outputFormat));
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
    const needs = needsOf(job.input, job.outputFormat);
    const excludedBoots = this.#memories.peek(job.id)?.excludedBoots;
    const incapable = isIncapable(this.#dependencies.fleet.snapshots(), needs, excludedBoots);
    const sinceMs = this.#memories.incapableSince(job.id, incapable);
    if (sinceMs === undefined || this.#now() - sinceMs <= this.#dependencies.noNodeGraceMs) {
      return undefined;
    }
    return {
      code: 'PROCESSING_FAILED',
      detail: 'no inference node can process an image of this format and size',
      retryable: true,
    };
  }

  #takeOffer(job: ClaimableJob, needs: JobNeeds): Offer | undefined {
    if (this.#stopping) return undefined;
    const memory = this.#memories.peek(job.id);
    const choice = pickNode(this.#dependencies.fleet.snapshots(), needs, {
      excludedBoots: memory?.excludedBoots,
      avoidedNodes: memory?.avoidedNodes,
      random: this.#random,
      nowMs: this.#now(),
      // As it was listed: what has passed since is little.
      waitedMs: job.readAtMs - job.createdAtMs,
    });
    if (choice.kind === 'busy') this.#retry.within(choice.retryInMs);
    if (choice.kind !== 'picked') return undefined;
    const megapixels = megapixelsOf(needs.pixels);
    return this.#dependencies.fleet.offer(choice.node, megapixels, choice.waitMsMax);
  }

  #begin(job: ClaimableJob, start: Start): void {
    const run: Run = { job, done: Promise.resolve() };
    this.#runs.add(run);
    run.done = this.#run(job, start).finally(() => {
      this.#runs.delete(run);
      this.#downloadEnded(start.download);
      this.#kick();
    });
  }

  /** False: it had ended before, or there was none. */
  #downloadEnded(download: Download | undefined): boolean {
    if (download?.end() !== true) return false;
    // Another may have waited for its place, which no node's room tells.
    this.#hasNews();
    return true;
  }

  /** Who has just downloaded its image then waits for its turn like the others. */
  get #nodesAwaited(): boolean {
    return this.#waiting || this.#leftWaiting;
  }

  /** Never rejects. */
  async #run(job: ClaimableJob, { offer, failure, download }: Start): Promise<void> {
    const { jobs, runner, observer, holder, log, leaseTiming } = this.#dependencies;
    const { leaseMs } = leaseTiming ?? LEASE_TIMING;
    try {
      const claimed = await jobs.claim(job, holder, leaseMs);
      if (claimed === undefined) return;
      if (job.leaseExpired) {
        observer.takenOver();
        log.info({ jobId: job.id, fence: claimed.claim.fence }, 'job taken over');
      }
      download?.started();
      const end = await runner.run({
        ...claimed,
        memory: this.#memories.of(job.id),
        failure,
        offer,
        takeOffer: needs => {
          const mayTake = !this.#downloadEnded(download) || !this.#nodesAwaited;
          return mayTake ? this.#takeOffer(job, needs) : undefined;
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

  /** It waits for the next look like any other; perhaps its image is there by now. */
  #givenBack(job: ClaimableJob): void {
    this.#lanes.add(job);
    this.#lanes.add(job, false);
    this.#news = true;
  }
}
