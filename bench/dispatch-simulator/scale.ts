/**
 * Measures what dispatch asks of the database as a fleet grows, in simulated time: looks at the
 * queue and claims a second, by all control planes, at 1, 10, 100 and 1,000 nodes of 50 images a
 * second unless given. Run it by `sh bin/node24 bench/dispatch-simulator/scale.ts [nodes...]`.
 */
import assert from 'node:assert/strict';
import { writeResults } from '../results.ts';
import { EventQueue } from './event-queue.ts';
import { JobTable } from './job-table.ts';
import { SimulatedNode } from './simulated-node.ts';
import { SimulatedReplica } from './simulated-replica.ts';
import { quantile } from './simulation.ts';
import { createRandom, makeDay, meanServiceMs, type SimulatedJob, STARTED_MS } from './workload.ts';

const IMAGES_PER_S = 50;
/** So many images at once keep a GPU busy. */
const ENGINES = 16;
const LOAD = 0.8;
const SEED = 20_261_121;
/** A run lasts a second or more and has at most so many jobs; the first fifth is left out. */
const JOBS_MAX = 60_000;
const LENGTH_MS_MAX = 60_000;
const LENGTH_MS_MIN = 1000;
/** More would see the same of the queue, each for its own jobs. */
const REPLICAS_MAX = 16;
/** Nodes times replicas: what a simulation keeps views of. */
const VIEWS_MAX = 4000;
/** A control plane does so many, by 13 ms of a core a job (bench/MEASUREMENTS.md). */
const JOBS_PER_REPLICA_S = 50;

const results: Record<string, unknown> = {};
const meanMs = meanServiceMs(
  makeDay({ lengthMs: 10_000_000, rateAt: () => 1, rateMax: 1, batches: [], seed: SEED }),
);
const kind = { slowness: (1000 * ENGINES) / (IMAGES_PER_S * meanMs), engines: ENGINES, share: 1 };

async function scale(count: number): Promise<void> {
  const rate = LOAD * IMAGES_PER_S * count;
  const lengthMs = Math.min(LENGTH_MS_MAX, Math.max(LENGTH_MS_MIN, (1000 * JOBS_MAX) / rate));
  const jobs = makeDay({
    lengthMs: STARTED_MS + lengthMs,
    rateAt: () => rate,
    rateMax: rate,
    batches: [],
    seed: SEED,
  });
  const planes = Math.max(2, Math.ceil(rate / JOBS_PER_REPLICA_S));
  const replicaCount = Math.min(REPLICAS_MAX, planes, Math.ceil(VIEWS_MAX / count));
  const { counts, waits, seconds } = await dispatched(jobs, count, replicaCount);
  const perReplicaS = (value: number) => Math.round((10 * value) / seconds / replicaCount) / 10;
  const perJob = (value: number) => Math.round((1000 * value) / jobs.length) / 1000;
  const name = `${count} nodes`;
  results[name] = {
    imagesPerS: rate,
    planes,
    replicasSimulated: replicaCount,
    jobs: jobs.length,
    laneReadsPerReplicaS: perReplicaS(counts.lanes),
    jobReadsPerReplicaS: perReplicaS(counts.jobs),
    jobReadsPerJob: perJob(counts.jobs),
    claimsPerJob: perJob(counts.claim),
    lostClaimsPerJob: perJob(counts.lost),
    refusalsPerJob: perJob(counts.refused),
    medianWaitMs: Math.round(quantile(waits, 0.5)),
    p99WaitMs: Math.round(quantile(waits, 0.99)),
  };
  console.error(name, JSON.stringify(results[name]));
}

/** Dispatches all of them, by that many control planes on that many nodes. */
async function dispatched(jobs: readonly SimulatedJob[], count: number, replicaCount: number) {
  const events = new EventQueue();
  const table = new JobTable(events);
  const nodes = Array.from({ length: count }, (_, index) => new SimulatedNode(index, kind, events));
  const counts = { lanes: 0, jobs: 0, claim: 0, lost: 0, refused: 0 };
  const waits: number[] = [];
  const observer = {
    finished: ({ arrivesMs }: { readonly arrivesMs: number }, startedMs: number) => {
      waits.push(startedMs - arrivesMs);
    },
    looked: (what: 'lanes' | 'jobs' | 'claim') => {
      counts[what] += 1;
    },
    refused: () => {
      counts.refused += 1;
    },
    claimLost: () => {
      counts.lost += 1;
    },
  };
  const replicas = Array.from({ length: replicaCount }, (_, index) => {
    const random = createRandom(SEED + 1000 + index);
    const phaseMs = STARTED_MS * random();
    return new SimulatedReplica({ events, table, nodes, random, observer, phaseMs });
  });
  for (const node of nodes) {
    node.onReport = report => {
      for (const replica of replicas) replica.report(node.abilities.nodeId, report);
    };
    node.start();
  }
  const random = createRandom(SEED + 1);
  for (const job of jobs) {
    events.at(job.arrivesMs, () => {
      replicas[Math.floor(random() * replicaCount)]?.submitted(table.insert(job));
    });
  }
  await events.run(() => waits.length === jobs.length);
  assert.equal(waits.length, jobs.length, 'every job is done');
  return { counts, waits, seconds: events.nowMs / 1000 };
}

const given = process.argv.slice(2).map(Number);
for (const count of given.length > 0 ? given : [1, 10, 100, 1000]) await scale(count);
writeResults('scale', results);
