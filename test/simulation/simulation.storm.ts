/** The product's rounds against an ideal central queue, seeded. */
import test from 'ava';
import {
  quantile,
  runRounds,
  settled,
  simulate,
} from '../../bench/dispatch-simulator/simulation.ts';
import {
  createRandom,
  type Scenario,
  type SimulatedJob,
  STARTED_MS,
  serviceMs,
} from '../../bench/dispatch-simulator/workload.ts';

const RATIO_MAX = 1.3;

async function ratioOf(scenario: Scenario, measure: 'waitMs' | 'totalMs'): Promise<number> {
  const jobs = settled((await simulate(scenario)).jobs);
  const ours = jobs.map(job => job.ours[measure]);
  const ideal = jobs.map(job => job.ideal[measure]);
  return quantile(ours, 0.99) / quantile(ideal, 0.99);
}

for (const [nodes, load, replicas] of [
  [10, 0.7, 3],
  [10, 0.9, 2],
  [50, 0.9, 2],
] as const) {
  test(`waits about as long as an ideal queue: ${nodes} nodes, load ${load}`, async t => {
    const scenario = { nodes, load, replicas, jobs: 800, seed: 5 };
    const ratio = await ratioOf(scenario, 'waitMs');
    t.true(ratio <= RATIO_MAX, `p99 of the wait is ${ratio} of the ideal`);
  });
}

test('is done about as soon as by an ideal queue: 200 nodes, load 0.9', async t => {
  const scenario = { nodes: 200, load: 0.9, replicas: 4, jobs: 2000, seed: 5 };
  const ratio = await ratioOf(scenario, 'totalMs');
  t.true(ratio <= RATIO_MAX, `p99 from submission to end is ${ratio} of the ideal`);
});

test('loses no job when a tenth of the nodes vanish, and recovers', async t => {
  const vanishing = { share: 0.1, afterShare: 0.3 };
  const scenario = { nodes: 40, load: 0.6, replicas: 3, jobs: 2000, seed: 5, vanishing };
  const { jobs } = await simulate(scenario);
  const p99 = (from: number, to: number) =>
    quantile(
      jobs.slice(from * 2000, to * 2000).map(({ ours }) => ours.totalMs),
      0.99,
    );
  t.true(p99(0.29, 0.33) > 2 * p99(0.1, 0.28), 'the loss is felt');
  t.true(p99(0.8, 1) <= RATIO_MAX * p99(0.1, 0.28), 'and is over');
});

const LARGE_PIXELS = 12e6;
/** A large image needs the whole node, and small ones arrive faster than it works. */
const CROWDED = { nodes: 1, load: 1.2, jobs: 1000, seed: 5 } as const;
const SMALL_NODE = {
  ...{ slowness: 1, engines: 1, share: 1 },
  memory: { megapixelsMax: 12, megapixelsAloneMax: 13 },
};

function crowdedJobs({ jobs, load, seed }: Pick<Scenario, 'jobs' | 'load' | 'seed'>) {
  const random = createRandom(seed);
  const base = { class: 'sync', inputFormat: 'jpeg', outputFormat: 'png', luck: 1 } as const;
  const small = { ...base, pixels: 1e6, index: 0, arrivesMs: 0, accountId: '', apiKeyId: '' };
  const eachMs = serviceMs(small, SMALL_NODE.slowness) / load;
  let arrivesMs = STARTED_MS;
  const all = Array.from({ length: jobs }, (_, at): SimulatedJob => {
    arrivesMs += -Math.log(1 - random()) * eachMs;
    const accountId = `account-${at % 6}`;
    return { ...small, accountId, apiKeyId: accountId, arrivesMs };
  });
  for (const atMs of [20_000, 60_000, 100_000, 140_000]) {
    const large = { accountId: 'large', apiKeyId: 'large', pixels: LARGE_PIXELS };
    all.push({ ...small, ...large, arrivesMs: atMs });
  }
  return all.toSorted((a, b) => a.arrivesMs - b.arrivesMs).map((job, index) => ({ ...job, index }));
}

for (const replicas of [1, 2]) {
  test(`lets a large image through beside small ones that never end: ${replicas} replicas`, async t => {
    const scenario = { ...CROWDED, replicas };
    const { ours } = await runRounds(scenario, [SMALL_NODE], crowdedJobs(scenario));
    const waits = [...ours].flatMap(([{ pixels }, { waitMs }]) =>
      pixels === LARGE_PIXELS ? [waitMs] : [],
    );
    t.is(waits.length, 4);
    for (const waitMs of waits) t.true(waitMs < 20_000, `${waitMs} ms`);
  });
}
