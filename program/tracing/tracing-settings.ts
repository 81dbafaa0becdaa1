/**
 * The standard variables of OpenTelemetry for traces (OTEL_*), as far as they mean something here.
 * Both programs read the same; docs/settings.md lists them.
 */
import type { EnvReader } from '../env.ts';

export const SAMPLERS = [
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
  'always_on',
  'always_off',
  'traceidratio',
] as const;
export type SamplerName = (typeof SAMPLERS)[number];

export interface TracingSettings {
  /** Where spans are posted; may hold a password, so it is never logged. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Of one request with its repetitions. */
  readonly timeoutMs: number;
  readonly compression: 'gzip' | 'none';
  /** Who signed the collector's certificate; undefined: who the system trusts. */
  readonly caFile: string | undefined;
  /** For a collector that asks for one. */
  readonly identity: { readonly certFile: string; readonly keyFile: string } | undefined;
  readonly sampler: SamplerName;
  /** In [0, 1]: of traces that begin here. */
  readonly ratio: number;
  /** OTEL_SERVICE_NAME. */
  readonly serviceName: string | undefined;
  readonly resourceAttributes: Readonly<Record<string, string>>;
  /** Ended spans that wait; what does not fit is dropped and counted. */
  readonly queueSpansMax: number;
  readonly batchSpansMax: number;
  /** The longest a span waits for others. */
  readonly batchWaitMs: number;
  readonly exportTimeoutMs: number;
}

const HTTP_URL = { schemes: ['http', 'https'], default: undefined };
const PAIRS_FORM = 'pairs name=value separated by commas, blanks and the like as %20';
const PAIRS_MAX = 64;
const PATH = 'v1/traces';
const MINUTE_MS = 60_000;

/** Undefined: there are no traces. Without an endpoint the other variables are not looked at. */
export function readTracingSettings(reader: EnvReader): TracingSettings | undefined {
  const isDisabled = reader.boolean('OTEL_SDK_DISABLED', { default: false });
  const exporter = reader.oneOf('OTEL_TRACES_EXPORTER', ['otlp', 'none'], { default: 'otlp' });
  const url = readUrl(reader);
  if (url === undefined || isDisabled || exporter === 'none') return undefined;
  // Any receiver of OTLP over HTTP takes JSON, which is what is sent.
  for (const variable of both('PROTOCOL')) {
    reader.oneOf(variable, ['http/json', 'http/protobuf'], { default: undefined });
  }
  const certFile = readFile(reader, 'CLIENT_CERTIFICATE');
  const keyFile = readFile(reader, 'CLIENT_KEY');
  if ((certFile === undefined) !== (keyFile === undefined)) {
    const missing = certFile === undefined ? 'CERTIFICATE' : 'KEY';
    reader.problem(`OTEL_EXPORTER_OTLP_CLIENT_${missing}`, 'set: certificate and key go together');
  }
  return {
    url,
    headers: readHeaders(reader),
    timeoutMs:
      either('TIMEOUT', variable =>
        reader.integer(variable, { min: 1, max: 10 * MINUTE_MS, default: undefined }),
      ) ?? 10_000,
    compression:
      either('COMPRESSION', variable =>
        reader.oneOf(variable, ['gzip', 'none'], { default: undefined }),
      ) ?? 'none',
    caFile: readFile(reader, 'CERTIFICATE'),
    identity: certFile === undefined || keyFile === undefined ? undefined : { certFile, keyFile },
    sampler: reader.oneOf('OTEL_TRACES_SAMPLER', SAMPLERS, { default: 'parentbased_always_on' }),
    ratio: reader.number('OTEL_TRACES_SAMPLER_ARG', { min: 0, max: 1, default: 1 }),
    serviceName: reader.string('OTEL_SERVICE_NAME', { lengthMax: 255, default: undefined }),
    resourceAttributes: readPairs(reader, 'OTEL_RESOURCE_ATTRIBUTES'),
    ...readQueue(reader),
  };
}

/** The variable for traces alone, which comes first, and that for every signal. */
function both(name: string): readonly [string, string] {
  return [`OTEL_EXPORTER_OTLP_TRACES_${name}`, `OTEL_EXPORTER_OTLP_${name}`];
}

function either<T>(name: string, read: (variable: string) => T | undefined): T | undefined {
  const [own, all] = both(name).map(read);
  return own ?? all;
}

function readUrl(reader: EnvReader): string | undefined {
  const [ofTraces, ofAll] = both('ENDPOINT');
  const own = reader.url(ofTraces, HTTP_URL);
  const base = reader.url(ofAll, HTTP_URL);
  if (own !== undefined) return own;
  return base && `${base.replace(/\/+$/, '')}/${PATH}`;
}

function readFile(reader: EnvReader, name: string): string | undefined {
  const options = { expected: 'the path of a PEM file', default: undefined };
  return either(name, variable => reader.string(variable, options));
}

function readHeaders(reader: EnvReader): Readonly<Record<string, string>> {
  const [ofTraces, ofAll] = both('HEADERS');
  return { ...readPairs(reader, ofAll), ...readPairs(reader, ofTraces) };
}

function readPairs(reader: EnvReader, variable: string): Readonly<Record<string, string>> {
  const options = { itemsMax: PAIRS_MAX, default: [] };
  const pairs = reader.list(variable, PAIRS_FORM, parsePair, options);
  return Object.fromEntries(pairs);
}

function parsePair(text: string): readonly [string, string] | undefined {
  const [, name = '', value = ''] =
    /^([A-Za-z0-9!#$&'*+.^_`|~-]{1,128})\s*=\s*(.*)$/.exec(text) ?? [];
  if (name === '') return undefined;
  try {
    return [name, decodeURIComponent(value)];
  } catch {
    return undefined;
  }
}

function readQueue(reader: EnvReader) {
  const count = (name: string, max: number, otherwise: number) =>
    reader.integer(`OTEL_BSP_${name}`, { min: 1, max, default: otherwise });
  const queueSpansMax = count('MAX_QUEUE_SIZE', 65_536, 2048);
  return {
    queueSpansMax,
    batchSpansMax: count('MAX_EXPORT_BATCH_SIZE', queueSpansMax, Math.min(512, queueSpansMax)),
    batchWaitMs: count('SCHEDULE_DELAY', MINUTE_MS, 5000),
    exportTimeoutMs: count('EXPORT_TIMEOUT', 10 * MINUTE_MS, 30_000),
  };
}
