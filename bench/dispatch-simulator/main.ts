/**
 * Dispatch against an ideal central queue, in simulated time. Repeatable to the last digit:
 * `sh bin/node24 bench/dispatch-simulator/main.ts [jobs]`, 200,000 unless given.
 */
import assert from 'node:assert/strict';
import { writeResults } from '../results.ts';
import { type ComparedJob, quantile, settled, simulate } from './simulation.ts';
import type { Scenario } from './workload.ts';

const JOBS = Number(process.argv[2] ?? 200_000);
const SMALLER = 8;
const SEED = 20_261_120;
const RECOVERY_WINDOW_MS = 2000;

const results: Record<string, unknown> = {};

async function compare(scenario: Scenario): Promise<void> {
  const startedMs = performance.now();
  const { jobs, refusals, lostClaims } = await simulate(scenario);
  const counted = settled(jobs);
  const sync = counted.filter(({ job }) => job.class === 'sync');
  const name = `nodes${scenario.nodes} replicas${scenario.replicas} load${scenario.load}`;
  results[name] = {
    p99TotalRatio: ratio(counted, 'totalMs'),
    p99WaitRatio: ratio(counted, 'waitMs'),
    syncP99WaitRatio: ratio(sync, 'waitMs'),
    p99WaitMs: Math.round(p99(counted.map(({ ours }) => ours.waitMs))),
    syncP99WaitMs: Math.round(p99(sync.map(({ ours }) => ours.waitMs))),
    medianWaitMs: Math.round(
      quantile(
        counted.map(({ ours }) => ours.waitMs),
        0.5,
      ),
    ),
    refusalsPerJob: round(refusals / scenario.jobs),
    lostClaimsPerJob: round(lostClaims / scenario.jobs),
  };
  const tookS = Math.round((performance.now() - startedMs) / 1000);
  console.error(name, JSON.stringify(results[name]), `${tookS} s`);
}

function ratio(jobs: readonly ComparedJob[], measure: 'waitMs' | 'totalMs'): number {
  const ours = p99(jobs.map(job => job.ours[measure]));
  return round(ours / p99(jobs.map(job => job.ideal[measure])));
}

function p99(values: readonly number[]): number {
  return quantile(values, 0.99);
}

/** Windows of arrivals, from the loss on, until one and all after it are as good as before. */
async function recovery(scenario: Scenario): Promise<void> {
  const { jobs, lostAtMs } = await simulate(scenario);
  assert.ok(lostAtMs !== undefined, 'nodes vanish');
  const totals = (from: number, to: number) =>
    jobs
      .filter(({ job }) => job.arrivesMs >= from && job.arrivesMs < to)
      .map(({ ours }) => ours.totalMs);
  const steadyMs = p99(totals(lostAtMs + 60_000, Number.POSITIVE_INFINITY));
  let recoveredMs = 0;
  for (let from = lostAtMs; from < lostAtMs + 60_000; from += RECOVERY_WINDOW_MS) {
    const windowMs = p99(totals(from, from + RECOVERY_WINDOW_MS));
    if (windowMs > 1.3 * steadyMs) recoveredMs = from + RECOVERY_WINDOW_MS - lostAtMs;
  }
  const name = `recovery nodes${scenario.nodes} load${scenario.load}`;
  results[name] = { recoveredAfterMs: recoveredMs, steadyP99TotalMs: Math.round(steadyMs) };
  console.error(name, JSON.stringify(results[name]));
}

function round(value: number): number {
  return Math.round(value * 1000) / 1000;
}

for (const nodes of [10, 50, 1000]) {
  for (const load of [0.7, 0.9]) {
    for (const replicas of [2, 8]) {
      const jobs = nodes < 1000 ? JOBS / SMALLER : JOBS;
      await compare({ nodes, load, replicas, jobs, seed: SEED });
    }
  }
}
const vanishing = { share: 0.1, afterShare: 0.4 };
await recovery({ nodes: 1000, load: 0.7, replicas: 4, jobs: JOBS, seed: SEED, vanishing });
writeResults('dispatch-simulator', results);
