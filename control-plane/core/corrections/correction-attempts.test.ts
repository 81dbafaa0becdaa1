import { saidPlan } from '@matting/nodes/test/nodes-seen.ts';
import { cutOutOf, type Exchange, type Script } from '@matting/nodes/test/scripted-exchange.ts';
import { get } from '@matting/storage/test/blob-store.contract.ts';
import ava from 'ava';
import { matteBlob } from '../jobs/blob-names.ts';
import type { Job } from '../jobs/job.ts';
import type { CropRun } from '../jobs/job-family.ts';
import { useHarness } from '../test/harness.ts';

const test = ava.serial;

const harness = useHarness(test);

const MATTE = Buffer.from('a matte');

const matting: Script = async exchange => {
  exchange.admit();
  const input = await exchange.receive();
  if (exchange.header.matte) exchange.answerMatte(input, MATTE);
  else exchange.answer(input);
};

const mattingNode = (script = matting) =>
  harness.addNode({
    script,
    info: { capabilities: ['matte', 'crop_run'], selectable: [saidPlan('standard')] },
  });

const firstJob = () => harness.done({ job: { correctable: {} } });

function submitCorrection(of: Job, first = of, cropRun?: CropRun): Promise<string> {
  const correction = { of: of.id, first: first.id, cropRun };
  const input = first.kept!.input;
  return harness.submit({ job: { correctable: {}, correction, input } });
}

test('a job that takes corrections keeps its input and the matte, another keeps nothing', async t => {
  const node = await mattingNode();
  await harness.startReplica();
  const plain = await harness.done();
  t.deepEqual(await harness.blobNames(), [plain.result?.blob]);
  const job = await firstJob();
  t.deepEqual(
    node.headers.map(({ matte }) => matte),
    [false, true],
  );
  const matte = matteBlob(job.result!.blob);
  t.deepEqual(job.kept?.matte, { blob: matte, bytes: MATTE.length });
  t.true((await get(harness.blobs, matte)).equals(MATTE));
  t.true((await get(harness.blobs, `inputs/${job.id}`)).length > 0);
});

test('a correction sends the input and the matte, and leaves the files of the first', async t => {
  const node = await mattingNode();
  await harness.startReplica();
  const first = await firstJob();
  const done = await harness.untilFinal(await submitCorrection(first));
  const header = node.headers.at(-1)!;
  t.is(header.givenMatte?.contentLength, MATTE.length);
  t.true(header.matte);
  const input = await get(harness.blobs, first.kept!.input!.blob);
  const sent = cutOutOf(Buffer.concat([input, MATTE]));
  t.true((await harness.resultOf(done)).equals(sent));
  t.deepEqual(done.kept?.matte.blob, matteBlob(done.result!.blob));
  t.true((await get(harness.blobs, first.kept!.matte.blob)).equals(MATTE));
  await harness.assertMoneySettled({ charged: 1 });
});

test('a correction that outlives the first removes what only it still needs', async t => {
  await mattingNode();
  await harness.startReplica();
  const first = await firstJob();
  await harness.replicas[0]!.dispatcher.stop(1000);
  const open = await submitCorrection(first);
  const { kysely } = await harness.database.open();
  await kysely.updateTable('jobs').set({ kept_until: 1 }).where('id', '=', first.id).execute();
  await harness.stores.jobs.takeExpiredKept(10);
  const { dispatcher } = await harness.startReplica({ holder: 'another' });
  const done = await harness.untilFinal(open);
  t.is(done.state, 'succeeded', done.failure?.detail);
  await dispatcher.stop(1000);
  const results = [first.result!.blob, done.result!.blob];
  const names = await harness.blobNames();
  t.deepEqual(
    names.filter(name => name !== `inputs/${open}`),
    results.sort(),
  );
});

test('a job whose matte cannot be stored fails, and is not charged', async t => {
  await mattingNode();
  const { blobs } = harness;
  const failing = harness.storageWith({
    createWriter: async name => {
      if (name.endsWith('-matte')) throw new Error('no space left');
      return blobs.createWriter(name);
    },
  });
  await harness.startReplica({ blobs: failing });
  const job = await firstJob();
  t.deepEqual([job.failure?.code, job.failure?.retryable], ['PROCESSING_FAILED', true]);
  t.deepEqual(await harness.blobNames(), []);
  await harness.assertMoneySettled({ charged: 0 });
});

for (const [what, fail] of [
  ['is rejected', exchange => exchange.fail('INVALID_REQUEST')],
  ['is beyond its node', exchange => exchange.fail('NODE_INCAPABLE')],
  [
    'kills an engine',
    exchange => {
      exchange.admit();
      exchange.fail('ENGINE_LOST');
    },
  ],
] satisfies [string, (exchange: Exchange) => void][]) {
  test(`a run on crops that ${what} is left out at the next attempt`, async t => {
    const node = await mattingNode(async exchange =>
      exchange.header.plan === '' ? matting(exchange) : fail(exchange),
    );
    await harness.startReplica();
    const first = await firstJob();
    const done = await harness.untilFinal(await submitCorrection(first, first, {}));
    t.is(done.state, 'succeeded', done.failure?.detail);
    t.deepEqual(
      node.headers.map(({ plan, selectableSha256: sum }) => [plan, sum]),
      [
        ['', ''],
        ['standard', 'aa'],
        ['', ''],
      ],
    );
    await harness.assertMoneySettled({ charged: 1 });
  });
}

test('a node without mattes never gets such a job', async t => {
  const node = await harness.addNode({ script: matting });
  await harness.startReplica({ noNodeGraceMs: 0 });
  t.is((await firstJob()).state, 'failed');
  t.deepEqual(node.headers, []);
});
