import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { ChannelCredentials } from '@grpc/grpc-js';
import ava from 'ava';
import { pino } from 'pino';
import { until } from '../../control-plane/core/test/harness.ts';
import { Receiver } from '../../control-plane/core/test/receiver.ts';
import { type Caller, pictureBody } from '../../control-plane/core/test/support/replicas.ts';
import { TEST_TOKEN } from '../../control-plane/nodes/test/scripted-node.ts';
import { Replicas } from '../../control-plane/test/programs.ts';
import { Registration } from '../../inference-node/serving/grpc/registration.ts';
import { openTestNode, type TestNode } from '../../inference-node/serving/test/test-node.ts';
import { EnvReader } from '../../program/env.ts';
import type { Tracing } from '../../program/tracing/active-span.ts';
import { openTracing } from '../../program/tracing/open-tracing.ts';
import { readTracingSettings } from '../../program/tracing/tracing-settings.ts';
import { type CollectedSpan, FakeCollector } from '../support/fake-collector.ts';

const test = ava.serial;

const SECRET = 'a callback secret for traces';
const JOBS = '/v1/matting/jobs';
const CONTROL_PLANE = 'matting-control-plane';
const NODE = 'matting-inference-node';
const SILENT = pino({ level: 'silent' });

const hex = (bytes: number) => randomBytes(bytes).toString('hex');

interface Ask {
  readonly traceId: string;
  readonly callersSpanId: string;
  readonly headers: Readonly<Record<string, string>>;
}

function ask(): Ask {
  const [traceId, callersSpanId] = [hex(16), hex(8)];
  const traceparent = `00-${traceId}-${callersSpanId}-01`;
  return { traceId, callersSpanId, headers: { traceparent, tracestate: 'vendor=a1,other=b2' } };
}

let collector: FakeCollector;
let receiver: Receiver;
let replicas: Replicas;
let tracing: Tracing;
let node: TestNode;
let leave: () => Promise<void>;
let caller: Caller;

test.before(async () => {
  collector = await FakeCollector.open();
  receiver = await Receiver.open(SECRET);
  const env = {
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.endpoint,
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20of-the-collector',
    OTEL_BSP_SCHEDULE_DELAY: '20',
  };
  replicas = await Replicas.open('sqlite', {
    env: {
      ...env,
      MATTING_ALLOW_HTTP_CALLBACKS: 'true',
      MATTING_ALLOWED_NETWORKS: '127.0.0.1/32',
      MATTING_WEBHOOK_SCHEDULE_MS: '0,50',
    },
  });
  const observer = { spansEnded: () => undefined };
  const program = { name: NODE, version: '0', instanceId: 'node-1', log: SILENT, observer };
  const settings = readTracingSettings(new EnvReader({ ...env, OTEL_SERVICE_NAME: '' }));
  const opened = await openTracing(settings, program);
  assert.ok(opened);
  tracing = opened;
  const bootId = randomUUID();
  node = await openTestNode({ token: TEST_TOKEN, tracing, bootId });
  const registration = new Registration({
    registryAddresses: [`127.0.0.1:${replicas.plane(0).ports.registry}`],
    identity: { nodeId: 'node-1', bootId, version: '0.0.0' },
    address: node.address,
    httpAddress: '',
    token: () => TEST_TOKEN,
    log: SILENT,
    security: { credentials: ChannelCredentials.createInsecure(), options: {} },
    onDrainCommand: () => undefined,
  });
  leave = () => registration.leave();
  for (const replica of [0, 1]) {
    await until(async () => (await fetch(replicas.url(replica, '/readyz'))).ok);
  }
  caller = await replicas.createCaller(100);
});
test.after.always(async () => {
  await leave?.();
  await replicas?.close();
  await node?.close();
  await tracing?.close();
  await receiver?.[Symbol.asyncDispose]();
  collector?.close();
});

async function spansOf({ traceId }: Ask, last: readonly string[]): Promise<CollectedSpan[]> {
  const names = () => collector.ofTrace(traceId).map(({ name }) => name);
  await until(async () => last.every(name => names().includes(name)), `spans ${last}`);
  return collector.ofTrace(traceId);
}

function only(spans: readonly CollectedSpan[], name: string, service = CONTROL_PLANE) {
  const [found, ...more] = spans.filter(span => span.name === name && span.service === service);
  assert.ok(found, `no span ${name} of ${service}`);
  assert.equal(more.length, 0, `${more.length + 1} spans ${name} of ${service}`);
  return found;
}

const hook = () => ({ callback_url: receiver.url(), callback_secret: SECRET });

