/** OpenTelemetry's variables for traces (OTEL_*) that both programs support. */
import type { EnvReader } from '../env.ts';

const SAMPLERS = [
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
  'always_on',
  'always_off',
  'traceidratio',
] as const;
export type SamplerName = (typeof SAMPLERS)[number];

export interface TracingSettings {
  /** May contain a password, so it is never logged. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Bounds one request with its retries. */
  readonly timeoutMs: number;
  readonly compression: 'gzip' | 'none';
  /** The collector's authority. undefined: the system's authorities. */
  readonly caFile: string | undefined;
  /** Certificate for a collector that requires one. */
  readonly identity: { readonly certFile: string; readonly keyFile: string } | undefined;
  readonly sampler: SamplerName;
  /** Share of the traces that begin here, 0 to 1. */
  readonly ratio: number;
  readonly serviceName: string | undefined;
  readonly resourceAttributes: Readonly<Record<string, string>>;
  /** Bounds waiting spans. The program drops and counts further ones. */
  readonly queueSpansMax: number;
  readonly batchSpansMax: number;
  /** A span's longest wait for others. */
  readonly batchWaitMs: number;
  readonly exportTimeoutMs: number;
}

const HTTP_URL = { schemes: ['http', 'https'], default: undefined };
const PAIRS_FORM = 'pairs name=value separated by commas, blanks and the like as %20';
const PAIRS_MAX = 64;
const PATH = 'v1/traces';
const MINUTE_MS = 60_000;
const TIMEOUT_MS = 10_000;

/**
 * @returns undefined: the program records no traces. Without an endpoint it ignores the other
 * variables
 */
export function readTracingSettings(whole: EnvReader): TracingSettings | undefined {
  const reader = whole.section('Traces');
  const url = readUrl(reader);
  const isDisabled = reader.boolean('OTEL_SDK_DISABLED', {
    about: 'Turns traces off, whatever the endpoint is.',
    default: false,
  });
  const exporter = reader.oneOf('OTEL_TRACES_EXPORTER', ['otlp', 'none'], {
    about: '`none` does the same.',
    default: 'otlp',
  });
  if (url === undefined || isDisabled || exporter === 'none') return undefined;
  for (const variable of both('PROTOCOL')) {
    reader.oneOf(variable, ['http/json', 'http/protobuf'], {
      about: 'The program always sends JSON, which every receiver of OTLP over HTTP takes.',
      otherwise: 'http/json',
      default: undefined,
    });
  }
  const certFile = readFile(
    reader,
    'CLIENT_CERTIFICATE',
    'The program’s own, for a collector that asks for one.',
  );
  const keyFile = readFile(reader, 'CLIENT_KEY', 'The key of that certificate.');
  if ((certFile === undefined) !== (keyFile === undefined)) {
    const missing = certFile === undefined ? 'CERTIFICATE' : 'KEY';
    reader.problem(`OTEL_EXPORTER_OTLP_CLIENT_${missing}`, 'set: certificate and key go together');
  }
  return {
    url,
    headers: readHeaders(reader),
    ...readSending(reader),
    caFile: readFile(
      reader,
      'CERTIFICATE',
      'The authorities of the collector’s certificate.',
      'the system’s',
    ),
    identity: certFile === undefined || keyFile === undefined ? undefined : { certFile, keyFile },
    ...readKept(reader),
    ...readQueue(reader),
  };
}

function readSending(reader: EnvReader) {
  return {
    timeoutMs:
      either('TIMEOUT', variable =>
        reader.integer(variable, {
          about: 'How long a batch may take with its retries, in milliseconds.',
          otherwise: String(TIMEOUT_MS),
          ...{ min: 1, max: 10 * MINUTE_MS, default: undefined },
        }),
      ) ?? TIMEOUT_MS,
    compression:
      either('COMPRESSION', variable =>
        reader.oneOf(variable, ['gzip', 'none'], {
          about: 'How batches are compressed.',
          otherwise: 'none',
          default: undefined,
        }),
      ) ?? 'none',
  } as const;
}

