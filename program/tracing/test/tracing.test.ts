/** Exported spans, and collectors that fail. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { FakeCollector } from '@matting/test-support/fake-collector.ts';
import { rejectsWith, throwsWith } from '@matting/test-support/throws.ts';
import ava from 'ava';
import { ConfigError } from '../../config-error.ts';
import { EnvReader } from '../../env.ts';
import {
  activeCarrier,
  asSpan,
  carrierOf,
  keptContext,
  recordSpan,
  type SpanFate,
  type Tracing,
  traced,
  traceFields,
  underNoSpan,
} from '../active-span.ts';
import { openTracing } from '../open-tracing.ts';
import { readTracingSettings } from '../tracing-settings.ts';

const test = ava.serial;

const TRACE = 'ab'.repeat(16);
const PARENT = { traceparent: `00-${TRACE}-${'cd'.repeat(8)}-01`, tracestate: 'vendor=x' };
const UNSAMPLED = { traceparent: `00-${TRACE}-${'cd'.repeat(8)}-00` };
/** A time before the process began, from which the SDK derives no duration. */
const EARLIER_MS = Date.UTC(2026, 0, 1);
const REQUEST = { name: 'POST /v1/matting', kind: 'SERVER' } as const;

let collector: FakeCollector;
let lines: { readonly msg: string; readonly fields: object }[];
let fates: Record<SpanFate, number>;

test.before(async () => {
  collector = await FakeCollector.open();
});
test.after.always(() => collector.close());
const prepare = () => {
  collector.behaveWell();
  collector.spans.length = 0;
  lines = [];
  fates = { exported: 0, failed: 0, dropped: 0 };
};

async function open(env: Record<string, string> = {}): Promise<Tracing> {
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.endpoint };
  const note = (fields: object, msg: string) => void lines.push({ msg, fields });
  const tracing = await openTracing(readTracingSettings(new EnvReader({ ...endpoint, ...env })), {
    name: 'program',
    version: '1.2.3',
    instanceId: 'one',
    log: { info: note as never, warn: note as never },
    observer: {
      spansEnded: (fate, count) => {
        fates[fate] += count;
      },
    },
  });
  assert.ok(tracing);
  return tracing;
}

test('spans › are children of what they run under, over awaits and beside each other', async t => {
  await prepare();
  const tracing = await open();
  const request = tracing.start(REQUEST, PARENT);
  await asSpan(request, async () => {
    const both = ['claim', 'store'] as const;
    await Promise.all(
      both.map(name =>
        traced({ name }, async () => {
          await new Promise(resolve => setImmediate(resolve));
          await traced({ name: 'engine' }, async () => undefined);
        }),
      ),
    );
    recordSpan({ name: 'decode', startTime: EARLIER_MS }, EARLIER_MS + 250.5);
    underNoSpan(() => t.is(traceFields(), undefined));
    t.is(traceFields()?.span_id, request.span.spanContext().spanId);
  });
  t.is(traceFields(), undefined);
  await tracing.close();
  const parentOf = (name: string) =>
    collector.spans
      .filter(span => span.name === name)
      .map(span => collector.spans.find(({ spanId }) => spanId === span.parentSpanId)?.name);
  t.deepEqual(parentOf('claim'), [REQUEST.name]);
  t.deepEqual(parentOf('engine').sort(), ['claim', 'store']);
  const decode = collector.spans.find(({ name }) => name === 'decode');
  t.deepEqual([decode?.startMs, decode?.endMs], [EARLIER_MS, EARLIER_MS + 250.5]);
  t.deepEqual(fates, { exported: 6, failed: 0, dropped: 0 });
  const [sent] = collector.spans.filter(({ name }) => name === REQUEST.name);
  t.is(sent?.parentSpanId, 'cd'.repeat(8));
  t.deepEqual([sent?.service, sent?.instance], ['program', 'one']);
});

test('spans › end with what their work threw, by its name alone', async t => {
  await prepare();
  const tracing = await open();
  const broken = new TypeError('https://secret.example/picture.png');
  const work = asSpan(tracing.start(REQUEST), () => Promise.reject(broken));
  await rejectsWith(t, work, broken);
  await tracing.close();
  const [span] = collector.spans;
  t.deepEqual(span?.attributes, { 'error.type': 'TypeError' });
  t.true(span?.isError);
  t.false(collector.bodies.at(-1)?.includes('secret'));
});

