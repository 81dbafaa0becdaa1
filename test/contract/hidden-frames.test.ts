/** Tiny pictures whose results, or backgrounds, take more than a busy node has. */
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { backgroundBlob } from '../../control-plane/core/jobs/job.ts';
import { Harness, until } from '../../control-plane/core/test/harness.ts';
import { TEST_TOKEN } from '../../control-plane/core/test/scripted-node.ts';
import type { NewJob } from '../../control-plane/core/transactions/job-submission.ts';
import { openTestNode, type TestNode } from '../../inference-node/serving/test/test-node.ts';

const test = ava.serial;

const far = { px: 3400 };
/** Margins that make 46 megapixels, which are 33 of a node's as AVIF. */
const MARGINS = { crop: { top: far, right: far, bottom: far, left: far } };

let harness: Harness;
let node: TestNode;
let observed: string[];

test.beforeEach(async () => {
  harness = await Harness.open();
  const bootId = randomUUID();
  node = await openTestNode({
    token: TEST_TOKEN,
    bootId,
    limits: { imagesMax: 4, megapixelsMax: 16, megapixelsAloneMax: 167 },
  });
  const { address } = node;
  const registration = { nodeId: 'node-1', bootId, address, httpAddress: '', version: 'test' };
  await harness.stores.nodes.register(registration, 600_000);
  const replica = await harness.startReplica();
  observed = replica.observed;
  await harness.untilRoutable(replica.fleet, bootId);
  // A node that is new gets one image at a time.
  for (let photo = 0; photo < 10; photo += 1) await harness.untilFinal(await harness.submit());
});

test.afterEach.always(async () => {
  await harness.close();
  await node.close();
});

const images = () => node.admission.snapshot().images;

/** Gives a background of 25 megapixels, which are 22 of a node's as AVIF. */
async function withBackground(): Promise<Partial<NewJob>> {
  const blob = backgroundBlob(randomUUID());
  const writer = await harness.blobs.createWriter(blob);
  await writer.write(Buffer.from('a background'));
  await writer.commit();
  const input = { blob, bytes: 12, format: 'avif', width: 5000, height: 5000 } as const;
  return {
    finishing: { background: { kind: 'picture' } },
    background: { url: null, input },
  };
}

const hidden: readonly [string, () => Partial<NewJob> | Promise<Partial<NewJob>>][] = [
  ['margins', () => ({ outputFormat: 'avif', finishing: MARGINS })],
  ['one side', () => ({ outputFormat: 'avif', finishing: { outputHeight: 6000 } })],
  ['a background', withBackground],
];
for (const [what, asked] of hidden) {
  test(`jobs whose memory is hidden in ${what} wait, and others do not`, async t => {
    node.gates.hold('infer');
    const first = await harness.submit();
    await until(() => images() === 1, 'the first image');
    const ids: string[] = [];
    for (let job = 0; job < 4; job += 1) {
      ids.push(await harness.submit({ asked: await asked() }));
    }
    const second = await harness.submit();
    await until(() => images() === 2, 'the second image');
    node.gates.letGo('infer');
    for (const id of [first, second, ...ids]) {
      const job = await harness.untilFinal(id);
      t.is(job.state, 'succeeded', job.failure?.detail);
    }
    const refused = observed.filter(what => what.startsWith('attempt refused'));
    t.deepEqual(refused, []);
  });
}
