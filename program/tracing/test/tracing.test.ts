/** Spans as they leave this process, and what a collector that fails does to it: nothing. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import path from 'node:path';
import { after, before, beforeEach, describe, it, test } from 'node:test';
import { promisify } from 'node:util';
import { FakeCollector } from '../../../test/support/fake-collector.ts';
import { EnvReader } from '../../env.ts';
import {
  activeCarrier,
  asSpan,
  carrierOf,
  KEPT_CONTEXT_LENGTH_MAX,
  keptContext,
  recordSpan,
  traced,
  traceFields,
  underNoSpan,
} from '../active-span.ts';
import { openTracing } from '../open-tracing.ts';
import type { SpanFate, Tracing } from '../span.ts';
import { readTracingSettings } from '../tracing-settings.ts';

const TRACE = 'ab'.repeat(16);
const PARENT = { traceparent: `00-${TRACE}-${'cd'.repeat(8)}-01`, tracestate: 'vendor=x' };
const UNSAMPLED = { traceparent: `00-${TRACE}-${'cd'.repeat(8)}-00` };
/** A time of day, in which the SDK sees no time since its process began. */
const EARLIER_MS = Date.UTC(2026, 0, 1);
const REQUEST = { name: 'POST /v1/matting', kind: 'SERVER' } as const;

describe('spans', () => {
  let collector: FakeCollector;
  let lines: { readonly msg: string; readonly fields: object }[];
  let fates: Record<SpanFate, number>;

  before(async () => {
    collector = await FakeCollector.open();
  });
  after(() => collector.close());
  beforeEach(() => {
    collector.behaveWell();
    collector.spans.length = 0;
    lines = [];
    fates = { exported: 0, failed: 0, dropped: 0 };
  });

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

  it('are children of what they run under, over awaits and beside each other', async () => {
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
      underNoSpan(() => assert.equal(traceFields(), undefined));
      assert.equal(traceFields()?.span_id, request.span.spanContext().spanId);
    });
    assert.equal(traceFields(), undefined);
    await tracing.close();
    const parentOf = (name: string) =>
      collector.spans
        .filter(span => span.name === name)
        .map(span => collector.spans.find(({ spanId }) => spanId === span.parentSpanId)?.name);
    assert.deepEqual(parentOf('claim'), [REQUEST.name]);
    assert.deepEqual(parentOf('engine').sort(), ['claim', 'store']);
    const decode = collector.spans.find(({ name }) => name === 'decode');
    assert.deepEqual([decode?.startMs, decode?.endMs], [EARLIER_MS, EARLIER_MS + 250.5]);
    assert.deepEqual(fates, { exported: 6, failed: 0, dropped: 0 });
    const [sent] = collector.spans.filter(({ name }) => name === REQUEST.name);
    assert.equal(sent?.parentSpanId, 'cd'.repeat(8));
    assert.deepEqual([sent?.service, sent?.instance], ['program', 'one']);
  });

  it('end with what their work threw, by its name alone', async () => {
    const tracing = await open();
    const broken = new TypeError('https://secret.example/picture.png');
    const work = asSpan(tracing.start(REQUEST), () => Promise.reject(broken));
    await assert.rejects(work, broken);
    await tracing.close();
    const [span] = collector.spans;
    assert.deepEqual(span?.attributes, { 'error.type': 'TypeError' });
    assert.ok(span?.isError);
    assert.ok(!collector.bodies.at(-1)?.includes('secret'));
  });

  it('of an unsampled parent are not sent, have no children, and travel on as such', async () => {
    const tracing = await open();
    await asSpan(tracing.start(REQUEST, UNSAMPLED), async () => {
      const fields = traceFields();
      await traced({ name: 'claim' }, async () => assert.deepEqual(traceFields(), fields));
      assert.match(activeCarrier()?.traceparent ?? '', new RegExp(`^00-${TRACE}-[0-9a-f]{16}-00$`));
      assert.equal(traceFields()?.trace_flags, '00');
    });
    await tracing.close();
    assert.deepEqual([collector.spans, fates.exported], [[], 0]);
  });

  it('are sampled whatever the parent says where the sampler does not ask it', async () => {
    const always = await open({ OTEL_TRACES_SAMPLER: 'always_on' });
    assert.ok(always.start(REQUEST, UNSAMPLED).span.isRecording());
    const never = await open({
      OTEL_TRACES_SAMPLER: 'traceidratio',
      OTEL_TRACES_SAMPLER_ARG: '0',
    });
    assert.ok(!never.start(REQUEST, PARENT).span.isRecording());
    await Promise.all([always.close(), never.close()]);
  });

  it('go with their resource and headers, packed where that is asked for', async () => {
    const tracing = await open({
      OTEL_EXPORTER_OTLP_COMPRESSION: 'gzip',
      OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=a%20b',
      OTEL_SERVICE_NAME: 'cut-outs',
      OTEL_RESOURCE_ATTRIBUTES: 'service.instance.id=other',
    });
    tracing.start(REQUEST).span.end();
    await tracing.close();
    const [span] = collector.spans;
    assert.deepEqual([span?.service, span?.instance], ['cut-outs', 'other']);
    const headers = collector.headers.at(-1);
    assert.deepEqual([headers?.['content-encoding'], headers?.['x-tenant']], ['gzip', 'a b']);
  });

  it('that do not fit into the queue are dropped and counted', async () => {
    const tracing = await open({ OTEL_BSP_MAX_QUEUE_SIZE: '10' });
    for (let i = 0; i < 25; i += 1) tracing.start(REQUEST).span.end();
    await tracing.close();
    assert.equal(fates.exported + fates.dropped, 25);
    // The batch that is taken at the tenth leaves room for ten more.
    assert.ok(fates.dropped >= 5, `${fates.dropped}`);
    assert.equal(collector.spans.length, fates.exported);
  });

  it('that a collector refuses are counted, and told once', async () => {
    collector.behaviour = (_request, response) => void response.writeHead(400).end('no');
    const tracing = await open({
      OTEL_BSP_MAX_QUEUE_SIZE: '4',
      OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '1',
    });
    for (let i = 0; i < 4; i += 1) tracing.start(REQUEST).span.end();
    await tracing.close();
    assert.deepEqual(fates, { exported: 0, failed: 4, dropped: 0 });
    const told = lines.filter(({ msg }) => msg === 'the collector took no traces');
    assert.deepEqual(
      told.map(({ fields }) => fields),
      [{ code: '400', spans: 1 }],
    );
  });

  it('of a collector that hangs, or is not there, hold no end back for long', async () => {
    collector.behaviour = () => undefined;
    const hanging = await open();
    const absent = await open({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' });
    for (const tracing of [hanging, absent]) tracing.start(REQUEST).span.end();
    const timeUp = AbortSignal.timeout(30_000);
    const late = new Promise((_, reject) => {
      timeUp.addEventListener('abort', () => reject(new Error('it is waited for')));
    });
    await Promise.race([Promise.all([hanging.close(), absent.close()]), late]);
    assert.equal(fates.exported, 0);
  });
});

