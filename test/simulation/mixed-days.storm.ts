/** On these days most jobs name a model that others do not. */
import test from 'ava';
import { makeMixedDay } from '../../bench/dispatch-simulator/mixed-jobs.ts';
import { quantile, runRounds } from '../../bench/dispatch-simulator/simulation.ts';

test('lets what names no model wait for none that is named: 10 nodes of each model', async t => {
  const waits = { alone: [], beside: [], others: [] } as Record<string, number[]>;
  // A single day is only its worst rush.
  for (const seed of [1, 2, 3, 4]) {
    const { scenario, fleet, plain, mixed } = makeMixedDay(400, seed);
    for (const jobs of [plain, mixed]) {
      const { ours } = await runRounds(scenario, fleet, jobs);
      for (const job of jobs) {
        const kind = job.model !== undefined ? 'others' : jobs === plain ? 'alone' : 'beside';
        waits[kind]?.push(ours.get(job)?.waitMs ?? Number.NaN);
      }
    }
  }
  const quantileOf = (kind: string, share: number) => quantile(waits[kind] ?? [], share);
  t.true(quantileOf('others', 0.8) > 5000, 'the others wait');
  const longer = quantileOf('beside', 1) - quantileOf('alone', 1);
  t.true(longer < 750, `the longest by ${longer} ms, and three runs of the own plan are 750`);
});
