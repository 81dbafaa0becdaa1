/**
 * A fleet in simulated time under the product's rounds: mixed nodes, images and callers, and several
 * control planes that know the nodes by their last reports.
 */
import assert from 'node:assert/strict';
import { EventQueue } from './event-queue.ts';
import { type JobTimes, runIdealQueue, vanishing, vanishingAtMs } from './ideal-queue.ts';
import { JobTable } from './job-table.ts';
import { SimulatedNode } from './simulated-node.ts';
import { SimulatedReplica } from './simulated-replica.ts';
import {
  createRandom,
  makeFleet,
  makeJobs,
  type NodeKind,
  type Scenario,
  type SimulatedJob,
  STARTED_MS,
} from './workload.ts';

/** A stream silent for this long is a lost node (control-plane/nodes/node-link.ts). */
const SILENCE_MS = 5000;
/** Share of the jobs, the first ones, left out: the fleet is still filling up. */
const DROPPED_SHARE = 0.2;

export interface ComparedJob {
  readonly job: SimulatedJob;
  readonly ours: JobTimes;
  readonly ideal: JobTimes;
}

export interface Comparison {
  readonly jobs: readonly ComparedJob[];
  readonly refusals: number;
  readonly lostClaims: number;
  readonly lostAtMs: number | undefined;
}

/** Runs both, over the same jobs and nodes. Every job ends, or it throws. */
export async function simulate(scenario: Scenario): Promise<Comparison> {
  const fleet = makeFleet(scenario);
  const jobs = makeJobs(scenario, fleet);
  const ideal = await runIdealQueue(scenario, fleet, jobs);
  const { ours, ...run } = await runRounds(scenario, fleet, jobs);
  return { ...run, jobs: jobs.map(job => compared(job, ours, ideal)) };
}

export async function runRounds(
  scenario: Scenario,
  fleet: readonly NodeKind[],
  jobs: readonly SimulatedJob[],
) {
  const events = new EventQueue();
  const table = new JobTable(events);
  const nodes = fleet.map((kind, index) => new SimulatedNode(index, kind, events));
  const ours = new Map<SimulatedJob, JobTimes>();
  let refusals = 0;
  let lostClaims = 0;
  const observer = {
    finished: (job: SimulatedJob, startedMs: number) => {
      assert.ok(!ours.has(job), `job ${job.index} is done once`);
      const { arrivesMs } = job;
      ours.set(job, { waitMs: startedMs - arrivesMs, totalMs: events.nowMs - arrivesMs });
    },
    refused: () => {
      refusals += 1;
    },
    claimLost: () => {
      lostClaims += 1;
    },
  };
  const replicas = Array.from({ length: scenario.replicas }, (_, index) => {
    const random = createRandom(scenario.seed + 1000 + index);
    const phaseMs = STARTED_MS * random();
    const { groups } = scenario;
    return new SimulatedReplica({ events, table, nodes, random, observer, groups, phaseMs });
  });
  for (const node of nodes) {
    const { nodeId } = node.abilities;
    node.onReport = report => {
      for (const replica of replicas) replica.report(nodeId, report);
    };
    node.start();
  }
  submitAll(jobs, events, createRandom(scenario.seed + 1), (job, random) => {
    replicas[Math.floor(random * replicas.length)]?.submitted(table.insert(job));
  });
  const lostAtMs = vanishingAtMs(scenario, jobs);
  if (lostAtMs !== undefined) {
    events.at(lostAtMs, () => {
      for (const node of vanishing(scenario, nodes)) {
        node.vanish();
        events.in(SILENCE_MS, () => {
          for (const replica of replicas) replica.lose(node.abilities.nodeId);
        });
      }
    });
  }
  await events.run(() => ours.size === jobs.length);
  return { ours, refusals, lostClaims, lostAtMs };
}

function submitAll(
  jobs: readonly SimulatedJob[],
  events: EventQueue,
  random: () => number,
  submit: (job: SimulatedJob, random: number) => void,
): void {
  const coming = jobs.values();
  const next = () => {
    const { value: job } = coming.next();
    if (job === undefined) return;
    events.at(job.arrivesMs, () => {
      submit(job, random());
      next();
    });
  };
  next();
}

function compared(
  job: SimulatedJob,
  ours: ReadonlyMap<SimulatedJob, JobTimes>,
  ideal: ReadonlyMap<SimulatedJob, JobTimes>,
): ComparedJob {
  const [here, there] = [ours.get(job), ideal.get(job)];
  assert.ok(here !== undefined && there !== undefined, `job ${job.index} ends`);
  return { job, ours: here, ideal: there };
}

export function settled<T>(jobs: readonly T[]): readonly T[] {
  return jobs.slice(Math.floor(jobs.length * DROPPED_SHARE));
}

export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const value = sorted.at(Math.min(sorted.length - 1, Math.floor(sorted.length * share)));
  assert.ok(value !== undefined, 'a quantile of something');
  return value;
}
