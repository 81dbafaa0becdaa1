/**
 * One control plane: the product's rounds (DispatchCore, RoundLoop) with a stale view of every node
 * (NodeView), and the times of database and wire.
 */
import assert from 'node:assert/strict';
import {
  DispatchCore,
  LIST_MAX,
  type Placed,
  type RunEnd,
  type Step,
} from '@matting/queue/dispatch-core.ts';
import type { GroupPlacement } from '@matting/queue/fair-order.ts';
import type { Claim } from '@matting/queue/lease-rules.ts';
import type { JobNeeds } from '../../control-plane/core/dispatch/job-needs.ts';
import { NodeCapacity } from '../../control-plane/core/dispatch/node-capacity.ts';
import type { JobResult } from '../../control-plane/core/jobs/job-outcome.ts';
import type { ClaimableJob } from '../../control-plane/core/queue/queue.ts';
import { RoundLoop } from '../../control-plane/database/round-loop.ts';
import type { NodeSnapshot } from '../../control-plane/nodes/node-view.ts';
import {
  type NodeReport,
  NodeView,
  type Reservation,
} from '../../control-plane/nodes/node-view.ts';
import type { EventQueue } from './event-queue.ts';
import type { JobTable } from './job-table.ts';
import type { SimulatedNode } from './simulated-node.ts';
import type { SimulatedJob } from './workload.ts';

/** One statement. */
const DATABASE_MS = 2;
/** One way. */
const WIRE_MS = 1;
export const DISPATCH_MS = 2 * DATABASE_MS + WIRE_MS;
/** A node that does not answer a header within this refuses. */
const ADMISSION_TIMEOUT_MS = 5000;
/** A connection to a machine that is gone lasts so long: keep-alive and its time-out. */
const CONNECTION_LOST_MS = 30_000;
/** As in control-plane/core/dispatch. */
const POLL_MS = 1000;
const REFUSALS_MAX = 8;
/** A fleet of one kind of formats: no job waits for a node that can do it. */
const NO_NODE_GRACE_MS = 60_000;

const UNLIMITED_MS = Number.POSITIVE_INFINITY;
const RESULT: JobResult = {
  ...{ blob: '', token: '', sealedToken: '', format: 'png', bytes: 0, width: 1, height: 1 },
  ...{ sha256: '', sight: null, models: null, thumbnailBytes: null },
};

export interface ReplicaObserver {
  finished(job: SimulatedJob, startedMs: number): void;
  refused(): void;
  claimLost(): void;
}

export interface ReplicaOptions {
  readonly events: EventQueue;
  readonly table: JobTable;
  readonly nodes: readonly SimulatedNode[];
  readonly random: () => number;
  readonly observer: ReplicaObserver;
  readonly groups: GroupPlacement | undefined;
  readonly phaseMs: number;
}

interface KnownNode {
  readonly node: SimulatedNode;
  readonly view: NodeView;
}

interface OfferNeeds {
  readonly megapixels: number;
  readonly waitMsMax: number;
  readonly model: string | undefined;
}

interface Run {
  readonly job: ClaimableJob;
  readonly claim: Claim;
}

interface Offer {
  readonly known: KnownNode;
  readonly held: Reservation;
  readonly waitMsMax: number;
}

export class SimulatedReplica {
  readonly #options: ReplicaOptions;
  readonly #core: DispatchCore<ClaimableJob, JobNeeds, Offer, undefined>;
  readonly #loop: RoundLoop;
  readonly #holder: string;
  readonly #nodes: ReadonlyMap<string, KnownNode>;
  #snapshots: NodeSnapshot[] | undefined;

