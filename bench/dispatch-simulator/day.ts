/**
 * A day of a fleet that sleeps: `sh bin/node24 bench/dispatch-simulator/day.ts [hours] [part of a
 * setting's name]`, 2 hours and all settings unless given: a day in which everything comes twelve
 * times as fast, but the nodes. Tenfold more comes at the height of the day than at night, with
 * batches in between; nodes need 90 s to come. It prints the price, in node-hours, and the wait for
 * each target and hold of the chart's rule, for a pace of a node that is set wrong, and for fleets
 * that never change. Repeatable to the last digit.
 */
import type { JobClass } from '../../control-plane/core/jobs/job.ts';
import { writeResults } from '../results.ts';
import { quantile } from './simulation.ts';
import { megapixelsOf, type SleepingFleet, sleepThrough } from './sleeping-fleet.ts';
import { createRandom, makeDay, meanServiceMs } from './workload.ts';

const HOURS = Number(process.argv[2] ?? 2);
const ONLY = process.argv[3] ?? '';
const SEED = 20_261_121;
const NODE = { slowness: 1, engines: 1, share: 1 };
const START_MS = 90_000;
/** Nodes' worth of images at night and at the height of the day. */
const NIGHT_NODES = 0.6;
const PEAK_NODES = 6;
const BATCHES = 24;
const BATCH_JOBS = 200;
const HOUR_MS = 3_600_000;

const lengthMs = HOURS * HOUR_MS;
const sample = makeDay({
  lengthMs: 10_000_000,
  rateAt: () => 1,
  rateMax: 1,
  batches: [],
  seed: SEED,
});
const perNodeS = 1000 / (NODE.slowness * meanServiceMs(sample));
/** A node that always has work does so many. */
const nodeMegapixelsPerS =
  (perNodeS * sample.reduce((sum, job) => sum + megapixelsOf(job), 0)) / sample.length;
const random = createRandom(SEED + 7);
const jobs = makeDay({
  lengthMs,
  // Squared, so that the night is longer than the day's height.
  rateAt: ms => {
    const height = ((1 - Math.cos((2 * Math.PI * ms) / lengthMs)) / 2) ** 2;
    return perNodeS * (NIGHT_NODES + (PEAK_NODES - NIGHT_NODES) * height);
  },
  rateMax: perNodeS * PEAK_NODES,
  batches: Array.from({ length: Math.round((BATCHES * HOURS) / 24) }, () => ({
    atMs: random() * (lengthMs - HOUR_MS / 2),
    jobs: BATCH_JOBS,
  })),
  seed: SEED,
});
console.error(
  `${jobs.length} jobs, ${perNodeS.toFixed(2)} images/s and ${nodeMegapixelsPerS.toFixed(1)} MP/s a node`,
);

const results: Record<string, unknown> = {};

async function measure(
  name: string,
  size: SleepingFleet['size'],
  more: Partial<SleepingFleet> = {},
) {
  if (!name.includes(ONLY)) return;
  const startedMs = performance.now();
  const slept = await sleepThrough({
    jobs,
    kind: NODE,
    startMs: START_MS,
    size,
    seed: SEED,
    ...more,
  });
  const waits = (jobClass?: JobClass) =>
    [...slept.times]
      .filter(([job]) => jobClass === undefined || job.class === jobClass)
      .map(([, { waitMs }]) => waitMs / 1000);
  const seconds = (values: readonly number[], share: number) =>
    Math.round(quantile(values, share) * 10) / 10;
  results[name] = {
    nodeHours: Math.round(slept.nodeHours * 10) / 10,
    p95WaitS: seconds(waits(), 0.95),
    p99WaitS: seconds(waits(), 0.99),
    medianWaitS: seconds(waits(), 0.5),
    syncP95WaitS: seconds(waits('sync'), 0.95),
    syncP99WaitS: seconds(waits('sync'), 0.99),
    nodesStarted: slept.nodesStarted,
    nodesMost: slept.nodesMost,
  };
  const tookS = Math.round((performance.now() - startedMs) / 1000);
  console.error(name, JSON.stringify(results[name]), `${tookS} s`);
}

const ruleOf = (queueWaitTargetS: number, holdS: number, factor = 1) => ({
  ...{ queueWaitTargetS, holdS, nodesMax: 100 },
  nodeMegapixelsPerS: factor * nodeMegapixelsPerS,
});

for (const waitTargetS of [15, 30, 60, 120, 300]) {
  await measure(`target ${waitTargetS} s, held 300 s`, ruleOf(waitTargetS, 300));
}
for (const holdS of [60, 120, 600]) {
  await measure(`target 60 s, held ${holdS} s`, ruleOf(60, holdS));
}
for (const factor of [0.5, 2]) {
  await measure(`target 60 s, held 300 s, pace set ${factor} times`, ruleOf(60, 300, factor));
}
await measure('target 60 s, held 300 s, one node in four never ready', ruleOf(60, 300), {
  neverReadyEvery: 4,
});
for (const nodes of [3, 6, 8]) await measure(`${nodes} nodes, always`, nodes);
writeResults('sleeping-fleet', results);
