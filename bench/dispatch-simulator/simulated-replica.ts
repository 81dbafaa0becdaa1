/**
 * One control plane: its own stale view of every node, made by NodeView from the reports that reach
 * it, and the steps of the dispatcher with what the database and the wire cost. Every choice is
 * pickNode's and orderJobs's.
 */
import {
  type JobNeeds,
  megapixelsOf,
  type NodeSnapshot,
  pickNode,
} from '../../control-plane/src/domain/dispatch/dispatch-policy.ts';
import { orderJobs } from '../../control-plane/src/domain/dispatch/job-turns.ts';
import {
  type NodeReport,
  NodeView,
  type Reservation,
} from '../../control-plane/src/domain/dispatch/node-view.ts';
import type { EventQueue } from './event-queue.ts';
import type { JobTable } from './job-table.ts';
import type { SimulatedNode } from './simulated-node.ts';
import type { SimulatedJob } from './workload.ts';

/** One statement. */
const DATABASE_MS = 2;
/** One way. */
export const WIRE_MS = 1;
/** What the ideal pays too: a look, a claim, the header. */
export const DISPATCH_MS = 2 * DATABASE_MS + WIRE_MS;
/** A node that does not answer a header within this refuses. */
const ADMISSION_TIMEOUT_MS = 5000;
/** Until a connection to a machine that is gone is given up: keep-alive and its time-out. */
const CONNECTION_LOST_MS = 30_000;
const POLL_MS = 1000;
const LIST_MAX = 64;
const REFUSALS_MAX = 8;
const RETRY_MS_MIN = 5;
/** After a report, for the replica whose attempt made the room (services/dispatch/dispatcher.ts). */
const REPORT_PAUSE_MS = 10;

/** What the simulation counts. */
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
  readonly phaseMs: number;
}

export class SimulatedReplica {
  readonly #options: ReplicaOptions;
  readonly #views: NodeView[];
  readonly #dirty = new Set<number>();
  readonly #bySlot: (NodeSnapshot | undefined)[];
  readonly #indices: ReadonlyMap<string, number>;
  #snapshots: NodeSnapshot[] | undefined;
  readonly #mine = new Set<SimulatedJob>();
  #looking = false;
  #lookAgain = false;
  #waiting = false;
  #retryAtMs = Number.POSITIVE_INFINITY;

  constructor(options: ReplicaOptions) {
    this.#options = options;
    this.#views = options.nodes.map(node => new NodeView(node.abilities));
    this.#bySlot = options.nodes.map(() => undefined);
    this.#indices = new Map(options.nodes.map(({ abilities }, at) => [abilities.nodeId, at]));
    options.events.in(options.phaseMs, () => this.#poll());
  }

  report(node: number, report: NodeReport): void {
    this.#options.events.in(WIRE_MS, () => {
      this.#views[node].take(report, this.#options.events.nowMs);
      this.#changed(node);
      if (this.#waiting) this.#retryIn(REPORT_PAUSE_MS * (0.5 + this.#options.random()));
    });
  }

  /** Its stream has been silent for too long. */
  lose(node: number): void {
    this.#views[node].lost();
    this.#changed(node);
  }

  submitted(job: SimulatedJob): void {
    const taken = this.#waiting ? undefined : this.#take(job);
    if (taken !== undefined) this.#claim(job, taken);
    else this.#waiting = true;
  }

