/**
 * A fleet in simulated time, running the dispatch policy as it is: nodes of mixed speed, images of
 * mixed size, several control planes that see the nodes by their last reports only.
 */
import { EventQueue } from './event-queue.ts';
import { type JobTimes, runIdealQueue, vanishingNodes } from './ideal-queue.ts';
import { JobTable } from './job-table.ts';
import { SimulatedNode } from './simulated-node.ts';
import { SimulatedReplica } from './simulated-replica.ts';
import { createRandom, makeFleet, makeJobs, type Scenario } from './workload.ts';

/** A stream silent for this long is a lost node (nodes/node-link.ts). */
const SILENCE_MS = 5000;
/** Of the jobs: those of a fleet that fills up say nothing. */
const DROPPED_SHARE = 0.2;

export interface Comparison {
  readonly policy: readonly JobTimes[];
  readonly ideal: readonly JobTimes[];
  /** When each job came. */
  readonly arrivesMs: readonly number[];
  readonly refusals: number;
  readonly lostClaims: number;
}

/** Runs both, over the same jobs and nodes. Every job ends, or it throws. */
export function simulate(scenario: Scenario): Comparison {
  const fleet = makeFleet(scenario);
  const jobs = makeJobs(scenario, fleet);
  const ideal = runIdealQueue(scenario, fleet, jobs);
  const events = new EventQueue();
  const table = new JobTable(jobs);
  const nodes = fleet.map((kind, index) => new SimulatedNode(index, kind, events));
  const policy: JobTimes[] = jobs.map(() => ({ waitMs: -1, totalMs: -1 }));
  const counts = { done: 0, refusals: 0, lostClaims: 0 };
  const observer = {
    finished: (job: (typeof jobs)[number], startedMs: number) => {
      if (policy[job.index].totalMs >= 0) throw new Error(`job ${job.index} was done twice`);
      const { nowMs } = events;
      const { arrivesMs } = job;
      policy[job.index] = { waitMs: startedMs - arrivesMs, totalMs: nowMs - arrivesMs };
      counts.done += 1;
    },
    refused: () => {
      counts.refusals += 1;
    },
    claimLost: () => {
      counts.lostClaims += 1;
    },
  };
  const replicas = Array.from({ length: scenario.replicas }, (_, index) => {
    const random = createRandom(scenario.seed + 1000 + index);
    const phaseMs = 1000 * random();
    return new SimulatedReplica({ events, table, nodes, random, observer, phaseMs });
  });
  for (const [index, node] of nodes.entries()) {
    node.onReport = report => {
      for (const replica of replicas) replica.report(index, report);
    };
    node.start();
  }
  const random = createRandom(scenario.seed + 1);
  const submit = (index: number) => {
    table.put(jobs[index]);
    replicas[Math.floor(random() * replicas.length)].submitted(jobs[index]);
    // One arrival after the other, so that the heap stays small.
    if (index + 1 < jobs.length) events.at(jobs[index + 1].arrivesMs, () => submit(index + 1));
  };
  events.at(jobs[0].arrivesMs, () => submit(0));
  const { vanishing } = scenario;
  if (vanishing !== undefined) {
    events.at(jobs[Math.floor(jobs.length * vanishing.afterShare)].arrivesMs, () => {
      for (const index of vanishingNodes(scenario, fleet)) {
        nodes[index].vanish();
        events.in(SILENCE_MS, () => {
          for (const replica of replicas) replica.lose(index);
        });
      }
    });
  }
  events.run(() => counts.done === jobs.length);
  if (counts.done < jobs.length) throw new Error(`${jobs.length - counts.done} jobs never ended`);
  const { refusals, lostClaims } = counts;
  return { policy, ideal, arrivesMs: jobs.map(job => job.arrivesMs), refusals, lostClaims };
}

/** The jobs that count. */
export function settled<T>(times: readonly T[]): readonly T[] {
  return times.slice(Math.floor(times.length * DROPPED_SHARE));
}

export function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}
