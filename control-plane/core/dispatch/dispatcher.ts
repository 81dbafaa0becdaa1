/**
 * Gives open jobs to nodes. The deep queue is the jobs table; this replica claims a job only when
 * it has room for it on a node in hand (or downloads its source, or must end it), so that no lease
 * waits for a node. core/dispatch/dispatch-core.ts decides which, round-loop.ts when, and
 * job-run.ts does what follows a placement.
 *
 * A round begins when a job was submitted here that finds no room at once, when a node's room
 * changed and jobs are known to wait, and every POLL_MS for what other replicas left (their
 * submissions, expired leases). Stopping ends the loop and lets the runs end; at the limit, or on
 * `hurry`, they give their jobs back.
 */

import { type Download, Downloads } from '../attempts/downloads.ts';
import { JobRun, type JobRunDependencies, type RunOwner } from '../attempts/job-run.ts';
import { type Job, needsDownload } from '../jobs/job.ts';
import type { JobEvents } from '../jobs/job-events.ts';
import type { Fleet, Offer } from '../nodes/fleet.ts';
import { RoundLoop } from '../round-loop.ts';
import { DispatchCore, LIST_MAX, type Placed, type RunEnd, type Step } from './dispatch-core.ts';
import { type NodeAbility, refusalOf } from './job-needs.ts';
import type { ClaimableJob } from './job-queue.ts';

/** A job of another replica waits this long at most before it is seen here. */
const POLL_MS = 1000;

export interface DispatcherDependencies extends JobRunDependencies {
  readonly fleet: Pick<Fleet, 'snapshots' | 'offer' | 'onChange'>;
  readonly events: JobEvents;
  /** How long a job that no routable node can do waits for one that can; undefined: as any job. */
  readonly noNodeGraceMs: number | undefined;
  /** Nodes whose word of what they can do counts; absent or undefined: any may come. */
  readonly advertised?: (() => readonly NodeAbility[] | undefined) | undefined;
  /** In [0, 1). */
  readonly random?: () => number;
  readonly now?: () => number;
  /** Tests wait for less. */
  readonly pollMs?: number;
}

export class Dispatcher {
  readonly #dependencies: DispatcherDependencies;
  readonly #core: DispatchCore<ClaimableJob, Offer, Download>;
  readonly #loop: RoundLoop;
  readonly #downloads: Downloads;
  readonly #runs = new Set<Promise<void>>();
  readonly #runOwner: RunOwner;
  readonly #giveBack = new AbortController();
  readonly #unsubscribe: (() => void)[] = [];

  constructor(dependencies: DispatcherDependencies) {
    const { fleet, noNodeGraceMs, advertised, random = Math.random } = dependencies;
    const now = dependencies.now ?? (() => performance.now());
    this.#dependencies = dependencies;
    const { pollMs = POLL_MS } = dependencies;
    this.#loop = new RoundLoop({ pollMs, begin: anew => this.#begin(anew) });
    const downloads = new Downloads(now);
    this.#downloads = downloads;
    const room = { snapshots: () => fleet.snapshots(), offer: fleet.offer.bind(fleet), downloads };
    this.#core = new DispatchCore({ room, noNodeGraceMs, random, now });
    this.#runOwner = {
      memories: this.#core.memories,
      takeOffer: (job, needs) => {
        if (this.#loop.stopping) return undefined;
        const { offer, wakeInMs } = this.#core.takeRoom(job, needs);
        this.#loop.wakeIn(wakeInMs);
        return offer;
      },
      refusal: (jobId, needs) => {
        const nodes = advertised?.();
        return nodes && refusalOf(nodes, needs, this.#core.memories.find(jobId)?.excludedBoots);
      },
      downloadEnded: () => {
        this.#core.downloadEnded();
        this.#loop.wake();
        return !this.#core.nodesAwaited;
      },
      stop: this.#giveBack.signal,
    };
  }

  start(): void {
    const { events, fleet } = this.#dependencies;
    this.#unsubscribe.push(
      events.onSubmitted(job => this.#submitted(job)),
      fleet.onChange(cause => this.#loop.wakeIn(this.#core.roomChanged(cause))),
    );
    this.#loop.start();
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
    for (const unsubscribe of this.#unsubscribe.splice(0)) unsubscribe();
    await this.#loop.stop();
    const limit = setTimeout(() => this.hurry(), limitMs);
    // A run that ends starts none, so this is all of them.
    await Promise.all(this.#runs);
    clearTimeout(limit);
  }

  /** What still runs is given back now. */
  hurry(): void {
    this.#giveBack.abort();
  }

  #submitted(job: Job): void {
    const state = needsDownload(job) ? 'accepted' : 'ready';
    this.#carryOut(this.#core.submitted({ ...job, state, leaseExpired: false }));
  }

  #begin(anew: boolean): void {
    if (anew) this.#core.outdate();
    if (this.#core.beginRound()) void this.#round();
    else this.#loop.roundEnded();
  }

  /** Never rejects. */
  async #round(): Promise<void> {
    const { jobs, log } = this.#dependencies;
    try {
      if (this.#core.lanesOutdated) this.#core.lanesRead(await jobs.listLanes());
      const chosen = this.#core.chooseLanes();
      const { lanes } = chosen;
      const listed = lanes.length === 0 ? [] : await jobs.listClaimable(LIST_MAX, lanes);
      if (!this.#loop.stopping) this.#carryOut(this.#core.place(chosen, listed));
      this.#loop.roundEnded();
    } catch (err) {
      log.warn({ err }, 'jobs not readable');
      this.#loop.roundFailed();
    }
  }

  #carryOut({ placed, wakeInMs }: Step<ClaimableJob, Offer, Download>): void {
    for (const one of placed) {
      const run = this.#run(one).finally(() => {
        this.#runs.delete(run);
        this.#loop.wake();
      });
      this.#runs.add(run);
    }
    this.#loop.wakeIn(wakeInMs);
  }

  /** Never rejects. */
  async #run(placed: Placed<ClaimableJob, Offer, Download>): Promise<void> {
    let end: RunEnd = { kind: 'abandoned' };
    try {
      end = await new JobRun(this.#dependencies, this.#runOwner, placed).run();
    } catch (err) {
      this.#dependencies.log.error({ err, jobId: placed.job.id }, 'job left to its lease');
      this.#loop.fault();
    } finally {
      this.#core.runEnded(placed.job, end);
    }
  }
}
