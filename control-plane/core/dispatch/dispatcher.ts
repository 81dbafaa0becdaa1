/**
 * Gives open jobs to nodes. A replica claims a job only to download its source, to end it, or with
 * a node's offer in hand, so jobs wait in the table and no lease waits for a node. dispatch-core.ts
 * decides which jobs begin, round-loop.ts when a round does.
 */

import { RoundLoop } from '@matting/database/round-loop.ts';
import type { Fleet } from '@matting/nodes/fleet.ts';
import type { Offer } from '@matting/nodes/node-link.ts';
import type { NodeAbility } from '@matting/nodes/node-view.ts';
import {
  DispatchCore,
  LIST_MAX,
  type Placed,
  type RunEnd,
  type Step,
} from '@matting/queue/dispatch-core.ts';
import type { GroupPlacement } from '@matting/queue/fair-order.ts';
import { needsDownload } from '@matting/queue/job.ts';
import { type Download, Downloads } from '../attempts/downloads.ts';
import type { ClaimableJob, Queue } from '../queue/queue.ts';
import type { JobEvents, SubmittedJob } from '../results/job-events.ts';
import type { JobNeeds } from './job-needs.ts';
import { JobRun, type JobRunDependencies, type RunOwner } from './job-run.ts';
import { NodeCapacity } from './node-capacity.ts';
import { fleetRefusalOf } from './node-refusals.ts';

const POLL_MS = 1000;

export interface DispatcherDependencies extends JobRunDependencies {
  readonly queue: Pick<Queue, 'listLanes' | 'listClaimable'> & JobRunDependencies['queue'];
  readonly fleet: Pick<Fleet, 'snapshots' | 'offer' | 'onChange'>;
  readonly events: JobEvents;
  readonly noNodeGraceMs: number | undefined;
  /** Absent or undefined: the nodes are not known, so no job counts as impossible. */
  readonly advertised?: (() => readonly NodeAbility[] | undefined) | undefined;
  readonly random?: () => number;
  readonly now?: () => number;
  readonly pollMs?: number;
}

export class Dispatcher {
  readonly #dependencies: DispatcherDependencies;
  readonly #core: DispatchCore<ClaimableJob, JobNeeds, Offer, Download>;
  readonly #loop: RoundLoop;
  readonly #downloads: Downloads;
  readonly #runs = new Set<Promise<void>>();
  readonly #runOwner: RunOwner;
  readonly #giveBack = new AbortController();
  readonly #unsubscribe: (() => void)[] = [];

  constructor(dependencies: DispatcherDependencies, groups?: GroupPlacement) {
    const { fleet, noNodeGraceMs, advertised, pollMs = POLL_MS } = dependencies;
    const { random = Math.random, now = () => performance.now() } = dependencies;
    this.#dependencies = dependencies;
    this.#loop = new RoundLoop({ pollMs, begin: reread => this.#begin(reread) });
    const downloads = new Downloads(now);
    this.#downloads = downloads;
    const snapshots = () => fleet.snapshots();
    const capacity = new NodeCapacity({ snapshots, offer: fleet.offer.bind(fleet), random, now });
    this.#core = new DispatchCore<ClaimableJob, JobNeeds, Offer, Download>({
      capacity,
      downloads,
      noNodeGraceMs,
      groups,
      random,
      now,
    });
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
        const excluded = this.#core.memories.find(jobId)?.excludedBoots;
        return nodes && fleetRefusalOf(nodes, needs, excluded);
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

  get running(): number {
    return this.#runs.size;
  }

  get downloading(): number {
    return this.#downloads.underWay;
  }

  /** Gives back the jobs that still run after `limitMs`. */
  async stop(limitMs: number): Promise<void> {
    for (const unsubscribe of this.#unsubscribe.splice(0)) unsubscribe();
    await this.#loop.stop();
    const limit = setTimeout(() => this.hurry(), limitMs);
    await Promise.all(this.#runs);
    clearTimeout(limit);
  }

  hurry(): void {
    this.#giveBack.abort();
  }

  #submitted(job: SubmittedJob): void {
    const state = needsDownload(job) ? 'accepted' : 'ready';
    this.#carryOut(this.#core.submitted({ ...job, state }));
  }

  #begin(reread: boolean): void {
    if (reread) this.#core.outdate();
    if (this.#core.beginRound()) void this.#round();
    else this.#loop.roundEnded();
  }

  /** Never rejects. */
  async #round(): Promise<void> {
    const { queue, log } = this.#dependencies;
    try {
      if (this.#core.lanesOutdated) this.#core.lanesRead(await queue.listLanes());
      const chosen = this.#core.chooseLanes();
      const listed = await queue.listClaimable(LIST_MAX, chosen.lanes);
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
