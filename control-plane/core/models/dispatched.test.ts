import { saidModel, saidPlan } from '@matting/nodes/test/nodes-seen.ts';
import type { Exchange } from '@matting/nodes/test/scripted-exchange.ts';
import type { ModelRun, SelectableModel } from '@matting/proto/gen/matting/v1/matte_service.ts';
import ava from 'ava';
import { OperateNodes } from '../operator/operate-nodes.ts';
import { fetcherOf, until, useHarness } from '../test/harness.ts';

const test = ava.serial;

const harness = useHarness(test);

const RUN: ModelRun = {
  model: 'isnet',
  modelSha256: 'aa',
  precision: 'fp32',
  executionProvider: 'cpu',
  inputWidth: 1024,
  inputHeight: 1024,
  precisionFallback: '',
  licence: '',
  weightsCommercialUse: '',
  trainingDataCommercialUse: '',
  role: 'subject',
};
const runs = [RUN, { ...RUN, inputWidth: 768 }, { ...RUN, model: 'modnet', role: 'opinion' }];
const script = (exchange: Exchange) => exchange.cutOut({ modelRuns: runs });
const having = (...selectable: SelectableModel[]) => {
  return { script, info: { selectable: [saidPlan('standard'), ...selectable] } };
};
const naming = (model: string) => harness.done({ job: { model } });

test('the header names the request’s plan or model with its checksum, or nothing', async t => {
  const node = await harness.addNode(having(saidModel('heavy', { sha256: 'bb' })));
  await harness.startReplica();
  const named = await naming('heavy');
  const own = await naming('standard');
  const unnamed = await harness.done();
  t.deepEqual(
    node.headers.map(({ plan, model, selectableSha256 }) => [plan, model, selectableSha256]),
    [
      ['', 'heavy', 'bb'],
      ['standard', '', 'aa'],
      ['', '', ''],
    ],
  );
  const models = [
    { name: 'isnet', role: 'subject' },
    { name: 'modnet', role: 'opinion' },
  ];
  for (const { result } of [named, own, unnamed]) t.deepEqual(result?.models, models);
  await harness.assertMoneySettled({ charged: 3 });
});

test('each job goes to the node of its model, one without a name to that of the first offered', async t => {
  const serving = (name: string) => ({ script, info: { selectable: [saidPlan(name)] } });
  const best = await harness.addNode(serving('best'));
  const modelsOffered = ['standard', 'best'];
  const { fleet } = await harness.startReplica({ modelsOffered, noNodeGraceMs: 60_000 });
  const early = await harness.submit();
  t.is((await naming('best')).state, 'succeeded');
  t.is((await harness.job(early)).state, 'ready', 'no node serves the default yet');
  const standard = await harness.addNode(serving('standard'));
  t.is((await harness.untilFinal(early)).state, 'succeeded');
  for (const model of ['standard', 'best']) t.is((await naming(model)).state, 'succeeded');
  t.is((await harness.done()).state, 'succeeded');
  t.deepEqual([standard.headers.length, best.headers.length], [3, 2]);
  t.is(fleet.snapshots().length, 2);
});

test('jobs without a name end as retryable once no node has served the default for the grace period', async t => {
  await harness.addNode({ script, info: { selectable: [saidPlan('best')] } });
  await harness.startReplica({ modelsOffered: ['standard', 'best'], noNodeGraceMs: 50 });
  const { failure } = await harness.done();
  t.deepEqual([failure?.code, failure?.retryable], ['PROCESSING_FAILED', true]);
  t.regex(failure?.detail ?? '', /^No inference node can process this image\. Nodes that can/);
});

test('a node with another sum than most gets no job of that name', async t => {
  const most = [
    await harness.addNode(having(saidModel('heavy'))),
    await harness.addNode(having(saidModel('heavy'))),
  ];
  const other = await harness.addNode(having(saidModel('heavy', { sha256: 'cc' })));
  const { fleet } = await harness.startReplica();
  const taking = fleet.snapshots().filter(({ models }) => models?.has('heavy'));
  t.deepEqual(taking.map(({ nodeId }) => nodeId).sort(), most.map(({ nodeId }) => nodeId).sort());
  for (let job = 0; job < 6; job += 1) t.is((await naming('heavy')).state, 'succeeded');
  t.is(other.headers.length, 0);
  const seen = fleet.seen().map(one => ({ ...one, forMs: 0 }));
  await harness.stores.sightings.note('replica', seen, 60_000);
  const leftOut = async () => {
    const nodes = await new OperateNodes(harness.stores).list();
    return nodes.flatMap(({ node_id, models_left_out: names }) =>
      names.map(name => [node_id, name]),
    );
  };
  await until(async () => (await leftOut()).length > 0, 'what nodes said, in the table');
  t.deepEqual(await leftOut(), [[other.nodeId, 'heavy']]);
  t.is(
    most.reduce((sum, { headers }) => sum + headers.length, 0),
    6,
  );
});

test('a node that dies under such a job leaves it to one with the same sum, for one credit', async t => {
  const heavy = having(saidModel('heavy'));
  const dying = await harness.addNode({
    ...heavy,
    script: async exchange => {
      exchange.admit();
      await exchange.receive();
      await dying.down();
    },
  });
  await harness.startReplica();
  const jobId = await harness.submit({ job: { model: 'heavy' } });
  await until(() => dying.headers.length > 0, 'its attempt');
  const next = await harness.addNode(heavy);
  t.is((await harness.untilFinal(jobId)).state, 'succeeded');
  t.deepEqual(
    next.headers.map(({ model }) => model),
    ['heavy'],
  );
  await harness.assertMoneySettled({ charged: 1 });
});

test('a job whose model no node has any more waits for the grace period, then fails as retryable', async t => {
  await harness.addNode(having());
  await harness.startReplica({ noNodeGraceMs: 50 });
  const job = await naming('heavy');
  t.deepEqual([job.failure?.code, job.failure?.retryable], ['PROCESSING_FAILED', true]);
  await harness.assertMoneySettled({ charged: 0 });
});

test('a URL whose model no node advertised within the grace fails with the field’s own code', async t => {
  await harness.addNode(having());
  await harness.startReplica({ noNodeGraceMs: 0, fetcher: fetcherOf() });
  const job = await harness.done({ url: 'https://a.example/1.png', job: { model: 'heavy' } });
  t.deepEqual([job.failure?.code, job.failure?.retryable], ['INVALID_PARAMETER', false]);
});