  #poll(): void {
    this.#look();
    this.#options.events.in(POLL_MS, () => this.#poll());
  }

  #changed(node: number): void {
    this.#dirty.add(node);
  }

  #nodes(): readonly NodeSnapshot[] {
    if (this.#dirty.size === 0 && this.#snapshots !== undefined) return this.#snapshots;
    let same = this.#snapshots !== undefined;
    for (const node of this.#dirty) {
      const before = this.#bySlot[node];
      const now = this.#views[node].snapshot();
      this.#bySlot[node] = now;
      if (before === undefined || now === undefined) same = false;
      else if (same) this.#snapshots![this.#places.get(node)!] = now;
    }
    this.#dirty.clear();
    if (!same) this.#rebuild();
    return this.#snapshots!;
  }

  readonly #places = new Map<number, number>();

  #rebuild(): void {
    this.#snapshots = [];
    for (const [node, snapshot] of this.#bySlot.entries()) {
      if (snapshot === undefined) continue;
      this.#places.set(node, this.#snapshots.length);
      this.#snapshots.push(snapshot);
    }
  }

  #look(): void {
    if (this.#looking) {
      this.#lookAgain = true;
      return;
    }
    const { events, table } = this.#options;
    if (table.waiting === 0) return;
    this.#looking = true;
    events.in(DATABASE_MS, () => {
      this.#looking = false;
      this.#waiting = false;
      const listed = table.first(LIST_MAX);
      this.#place(listed.filter(job => !this.#mine.has(job)));
      if (listed.length === LIST_MAX) this.#waiting = true;
      if (!this.#lookAgain) return;
      this.#lookAgain = false;
      this.#look();
    });
  }

  #place(jobs: readonly SimulatedJob[]): void {
    const { nowMs } = this.#options.events;
    const waiting = jobs.map(job => ({
      job,
      mode: 'sync' as const,
      accountId: 'one',
      apiKeyId: 'one',
      createdAtMs: job.arrivesMs,
      readAtMs: nowMs,
    }));
    for (const { job } of orderJobs(waiting, { accounts: new Map(), apiKeys: new Map() })) {
      const taken = this.#take(job);
      if (taken === undefined) this.#waiting = true;
      else this.#claim(job, taken);
    }
  }

  #take(job: SimulatedJob): Taken | undefined {
    const { events, random } = this.#options;
    const choice = pickNode(this.#nodes(), needsOf(job), {
      nowMs: events.nowMs,
      waitedMs: events.nowMs - job.arrivesMs,
      random,
    });
    if (choice.kind === 'busy') this.#retryIn(choice.retryInMs);
    if (choice.kind !== 'picked') return undefined;
    const node = this.#indices.get(choice.node.nodeId)!;
    const held = this.#views[node].reserve(megapixelsOf(job.pixels));
    this.#changed(node);
    return { node, held, waitMsMax: choice.waitMsMax };
  }

  #retryIn(ms: number | undefined): void {
    if (ms === undefined) return;
    const { events } = this.#options;
    const atMs = events.nowMs + Math.max(RETRY_MS_MIN, ms);
    if (atMs >= this.#retryAtMs) return;
    this.#retryAtMs = atMs;
    events.at(atMs, () => {
      if (this.#retryAtMs !== atMs) return;
      this.#retryAtMs = Number.POSITIVE_INFINITY;
      this.#look();
    });
  }

  #claim(job: SimulatedJob, taken: Taken): void {
    const { events, table, observer } = this.#options;
    this.#mine.add(job);
    events.in(DATABASE_MS, () => {
      if (table.claim(job)) return this.#attempt(job, taken, 1);
      observer.claimLost();
      this.#mine.delete(job);
      this.#end(taken, false);
      this.#look();
    });
  }

  #attempt(job: SimulatedJob, taken: Taken, asked: number): void {
    const { events, nodes, observer } = this.#options;
    const node = nodes[taken.node];
    events.in(WIRE_MS, () => {
      if (node.gone) {
        events.in(ADMISSION_TIMEOUT_MS, () => {
          this.#views[taken.node].judge('fault', events.nowMs);
          this.#refused(job, taken, asked);
        });
        return;
      }
      let over = false;
      const admitted = node.admit(job, taken.waitMsMax, startedMs => {
        over = true;
        events.in(WIRE_MS, () => {
          this.#views[taken.node].judge('well', events.nowMs);
          this.#mine.delete(job);
          this.#end(taken, false);
          observer.finished(job, startedMs);
          if (this.#waiting) this.#look();
        });
      });
      if (!admitted) {
        observer.refused();
        events.in(WIRE_MS, () => this.#refused(job, taken, asked));
        return;
      }
      events.in(WIRE_MS, () => this.#views[taken.node].admitted(taken.held));
      node.onVanish(() => {
        if (!over) events.in(CONNECTION_LOST_MS, () => this.#lost(job, taken));
      });
    });
  }

  #refused(job: SimulatedJob, taken: Taken, asked: number): void {
    this.#end(taken, true);
    const next = asked < REFUSALS_MAX ? this.#take(job) : undefined;
    if (next !== undefined) this.#attempt(job, next, asked + 1);
    else this.#giveBack(job);
  }

  #lost(job: SimulatedJob, taken: Taken): void {
    this.#views[taken.node].judge('fault', this.#options.events.nowMs);
    this.#end(taken, false);
    this.#giveBack(job);
  }

  #giveBack(job: SimulatedJob): void {
    const { events, table } = this.#options;
    events.in(DATABASE_MS, () => {
      this.#mine.delete(job);
      table.put(job);
      this.#waiting = true;
      this.#look();
    });
  }

  #end({ node, held }: Taken, full: boolean): void {
    this.#views[node].end(held, full);
    this.#changed(node);
  }
}

interface Taken {
  readonly node: number;
  readonly held: Reservation;
  readonly waitMsMax: number;
}

function needsOf({ inputFormat, outputFormat, pixels }: SimulatedJob): JobNeeds {
  return { inputFormat, outputFormat, pixels };
}