  constructor(options: ReplicaOptions) {
    const { events, nodes, random, phaseMs, groups } = options;
    this.#options = options;
    this.#holder = `started after ${phaseMs} ms`;
    const now = () => events.nowMs;
    this.#nodes = new Map(
      nodes.map(node => {
        return [node.abilities.nodeId, { node, view: new NodeView(node.abilities) }];
      }),
    );
    this.#core = new DispatchCore<ClaimableJob, JobNeeds, Offer, undefined>({
      capacity: new NodeCapacity({
        snapshots: () => this.#routable(),
        offer: (node, needs) => this.#offer(node.nodeId, needs),
        random,
        now,
      }),
      downloads: {
        hasRoom: () => false,
        hasRoomFor: () => false,
        fullHosts: () => [],
        begin: (): undefined => undefined,
      },
      noNodeGraceMs: NO_NODE_GRACE_MS,
      groups,
      random,
      now,
    });
    this.#loop = new RoundLoop({
      pollMs: POLL_MS,
      begin: reread => this.#begin(reread),
      clock: { now: () => now() - phaseMs, after: (ms, act) => events.cancellable(ms, act) },
    });
    events.in(phaseMs, () => this.#loop.start());
  }

  report(nodeId: string, report: NodeReport): void {
    this.#options.events.in(WIRE_MS, () => {
      this.#knownNode(nodeId).view.take(report, this.#options.events.nowMs);
      this.#changed();
      this.#loop.wakeIn(this.#core.roomChanged('reported'));
    });
  }

  lose(nodeId: string): void {
    this.#knownNode(nodeId).view.lost();
    this.#changed();
  }

  submitted(job: ClaimableJob): void {
    this.#carryOut(this.#core.submitted(job));
  }

  #knownNode(nodeId: string): KnownNode {
    const known = this.#nodes.get(nodeId);
    assert.ok(known !== undefined, 'every node is known from the beginning');
    return known;
  }

  #changed(): void {
    this.#snapshots = undefined;
  }

  #routable(): readonly NodeSnapshot[] {
    if (this.#snapshots === undefined) {
      this.#snapshots = [];
      for (const { view } of this.#nodes.values()) {
        const snapshot = view.snapshot();
        if (snapshot !== undefined) this.#snapshots.push(snapshot);
      }
    }
    return this.#snapshots;
  }

  #offer(nodeId: string, { megapixels, waitMsMax }: OfferNeeds): Offer {
    const known = this.#knownNode(nodeId);
    const held = known.view.reserve(megapixels);
    this.#changed();
    return { known, held, waitMsMax };
  }

  #begin(reread: boolean): void {
    if (reread) this.#core.outdate();
    if (!this.#core.beginRound()) {
      this.#loop.roundEnded();
      return;
    }
    const { events, table } = this.#options;
    const { lanesOutdated } = this.#core;
    events.in(lanesOutdated ? DATABASE_MS : 0, async () => {
      if (lanesOutdated) {
        this.#core.lanesRead(await table.queue.listLanes());
      }
      const chosen = this.#core.chooseLanes();
      events.in(chosen.lanes.length === 0 ? 0 : DATABASE_MS, async () => {
        const jobs = await table.queue.listClaimable(LIST_MAX, chosen.lanes);
        this.#carryOut(this.#core.place(chosen, jobs));
        this.#loop.roundEnded();
      });
    });
  }

  #carryOut({ placed, wakeInMs }: Step<ClaimableJob, Offer, undefined>): void {
    for (const one of placed) this.#claim(one);
    this.#loop.wakeIn(wakeInMs);
  }

  #claim({ job, placement }: Placed<ClaimableJob, Offer, undefined>): void {
    assert.ok(placement.kind === 'node', 'every job has its image, and none is due to fail');
    const { offer } = placement;
    const { events, table, observer } = this.#options;
    events.in(DATABASE_MS, async () => {
      const { fence = job.fence } = table.queue.find(job.id) ?? {};
      const won = await table.queue.claim({ id: job.id, fence }, this.#holder, UNLIMITED_MS);
      if (won !== undefined) return this.#attempt({ job, claim: won.claim }, offer, 1);
      observer.claimLost();
      this.#endOffer(offer, false);
      this.#ended(job, { kind: 'not-claimed' });
    });
  }

  #attempt(run: Run, offer: Offer, asked: number): void {
    const { events, table, observer } = this.#options;
    const { job, claim } = run;
    const simulated = table.simulated(job.id);
    const { node, view } = offer.known;
    events.in(WIRE_MS, () => {
      if (node.gone) {
        events.in(ADMISSION_TIMEOUT_MS, () => {
          view.judge('fault', events.nowMs);
          this.#refused(run, offer, asked);
        });
        return;
      }
      let over = false;
      const admitted = node.admit(simulated, offer.waitMsMax, startedMs => {
        over = true;
        events.in(WIRE_MS, () => this.#done(run, offer, startedMs));
      });
      if (!admitted) {
        observer.refused();
        events.in(WIRE_MS, () => this.#refused(run, offer, asked));
        return;
      }
      events.in(WIRE_MS, async () => {
        view.admitted(offer.held);
        this.#core.memories.admitted(job.id);
        await table.queue.admitted(claim);
      });
      node.onVanish(() => {
        if (!over) events.in(CONNECTION_LOST_MS, () => this.#lost(run, offer));
      });
    });
  }

  #done({ job, claim }: Run, offer: Offer, startedMs: number): void {
    const { events, table, observer } = this.#options;
    offer.known.view.judge('well', events.nowMs);
    observer.finished(table.simulated(job.id), startedMs);
    this.#endOffer(offer, false);
    events.in(DATABASE_MS, async () => {
      const success = { result: RESULT, resultTtlMs: UNLIMITED_MS, timings: {} };
      assert.ok(await table.queue.succeed(claim, success), 'nobody else has it');
      this.#ended(job, { kind: 'final' });
    });
  }

  #refused(run: Run, offer: Offer, asked: number): void {
    const { job } = run;
    this.#endOffer(offer, true);
    const next = asked < REFUSALS_MAX ? this.#takeOffer(job) : undefined;
    if (next === undefined) {
      this.#core.memories.claimRefused(job.id);
      this.#giveBack(run);
    } else this.#attempt(run, next, asked + 1);
  }

  #takeOffer(job: ClaimableJob): Offer | undefined {
    const { offer, wakeInMs } = this.#core.takeRoom(job);
    this.#loop.wakeIn(wakeInMs);
    return offer;
  }

  #lost(run: Run, offer: Offer): void {
    const { job } = run;
    offer.known.view.judge('fault', this.#options.events.nowMs);
    this.#core.memories.nodeLost(job.id, offer.known.node.abilities.nodeId);
    this.#endOffer(offer, false);
    this.#giveBack(run);
  }

  #giveBack({ job, claim }: Run): void {
    const { events, table } = this.#options;
    events.in(DATABASE_MS, async () => {
      await table.queue.release(claim);
      this.#ended(job, { kind: 'open' });
    });
  }

  #ended(job: ClaimableJob, end: RunEnd): void {
    this.#core.runEnded(job, end);
    this.#loop.wake();
  }

  #endOffer({ known, held }: Offer, isFull: boolean): void {
    known.view.end(held, isFull ? 'for-all' : undefined);
    this.#changed();
    this.#loop.wakeIn(this.#core.roomChanged('ended'));
  }
}
