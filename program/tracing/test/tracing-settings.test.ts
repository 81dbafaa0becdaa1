import assert from 'node:assert/strict';
import test from 'ava';
import { throwsWith } from '../../../test/support/throws.ts';
import { ConfigError, EnvReader } from '../../env.ts';
import { readTracingSettings } from '../tracing-settings.ts';

function read(env: Record<string, string>) {
  const reader = new EnvReader(env);
  const settings = readTracingSettings(reader);
  reader.requireValid();
  return settings;
}

const ENDPOINT = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318/' };

test('without an endpoint there are no traces, whatever else is set', t => {
  t.is(read({}), undefined);
  t.is(read({ OTEL_SERVICE_NAME: 'x', OTEL_TRACES_SAMPLER: 'nonsense' }), undefined);
  t.is(read({ ...ENDPOINT, OTEL_SDK_DISABLED: 'true' }), undefined);
  t.is(read({ ...ENDPOINT, OTEL_TRACES_EXPORTER: 'none' }), undefined);
});

test('with one the defaults are those of the standard', t => {
  t.deepEqual(read(ENDPOINT), {
    url: 'http://collector:4318/v1/traces',
    headers: {},
    timeoutMs: 10_000,
    compression: 'none',
    caFile: undefined,
    identity: undefined,
    sampler: 'parentbased_always_on',
    ratio: 1,
    serviceName: undefined,
    resourceAttributes: {},
    queueSpansMax: 2048,
    batchSpansMax: 512,
    batchWaitMs: 5000,
    exportTimeoutMs: 30_000,
  });
});

test('what is said of traces alone comes before what is said of all signals', t => {
  const settings = read({
    ...ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://traces.example/otlp?tenant=1',
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Basic%20YTpi, x-tenant=all',
    OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'x-tenant=traces',
    OTEL_EXPORTER_OTLP_TIMEOUT: '1000',
    OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: '2000',
    OTEL_EXPORTER_OTLP_COMPRESSION: 'gzip',
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=staging,team=a%2Cb',
    OTEL_TRACES_SAMPLER: 'traceidratio',
    OTEL_TRACES_SAMPLER_ARG: '0.25',
    OTEL_BSP_MAX_QUEUE_SIZE: '100',
  });
  assert.ok(settings);
  t.is(settings.url, 'https://traces.example/otlp?tenant=1');
  t.deepEqual(settings.headers, { authorization: 'Basic YTpi', 'x-tenant': 'traces' });
  t.deepEqual([settings.timeoutMs, settings.compression], [2000, 'gzip']);
  t.deepEqual(settings.resourceAttributes, {
    'deployment.environment.name': 'staging',
    team: 'a,b',
  });
  t.deepEqual([settings.sampler, settings.ratio], ['traceidratio', 0.25]);
  t.deepEqual([settings.queueSpansMax, settings.batchSpansMax], [100, 100]);
});

test('nonsense stops the start by the name of its variable, never by its value', t => {
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