test('spans › of an unsampled parent are not sent, have no children, and travel on as such', async t => {
  await prepare();
  const tracing = await open();
  await asSpan(tracing.start(REQUEST, UNSAMPLED), async () => {
    const fields = traceFields();
    await traced({ name: 'claim' }, async () => t.deepEqual(traceFields(), fields));
    t.regex(activeCarrier()?.traceparent ?? '', new RegExp(`^00-${TRACE}-[0-9a-f]{16}-00$`));
    t.is(traceFields()?.trace_flags, '00');
  });
  await tracing.close();
  t.deepEqual([collector.spans, fates.exported], [[], 0]);
});

test('spans › go with their resource and headers, packed where that is asked for', async t => {
  await prepare();
  const tracing = await open({
    OTEL_EXPORTER_OTLP_COMPRESSION: 'gzip',
    OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=a%20b',
    OTEL_SERVICE_NAME: 'cut-outs',
    OTEL_RESOURCE_ATTRIBUTES: 'service.instance.id=other',
  });
  tracing.start(REQUEST).span.end();
  await tracing.close();
  const [span] = collector.spans;
  t.deepEqual([span?.service, span?.instance], ['cut-outs', 'other']);
  const headers = collector.headers.at(-1);
  t.deepEqual([headers?.['content-encoding'], headers?.['x-tenant']], ['gzip', 'a b']);
});

test('spans › that do not fit into the queue are dropped and counted', async t => {
  await prepare();
  const tracing = await open({ OTEL_BSP_MAX_QUEUE_SIZE: '10' });
  for (let i = 0; i < 25; i += 1) tracing.start(REQUEST).span.end();
  await tracing.close();
  t.is(fates.exported + fates.dropped, 25);
  // The batch taken at the tenth leaves room for ten more.
  t.true(fates.dropped >= 5, `${fates.dropped}`);
  t.is(collector.spans.length, fates.exported);
});

test('spans › that a collector refuses are counted, and told once', async t => {
  await prepare();
  collector.behaviour = (_request, response) => void response.writeHead(400).end('no');
  const tracing = await open({
    OTEL_BSP_MAX_QUEUE_SIZE: '4',
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '1',
  });
  for (let i = 0; i < 4; i += 1) tracing.start(REQUEST).span.end();
  await tracing.close();
  t.deepEqual(fates, { exported: 0, failed: 4, dropped: 0 });
  const logged = lines.filter(({ msg }) => msg === 'the collector took no traces');
  t.deepEqual(
    logged.map(({ fields }) => fields),
    [{ code: '400', spans: 1 }],
  );
});