test('a certificate that cannot be read is named by its variable', async () => {
  const settings = readTracingSettings(
    new EnvReader({
      OTEL_EXPORTER_OTLP_ENDPOINT: 'https://collector:4318',
      OTEL_EXPORTER_OTLP_CERTIFICATE: '/nowhere/ca.pem',
    }),
  );
  const program = { name: 'p', version: '1', instanceId: 'i' };
  const deaf = { log: { info: () => undefined, warn: () => undefined } };
  const observer = { spansEnded: () => undefined };
  await assert.rejects(openTracing(settings, { ...program, ...deaf, observer }), {
    message: 'OTEL_EXPORTER_OTLP_CERTIFICATE cannot be read (ENOENT)',
  });
});

test('a kept context is what came, as far as a row takes it', () => {
  assert.deepEqual(carrierOf(keptContext(PARENT)), PARENT);
  assert.deepEqual(carrierOf(keptContext(UNSAMPLED)), UNSAMPLED);
  const states = { ...PARENT, tracestate: 'v='.padEnd(512, 'x') };
  assert.equal(keptContext(states).length, KEPT_CONTEXT_LENGTH_MAX);
  assert.deepEqual(carrierOf(keptContext(states)), states);
  const { traceparent } = PARENT;
  assert.equal(keptContext({ traceparent, tracestate: 'v='.padEnd(513, 'x') }), traceparent);
});

test('nothing of the SDK is loaded without an endpoint', async () => {
  // Its API is: prom-client asks it for an active span, which nobody registers.
  const modules = [
    'program/log.ts',
    'control-plane/src/compose.ts',
    'inference-node/src/compose.ts',
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
  assert.deepEqual(JSON.parse(stdout), [true, []]);
});
