/**
 * Two models on one fleet (mixed-jobs.ts):
 * `sh bin/node24 bench/dispatch-simulator/mixed-day.ts [jobs]`, 5,000 unless given. How long each
 * kind waits, beside those that name none alone. Repeatable to the last digit.
 */
import { writeResults } from '../results.ts';
import { makeMixedDay } from './mixed-jobs.ts';
import { quantile, runRounds, settled } from './simulation.ts';
import type { SimulatedJob } from './workload.ts';

const { scenario, fleet, plain, mixed } = makeMixedDay(Number(process.argv[2] ?? 5000), 20_261_123);
const results: Record<string, unknown> = {};

function measure(name: string, jobs: readonly SimulatedJob[]): void {
  const { ours, nodes } = runRounds(scenario, fleet, jobs);
  const waits = (isNamed: boolean) => {
    const some = settled(jobs).filter(({ model }) => (model !== undefined) === isNamed);
    const values = some.map(job => (ours.get(job)?.waitMs ?? Number.NaN) / 1000);
    const at = (share: number) => Math.round(quantile(values, share) * 100) / 100;
    return { jobs: some.length, medianWaitS: at(0.5), p99WaitS: at(0.99), longestWaitS: at(1) };
  };
  const loads = nodes.filter(node => node.loads > 0).length;
  results[name] = { plain: waits(false), ...(loads > 0 && { named: waits(true), loads }) };
  console.error(name, JSON.stringify(results[name]));
}

measure('alone', plain);
measure('mixed', mixed);
writeResults('mixed-day', results);
