/**
 * Synchronous requests beside a batch, by the share of slots that the batch leaves them:
 * `sh bin/node24 bench/dispatch-simulator/beside-batch.ts`
 *
 * Needs: batches.
 */
import { batches } from '@matting/batches/batches.ts';
import { quantile, runRounds } from './simulation.ts';
import { createRandom, makeJobs, type SimulatedJob, STARTED_MS } from './workload.ts';

const SCENARIO = { nodes: 4, jobs: 800, replicas: 2, load: 0.3 };
const FLEET = Array.from({ length: SCENARIO.nodes }, () => ({ slowness: 1, engines: 1, share: 1 }));
const BATCH_JOBS = 1500;
const SEEDS = [1, 2, 3];
/** Requests count from here to the end of the batch. */
const SETTLED_MS = 40_000;

for (const share of [undefined, 0, 0.125, 0.25, 0.5, 0.75]) {
  const counted: { readonly totalMs: number }[] = [];
  let batchMs = 0;
  for (const seed of SEEDS) {
    const groups = { ...batches.placement!, syncSlotsShare: share ?? 0 };
    const requests = makeJobs({ ...SCENARIO, seed }, FLEET).map(job => {
      return { ...job, class: 'sync' as const };
    });
    const random = createRandom(seed + 99);
    const sender = { accountId: 'batch', apiKeyId: 'batch-0', class: 'async' as const };
    const items = Array.from({ length: share === undefined ? 0 : BATCH_JOBS }, (_, item) => {
      const like = requests[Math.floor(random() * requests.length)]!;
      return { ...like, ...sender, arrivesMs: 2 * STARTED_MS, group: { id: 'batch', item } };
    });
    const jobs: SimulatedJob[] = [...requests, ...items]
      .sort((a, b) => a.arrivesMs - b.arrivesMs)
      .map((job, index) => ({ ...job, index }));
    const { ours } = await runRounds({ ...SCENARIO, seed, groups }, FLEET, jobs);
    const ends = [...ours].map(([job, { totalMs }]) => (job.group ? job.arrivesMs + totalMs : 0));
    const endMs = Math.max(...ends) || Number.POSITIVE_INFINITY;
    for (const [{ group, arrivesMs }, times] of ours) {
      if (!group && arrivesMs > SETTLED_MS && arrivesMs < endMs) counted.push(times);
    }
    batchMs += endMs;
  }
  const totals = counted.map(({ totalMs }) => Math.round(totalMs));
  const perSecond = (SEEDS.length * BATCH_JOBS * 1000) / batchMs;
  console.log(
    share ?? 'alone',
    quantile(totals, 0.5),
    quantile(totals, 0.99),
    perSecond.toFixed(1),
  );
}