test('spans › of a collector that hangs, or is not there, hold no end back for long', async t => {
  await prepare();
  collector.behaviour = () => undefined;
  const hanging = await open();
  const absent = await open({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' });
  for (const tracing of [hanging, absent]) tracing.start(REQUEST).span.end();
  const timeUp = AbortSignal.timeout(30_000);
  const late = new Promise((_, reject) => {
    timeUp.addEventListener('abort', () => reject(new Error('it is waited for')));
  });
  await Promise.race([Promise.all([hanging.close(), absent.close()]), late]);
  t.is(fates.exported, 0);
});

test('a certificate that cannot be read is named by its variable', async t => {
  const settings = readTracingSettings(
    new EnvReader({
      OTEL_EXPORTER_OTLP_ENDPOINT: 'https://collector:4318',
      OTEL_EXPORTER_OTLP_CERTIFICATE: '/nowhere/ca.pem',
    }),
  );
  const program = { name: 'p', version: '1', instanceId: 'i' };
  const deaf = { log: { info: () => undefined, warn: () => undefined } };
  const observer = { spansEnded: () => undefined };
  await t.throwsAsync(openTracing(settings, { ...program, ...deaf, observer }), {
    message: /^OTEL_EXPORTER_OTLP_CERTIFICATE cannot be read \(ENOENT: /,
  });
});

test('a kept context is what came, as far as a row takes it', t => {
  t.deepEqual(carrierOf(keptContext(PARENT)), PARENT);
  t.deepEqual(carrierOf(keptContext(UNSAMPLED)), UNSAMPLED);
  const states = { ...PARENT, tracestate: 'v='.padEnd(512, 'x') };
  t.is(keptContext(states).length, 568);
  t.deepEqual(carrierOf(keptContext(states)), states);
  const { traceparent } = PARENT;
  t.is(keptContext({ traceparent, tracestate: 'v='.padEnd(513, 'x') }), traceparent);
});

test('nothing of the SDK is loaded without an endpoint', async t => {
  // The API is loaded: the metrics' client asks it for an active span.
  const modules = [
    'program/log.ts',
    'control-plane/core/open-core.ts',
    'inference-node/serving/service.ts',
  ];
  const loading = modules.map(name => `await import(${JSON.stringify(path.resolve(name))});`);
  const program = `
    import { registerHooks } from 'node:module';
    const loaded = [];
    registerHooks({ load(url, context, next) { loaded.push(url); return next(url, context); } });
    ${loading.join('\n')}
    const isOfIt = url => url.includes('@opentelemetry/sdk') || url.includes('tracing/otel-');
    console.log(JSON.stringify([loaded.length > 100, loaded.filter(isOfIt)]));`;
  const args = ['--input-type=module', '-e', program];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  t.deepEqual(JSON.parse(stdout), [true, []]);
});

function read(env: Record<string, string>) {
  const reader = new EnvReader(env);
  const settings = readTracingSettings(reader);
  reader.requireValid();
  return settings;
}

const ENDPOINT = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318/' };

test('settings › without an endpoint there are no traces, whatever else is set', t => {
  t.is(read({}), undefined);
  t.is(read({ OTEL_SERVICE_NAME: 'x', OTEL_TRACES_SAMPLER: 'nonsense' }), undefined);
  t.is(read({ ...ENDPOINT, OTEL_SDK_DISABLED: 'true' }), undefined);
  t.is(read({ ...ENDPOINT, OTEL_TRACES_EXPORTER: 'none' }), undefined);
});

test('settings › what is said of traces alone comes before what is said of all signals', t => {
  const settings = read({
    ...ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://traces.example/otlp?tenant=1',
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Basic%20YTpi, x-tenant=all',
    OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'x-tenant=traces',
    OTEL_RESOURCE_ATTRIBUTES: 'team=a%2Cb',
    OTEL_TRACES_SAMPLER: 'traceidratio',
    OTEL_TRACES_SAMPLER_ARG: '0.25',
    OTEL_BSP_MAX_QUEUE_SIZE: '100',
  });
  assert.ok(settings);
  t.is(settings.url, 'https://traces.example/otlp?tenant=1');
  t.deepEqual(settings.headers, { authorization: 'Basic YTpi', 'x-tenant': 'traces' });
  t.deepEqual(settings.resourceAttributes, { team: 'a,b' });
  t.deepEqual([settings.sampler, settings.ratio], ['traceidratio', 0.25]);
  t.deepEqual([settings.queueSpansMax, settings.batchSpansMax], [100, 100]);
});

test('settings › nonsense stops the start by the name of its variable, never by its value', t => {
  const wrong = {
    OTEL_SDK_DISABLED: 'yes-secret',
    OTEL_TRACES_EXPORTER: 'zipkin-secret',
    OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc-secret',
    OTEL_EXPORTER_OTLP_HEADERS: 'no-pair-secret',
    OTEL_EXPORTER_OTLP_TIMEOUT: 'soon-secret',
    OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: 'zstd-secret',
    OTEL_EXPORTER_OTLP_CLIENT_KEY: '/etc/key-secret',
    OTEL_TRACES_SAMPLER: 'jaeger_remote-secret',
    OTEL_TRACES_SAMPLER_ARG: '2',
    OTEL_RESOURCE_ATTRIBUTES: 'a=%zz-secret',
    OTEL_BSP_MAX_QUEUE_SIZE: '0',
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '-1',
    OTEL_BSP_SCHEDULE_DELAY: 'x',
    OTEL_BSP_EXPORT_TIMEOUT: 'x',
  };
  throwsWith(
    t,
    () => read({ ...ENDPOINT, ...wrong }),
    (error: unknown) => {
      assert.ok(error instanceof ConfigError);
      const named = new Set(error.problems.map(({ variable }) => variable));
      const { OTEL_EXPORTER_OTLP_CLIENT_KEY: _, ...others } = wrong;
      const expected = [...Object.keys(others), 'OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE'];
      t.deepEqual([...named].sort(), expected.sort());
      t.false(error.message.includes('secret'), error.message);
      return true;
    },
  );
  for (const url of ['collector:4318', 'grpc://collector:4317', '/v1/traces']) {
    t.throws(() => read({ OTEL_EXPORTER_OTLP_ENDPOINT: url }), { instanceOf: ConfigError }, url);
  }
});
