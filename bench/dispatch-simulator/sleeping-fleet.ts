/**
 * A fleet that sleeps, in simulated time: nodes that an autoscaler asks for, that need a while to
 * come, drain when they are not wanted any more, and cost from the moment of the request until
 * they are gone. Rounds and views of nodes are the product's.
 */
import assert from 'node:assert/strict';
import { Autoscaler, type ScalingRule, STEP_MS } from './autoscaler.ts';
import { EventQueue } from './event-queue.ts';
import type { JobTimes } from './ideal-queue.ts';
import { JobTable } from './job-table.ts';
import { SimulatedNode } from './simulated-node.ts';
import { SimulatedReplica } from './simulated-replica.ts';
import { createRandom, type NodeKind, type SimulatedJob, STARTED_MS } from './workload.ts';

const REPLICAS = 2;

export interface SleepingFleet {
  readonly jobs: readonly SimulatedJob[];
  readonly kind: NodeKind;
  /** The time from the request for a node to its first report. */
  readonly startMs: number;
  /** A number: as many nodes, always. */
  readonly size: ScalingRule | number;
  readonly seed: number;
  /** One of so many nodes never becomes ready, and is given up when it is not wanted. */
  readonly neverReadyEvery?: number;
}

export interface SleptThrough {
  readonly times: ReadonlyMap<SimulatedJob, JobTimes>;
  /** Every node counts from the request for it until it is gone. */
  readonly nodeHours: number;
  readonly nodesStarted: number;
  readonly nodesMost: number;
  readonly refusals: number;
}

interface AskedNode {
  readonly askedAtMs: number;
  readonly cancel: () => void;
  node: SimulatedNode | undefined;
}

class Simulation {
  readonly events = new EventQueue();
  readonly table = new JobTable(this.events);
  readonly times = new Map<SimulatedJob, JobTimes>();
  readonly replicas: readonly SimulatedReplica[];
  readonly #options: SleepingFleet;
  readonly #asked: AskedNode[] = [];
  #wanted = 0;
  #submittedMegapixels = 0;
  #waitingMegapixels = 0;
  /** The jobs are in the order they came. */
  readonly #waiting = new Set<SimulatedJob>();
  #nodeMs = 0;
  nodesStarted = 0;
  nodesMost = 0;
  refusals = 0;

  constructor(options: SleepingFleet) {
    this.#options = options;
    this.replicas = Array.from({ length: REPLICAS }, (_, index) => {
      const random = createRandom(options.seed + 1000 + index);
      const observer = {
        finished: (job: SimulatedJob, startedMs: number) => this.#finished(job, startedMs),
        refused: () => {
          this.refusals += 1;
        },
        claimLost: () => undefined,
      };
      const { events, table } = this;
      const phaseMs = STARTED_MS * random();
      return new SimulatedReplica({ events, table, nodes: [], random, observer, phaseMs });
    });
  }

  get nodeHours(): number {
    return this.#nodeMs / 3_600_000;
  }