function readKept(reader: EnvReader) {
  return {
    sampler: reader.oneOf('OTEL_TRACES_SAMPLER', SAMPLERS, {
      about: `Which traces to keep. With \`parentbased_\` the caller’s decision comes first; without it,
        callers decide nothing.`,
      default: 'parentbased_always_on' as const,
    }),
    ratio: reader.number('OTEL_TRACES_SAMPLER_ARG', {
      about: 'The share of traces to keep, for `traceidratio`.',
      ...{ min: 0, max: 1, default: 1 },
    }),
    serviceName: reader.string('OTEL_SERVICE_NAME', {
      about: 'What the collector calls the program.',
      otherwise: 'matting-control-plane, matting-inference-node',
      ...{ lengthMax: 255, default: undefined },
    }),
    resourceAttributes: readPairs(
      reader,
      'OTEL_RESOURCE_ATTRIBUTES',
      'More about the program. `service.version` and `service.instance.id` are there by default.',
    ),
  };
}

/** The variable for traces precedes the one for all signals. */
function both(name: string): readonly [string, string] {
  return [`OTEL_EXPORTER_OTLP_TRACES_${name}`, `OTEL_EXPORTER_OTLP_${name}`];
}

function either<T>(name: string, read: (variable: string) => T | undefined): T | undefined {
  const [own, all] = both(name).map(read);
  return own ?? all;
}

function readUrl(reader: EnvReader): string | undefined {
  const [ofTraces, ofAll] = both('ENDPOINT');
  const own = reader.url(ofTraces, { about: 'The whole URL.', ...HTTP_URL });
  const base = reader.url(ofAll, {
    about: `The collector of [traces](monitoring.md#traces). The program adds \`/v1/traces\`;
      \`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT\` is the whole URL. The other settings of this form
      also exist for traces alone, and then those count. Without an endpoint there are no traces,
      and the program does not look at the settings below.`,
    ...HTTP_URL,
  });
  if (own !== undefined) return own;
  return base && `${base.replace(/\/+$/, '')}/${PATH}`;
}

function readFile(reader: EnvReader, name: string, about: string, otherwise?: string) {
  const options = {
    ...{ about, ...(otherwise && { otherwise }) },
    ...{ expected: 'the path of a PEM file', default: undefined },
  };
  return either(name, variable => reader.string(variable, options));
}

function readHeaders(reader: EnvReader): Readonly<Record<string, string>> {
  const [ofTraces, ofAll] = both('HEADERS');
  const about = 'Headers for the collector. They are secret.';
  return { ...readPairs(reader, ofAll, about), ...readPairs(reader, ofTraces, about) };
}

function readPairs(reader: EnvReader, variable: string, about: string) {
  const options = { about, itemsMax: PAIRS_MAX, default: [] };
  const pairs = reader.list(variable, PAIRS_FORM, parsePair, options);
  return Object.fromEntries(pairs) as Readonly<Record<string, string>>;
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
  const count = (name: string, about: string, bounds: { max: number; default: number }) =>
    reader.integer(`OTEL_BSP_${name}`, { about, min: 1, ...bounds });
  const queueSpansMax = count(
    'MAX_QUEUE_SIZE',
    'The ended spans that may wait. The program drops and counts others.',
    { max: 65_536, default: 2048 },
  );
  return {
    queueSpansMax,
    batchSpansMax: count('MAX_EXPORT_BATCH_SIZE', 'The spans of one batch, at most the queue.', {
      max: queueSpansMax,
      default: Math.min(512, queueSpansMax),
    }),
    batchWaitMs: count('SCHEDULE_DELAY', 'How long a span waits for others, in milliseconds.', {
      max: MINUTE_MS,
      default: 5000,
    }),
    exportTimeoutMs: count('EXPORT_TIMEOUT', 'How long one export may take, in milliseconds.', {
      max: 10 * MINUTE_MS,
      default: 30_000,
    }),
  };
}