test('goes from its caller to the engine, the storage and the webhook', async t => {
  const asked = ask();
  const { headers } = asked;
  const answer = await replicas.post(caller, pictureBody(hook()), { headers });
  t.is(answer.status, 200);
  const ends = ['notify', 'POST /v1/matting', 'matting.v1.MatteService/Matte', 'send'];
  const spans = await spansOf(asked, ends);
  const under = (child: CollectedSpan, parent: CollectedSpan) =>
    t.is(child.parentSpanId, parent.spanId, `${child.name} is not under ${parent.name}`);

  const request = only(spans, 'POST /v1/matting');
  t.is(request.parentSpanId, asked.callersSpanId);
  t.deepEqual(request.attributes, {
    'http.request.method': 'POST',
    'http.route': '/v1/matting',
    'http.response.status_code': 200,
    'matting.account.id': caller.accountId,
    'matting.job.id': answer.body.job_id,
  });
  const submit = only(spans, 'submit');
  under(submit, request);
  for (const name of ['queue', 'run', 'notify']) under(only(spans, name), submit);
  const run = only(spans, 'run');
  for (const name of ['claim', 'attempt', 'store']) under(only(spans, name), run);
  const call = only(spans, 'matting.v1.MatteService/Matte');
  under(call, only(spans, 'attempt'));
  const served = only(spans, 'matting.v1.MatteService/Matte', NODE);
  under(served, call);
  for (const name of ['receive', 'worker_wait', 'decode', 'engine', 'refine', 'encode', 'send']) {
    under(only(spans, name, NODE), served);
  }
  const engine = only(spans, 'engine', NODE);
  t.is(engine.attributes['matting.model'], 'tiny');
  for (const name of ['engine_wait', 'infer']) under(only(spans, name, NODE), engine);
  t.deepEqual(
    spans.filter(({ isError }) => isError),
    [],
  );
  const [delivery] = receiver.of(answer.body.job_id);
  const notify = only(spans, 'notify');
  t.is(delivery?.headers.traceparent, `00-${asked.traceId}-${notify.spanId}-01`);
  t.is(delivery?.headers.tracestate, headers.tracestate);
});

test('goes on where another replica takes an asynchronous job over', async t => {
  const asked = ask();
  node.gates.hold('infer');
  const path = JOBS;
  const { headers } = asked;
  const { body } = await replicas.post(caller, pictureBody(hook()), { path, headers });
  await node.gates.reached('infer');
  const holder = (await replicas.stores.jobs.find(body.job_id))?.lease?.holder;
  assert.ok(holder);
  // As if that replica were gone: its lease ends, and the other one claims.
  const survivor = holder === 'replica-0' ? 1 : 0;
  node.gates.hold('decode');
  await replicas.stores.queue.endLease(body.job_id);
  await until(async () => {
    const lease = (await replicas.stores.jobs.find(body.job_id))?.lease;
    if (lease?.holder === holder) await replicas.stores.queue.endLease(body.job_id);
    return lease?.holder === `replica-${survivor}`;
  }, 'the take-over');
  node.gates.letGo('infer');
  node.gates.letGo('decode');
  const spans = await spansOf(asked, ['store', 'notify', `POST ${JOBS}`]);
  const submit = only(spans, 'submit');
  // The replica that lost its lease may end first, without effect.
  const ended = spans.filter(span => span.attributes['matting.outcome'] === 'final');
  const stored = only(ended, 'store');
  t.is(stored.instance, `replica-${survivor}`);
  const runs = spans.filter(({ name }) => name === 'run');
  const last = runs.find(({ spanId }) => spanId === stored.parentSpanId);
  t.is(last?.instance, `replica-${survivor}`);
  for (const run of [...runs, only(spans, 'notify'), only(spans, 'queue')]) {
    t.is(run.parentSpanId, submit.spanId, run.name);
  }
});

test('says what a failure was by its code, and nothing of a refusal but its code', async t => {
  const asked = ask();
  node.gates.failOnce('decode', new Error('the name of a picture: summer.png'));
  await replicas.post(caller, pictureBody(), { headers: asked.headers });
  const spans = await spansOf(asked, ['POST /v1/matting', 'run', 'decode']);
  const decode = spans.find(({ name, isError }) => name === 'decode' && isError);
  t.deepEqual(decode?.attributes, { 'error.type': 'Error' });
  const refused = ask();
  const wrong = { ...refused.headers, authorization: 'Bearer not-a-key' };
  await replicas.post(caller, pictureBody(), { headers: wrong });
  const request = only(await spansOf(refused, ['POST /v1/matting']), 'POST /v1/matting');
  t.deepEqual([request.isError, request.attributes['error.type']], [false, 'INVALID_API_KEY']);
});

test('holds no URL, key or picture, and goes with the headers of its collector', async t => {
  const asked = ask();
  const body = pictureBody({ ...hook(), output_format: 'png' });
  const answer = await replicas.post(caller, body, { headers: asked.headers });
  const link = String(answer.body.result.url);
  await replicas.download(0, link);
  await spansOf(asked, ['notify', 'run', 'send']);
  const token = link.slice(link.lastIndexOf('/') + 1);
  const sent = collector.bodies.join('\n');
  const secrets = [caller.token, SECRET, token, receiver.url(), TEST_TOKEN, 'summer.png'];
  for (const secret of [...secrets, String(body.image_base64), 'http://', 'https://']) {
    t.false(sent.includes(secret), secret);
  }
  t.true(collector.headers.every(one => one.authorization === 'Bearer of-the-collector'));
});