  async run(): Promise<void> {
    const { jobs, size } = this.#options;
    this.#submitAll();
    if (typeof size === 'number') {
      this.#wanted = size;
      this.#follow(0);
    } else {
      const autoscaler = new Autoscaler(size);
      this.#every(STEP_MS, () => {
        this.#wanted = autoscaler.step(this.#scrape());
        this.#follow(this.#options.startMs);
      });
    }
    await this.events.run(() => this.times.size === jobs.length);
    for (const { askedAtMs } of this.#asked) this.#nodeMs += this.events.nowMs - askedAtMs;
  }

  #every(ms: number, act: () => void): void {
    const again = () => {
      act();
      this.events.in(ms, again);
    };
    this.events.in(ms, again);
  }

  /** One arrival after the other, so that the heap stays small. */
  #submitAll(): void {
    const random = createRandom(this.#options.seed + 1);
    const coming = this.#options.jobs.values();
    const next = () => {
      const { value: job } = coming.next();
      if (job === undefined) return;
      this.events.at(job.arrivesMs, () => {
        const replica = Math.floor(random() * REPLICAS);
        this.#waiting.add(job);
        this.#submittedMegapixels += megapixelsOf(job);
        this.#waitingMegapixels += megapixelsOf(job);
        this.replicas[replica]?.submitted(this.table.insert(job));
        next();
      });
    };
    next();
  }

  #began(job: SimulatedJob): void {
    this.#waiting.delete(job);
    this.#waitingMegapixels -= megapixelsOf(job);
  }

  #finished(job: SimulatedJob, startedMs: number): void {
    assert.ok(!this.times.has(job), `job ${job.index} is done once`);
    const { arrivesMs } = job;
    const totalMs = this.events.nowMs - arrivesMs;
    this.times.set(job, { waitMs: startedMs - arrivesMs, totalMs });
  }

  #scrape() {
    const { nowMs } = this.events;
    const [oldest] = this.#waiting;
    return {
      atMs: nowMs,
      submittedMegapixels: this.#submittedMegapixels,
      waitingMegapixels: this.#waiting.size === 0 ? 0 : this.#waitingMegapixels,
      oldestAgeS: oldest === undefined ? 0 : (nowMs - oldest.arrivesMs) / 1000,
    };
  }

  /** Follows as an autoscaler does: nodes that have not come yet go first, then the youngest. */
  #follow(startMs: number): void {
    while (this.#asked.length < this.#wanted) this.#ask(startMs);
    while (this.#asked.length > this.#wanted) {
      const coming = this.#asked.findLastIndex(({ node }) => node === undefined);
      const [gone] = this.#asked.splice(coming === -1 ? this.#asked.length - 1 : coming, 1);
      assert.ok(gone !== undefined, 'there are more than are wanted');
      this.#end(gone);
    }
    this.nodesMost = Math.max(this.nodesMost, this.#asked.length);
  }

  #ask(startMs: number): void {
    const { events } = this;
    const { kind, neverReadyEvery } = this.#options;
    const index = this.nodesStarted;
    this.nodesStarted += 1;
    const isStillborn = neverReadyEvery !== undefined && index % neverReadyEvery === 0;
    const asked: AskedNode = {
      askedAtMs: events.nowMs,
      cancel: events.cancellable(startMs, () => {
        if (isStillborn) return;
        asked.node = new SimulatedNode(index, kind, events, job => this.#began(job));
        this.#join(asked.node);
      }),
      node: undefined,
    };
    this.#asked.push(asked);
  }

  #join(node: SimulatedNode): void {
    const { nodeId } = node.abilities;
    for (const replica of this.replicas) replica.join(node);
    node.onReport = report => {
      for (const replica of this.replicas) replica.report(nodeId, report);
    };
    node.start();
  }

  #end({ askedAtMs, cancel, node }: AskedNode): void {
    const { events } = this;
    if (node === undefined) {
      cancel();
      this.#nodeMs += events.nowMs - askedAtMs;
      return;
    }
    const { nodeId } = node.abilities;
    for (const replica of this.replicas) replica.lose(nodeId);
    node.drain(() => {
      this.#nodeMs += events.nowMs - askedAtMs;
      for (const replica of this.replicas) replica.leave(nodeId);
    });
  }
}

/** Every job ends, or it throws. */
export async function sleepThrough(options: SleepingFleet): Promise<SleptThrough> {
  const simulation = new Simulation(options);
  await simulation.run();
  const { times, nodeHours, nodesStarted, nodesMost, refusals } = simulation;
  assert.equal(times.size, options.jobs.length, 'every job is done');
  return { times, nodeHours, nodesStarted, nodesMost, refusals };
}

/** Counts them as the queue does. */
export function megapixelsOf({ pixels }: SimulatedJob): number {
  return Math.max(1, pixels / 1e6);
}
