/**
 * A mixed day: jobs that name none at half of what ten nodes can do; beside them, at three quarters
 * of what ten nodes of another model can do, jobs that name it, and two batches of those by a key
 * that sends the others too.
 */
import { createRandom, HEAVY, makeFleet, makeJobs, type SimulatedJob } from './workload.ts';

const HEAVY_LOAD = 0.75;
/** Jobs of a batch, of those that name none. */
const BATCH_SHARE = 0.02;

export function makeMixedDay(jobs: number, seed: number) {
  const scenario = { nodes: 10, jobs, replicas: 2, load: 0.5, seed };
  const own = makeFleet(scenario);
  const heavy = own.map(kind => ({ ...kind, engines: 1, model: HEAVY.name }));
  const fleet = [...own, ...heavy];
  const plain = makeJobs(scenario, own);
  const random = createRandom(scenario.seed + 9);
  const endMs = plain.at(-1)?.arrivesMs ?? 0;
  const named = (arrivesMs: number, sender: Partial<SimulatedJob> = {}) => {
    const like = plain[Math.floor(random() * plain.length)] as SimulatedJob;
    return { ...like, ...sender, model: HEAVY.name, arrivesMs };
  };
  const others: SimulatedJob[] = [];
  const perMs = heavy.reduce((sum, { slowness }) => sum + 1 / (slowness * HEAVY.inferMs), 0);
  for (let atMs = 0; ; others.push(named(atMs))) {
    atMs += -Math.log(1 - random()) / (HEAVY_LOAD * perMs);
    if (atMs >= endMs) break;
  }
  const sender = { accountId: 'account-0', apiKeyId: 'account-0-0', class: 'async' as const };
  for (const share of [0.4, 0.7]) {
    for (let job = 0; job < BATCH_SHARE * jobs; job += 1) {
      others.push(named(share * endMs, sender));
    }
  }
  return { scenario, fleet, plain, mixed: inOrder([...plain, ...others]) };
}

function inOrder(jobs: readonly SimulatedJob[]): SimulatedJob[] {
  return jobs
    .toSorted((a, b) => a.arrivesMs - b.arrivesMs)
    .map((job, index) => ({ ...job, index }));
}
