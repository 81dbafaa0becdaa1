/**
 * The dispatch policy against an ideal central queue, in simulated time:
 * `sh bin/node24 bench/dispatch-simulator/main.ts [jobs]`, 200,000 unless given. Repeatable to the
 * last digit: everything comes from the seed.
 */
import { writeResults } from '../results.ts';
import { quantile, settled, simulate } from './simulation.ts';
import type { Scenario } from './workload.ts';

const JOBS = Number(process.argv[2] ?? 200_000);
/** A small fleet is settled long before. */
const SMALLER = 8;
const SEED = 20_261_120;
const RECOVERY_WINDOW_MS = 2000;

const results: Record<string, unknown> = {};

function compare(scenario: Scenario): void {
  const startedMs = performance.now();
  const { policy, ideal, refusals, lostClaims } = simulate(scenario);
  const [ours, best] = [settled(policy), settled(ideal)];
  const p99 = (times: readonly number[]) => quantile(times, 0.99);
  const total = p99(ours.map(job => job.totalMs)) / p99(best.map(job => job.totalMs));
  const waits = ours.map(job => job.waitMs);
  const idealWaits = best.map(job => job.waitMs);
  const name = `nodes${scenario.nodes} replicas${scenario.replicas} load${scenario.load}`;
  results[name] = {
    p99TotalRatio: round(total),
    p99WaitRatio: round(p99(waits) / p99(idealWaits)),
    p99WaitMs: Math.round(p99(waits)),
    idealP99WaitMs: Math.round(p99(idealWaits)),
    medianWaitMs: Math.round(quantile(waits, 0.5)),
    refusalsPerJob: round(refusals / scenario.jobs),
    lostClaimsPerJob: round(lostClaims / scenario.jobs),
  };
  const tookS = Math.round((performance.now() - startedMs) / 1000);
  console.error(name, JSON.stringify(results[name]), `${tookS} s`);
}

/** Windows of arrivals, from the loss on, until one and all after it are as good as before. */
function recovery(scenario: Scenario): void {
  const { policy, arrivesMs } = simulate(scenario);
  const lostAtMs = arrivesMs[Math.floor(scenario.jobs * scenario.vanishing!.afterShare)];
  // What the smaller fleet does once it is settled.
  const after = { from: lostAtMs + 60_000, to: Number.POSITIVE_INFINITY };
  const totals = (from: number, to: number) =>
    policy.filter((_, at) => arrivesMs[at] >= from && arrivesMs[at] < to).map(job => job.totalMs);
  const steadyMs = quantile(totals(after.from, after.to), 0.99);
  let recoveredMs = 0;
  for (let from = lostAtMs; from < lostAtMs + 60_000; from += RECOVERY_WINDOW_MS) {
    const p99 = quantile(totals(from, from + RECOVERY_WINDOW_MS), 0.99);
    if (p99 > 1.3 * steadyMs) recoveredMs = from + RECOVERY_WINDOW_MS - lostAtMs;
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
      compare({ nodes, load, replicas, jobs, seed: SEED });
    }
  }
}
const vanishing = { share: 0.1, afterShare: 0.4 };
recovery({ nodes: 1000, load: 0.7, replicas: 4, jobs: JOBS, seed: SEED, vanishing });
writeResults('dispatch-simulator', results);
