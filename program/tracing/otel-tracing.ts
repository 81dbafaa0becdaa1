/**
 * Traces by OpenTelemetry's SDK: sampled as asked for, gathered in a bounded queue, sent as OTLP over
 * HTTP. Loaded by open-tracing.ts alone. Nothing is registered globally: several may live in one
 * process, and no other package finds a tracer.
 */
import { readFile } from 'node:fs/promises';
import {
  defaultTextMapGetter,
  defaultTextMapSetter,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  trace,
} from '@opentelemetry/api';
import {
  type ExportResult,
  ExportResultCode,
  W3CTraceContextPropagator,
} from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  type ReadableSpan,
  type Sampler,
  type SpanExporter,
  type SpanProcessor,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import {
  ATTR_SERVICE_INSTANCE_ID,
  ATTR_SERVICE_NAME,
  ATTR_SERVICE_VERSION,
} from '@opentelemetry/semantic-conventions';
import { whyUnreadable } from '../files.ts';
import { settledWithin } from '../waiting.ts';
import type { TraceCarrier, TracedProgram, Tracing } from './active-span.ts';
import type { SamplerName, TracingSettings } from './tracing-settings.ts';

const COMPLAINT_PAUSE_MS = 60_000;
/** A drain waits so long for a collector that hangs. */
const FLUSH_MAX_MS = 1500;

/** A certificate or key for the collector cannot be read. */
export class TracingFileError extends Error {
  constructor(variable: string, cause: unknown) {
    super(`${variable} cannot be read (${whyUnreadable(cause)})`, { cause });
    this.name = 'TracingFileError';
  }
}

export async function openOtelTracing(
  settings: TracingSettings,
  program: TracedProgram,
): Promise<Tracing> {
  const { log, name, version, instanceId } = program;
  const { queueSpansMax } = settings;
  const counted = new CountedExport(program, queueSpansMax);
  const exporter = await createExporter(settings);
  const queue = new BatchSpanProcessor({
    exporter: counted.exporter(exporter),
    maxQueueSize: queueSpansMax,
    maxExportBatchSize: settings.batchSpansMax,
    scheduledDelayMillis: settings.batchWaitMs,
    exportTimeoutMillis: settings.exportTimeoutMs,
  });
  const provider = new TracerProvider({
    resource: resourceFromAttributes({
      [ATTR_SERVICE_NAME]: name,
      [ATTR_SERVICE_VERSION]: version,
      [ATTR_SERVICE_INSTANCE_ID]: instanceId,
      ...settings.resourceAttributes,
      ...(settings.serviceName && { [ATTR_SERVICE_NAME]: settings.serviceName }),
    }),
    sampler: createSampler(settings.sampler, settings.ratio),
    spanProcessors: [counted.processor(queue)],
  });
  log.info({ sampler: settings.sampler }, 'traces are sent to a collector');
  const tracer = provider.getTracer('matting-service', version);
  const propagator = new W3CTraceContextPropagator();
  const tracing: Tracing = {
    start({ name: spanName, kind = 'INTERNAL', ...begin }, parent) {
      const options = { ...begin, kind: SpanKind[kind] };
      return { span: tracer.startSpan(spanName, options, contextOf(propagator, parent)), tracing };
    },
    carrierOf(span) {
      const carrier = { traceparent: '' };
      propagator.inject(trace.setSpan(ROOT_CONTEXT, span), carrier, defaultTextMapSetter);
      return carrier;
    },
    async close() {
      // Rejects where the collector takes nothing: that was counted, and said, as it happened.
      const sent = provider.shutdown().catch(() => undefined);
      // `shutdown` ends with the first refused batch; the others are still on their way.
      await settledWithin(
        sent.then(() => exporter.forceFlush()),
        FLUSH_MAX_MS,
      );
    },
  };
  return tracing;
}

function contextOf(propagator: W3CTraceContextPropagator, parent: Span | TraceCarrier | undefined) {
  if (parent === undefined) return ROOT_CONTEXT;
  return 'traceparent' in parent
    ? propagator.extract(ROOT_CONTEXT, parent, defaultTextMapGetter)
    : trace.setSpan(ROOT_CONTEXT, parent);
}

type ExporterOptions = Required<NonNullable<ConstructorParameters<typeof OTLPTraceExporter>[0]>>;

async function createExporter(settings: TracingSettings): Promise<OTLPTraceExporter> {
  const { url, headers, timeoutMs, caFile, identity, queueSpansMax, batchSpansMax } = settings;
  const pem = async (variable: string, file: string | undefined) =>
    file === undefined
      ? undefined
      : await readFile(file).catch(error => {
          throw new TracingFileError(`OTEL_EXPORTER_OTLP_${variable}`, error);
        });
  const ca = await pem('CERTIFICATE', caFile);
  const cert = await pem('CLIENT_CERTIFICATE', identity?.certFile);
  const key = await pem('CLIENT_KEY', identity?.keyFile);
  return new OTLPTraceExporter({
    url,
    headers: { ...headers },
    timeoutMillis: timeoutMs,
    compression: settings.compression as ExporterOptions['compression'],
    // A whole queue at once when the process ends, besides the batch under way.
    concurrencyLimit: Math.ceil(queueSpansMax / batchSpansMax) + 1,
    httpAgentOptions: { keepAlive: true, ...(ca && { ca }), ...(cert && key && { cert, key }) },
  });
}

function createSampler(name: SamplerName, ratio: number): Sampler {
  const root = name.endsWith('traceidratio')
    ? new TraceIdRatioBasedSampler(ratio)
    : name.endsWith('always_on')
      ? new AlwaysOnSampler()
      : new AlwaysOffSampler();
  return name.startsWith('parentbased_') ? new ParentBasedSampler({ root }) : root;
}

/**
 * Counts what becomes of spans, and says at most once a minute that a collector takes none: both
 * ends of the SDK's queue. Since that counts nothing that can be read, the same bound is held before it.
 */
class CountedExport {
  readonly #program: TracedProgram;
  readonly #queueSpansMax: number;
  #waiting = 0;
  #complainedAtMs = Number.NEGATIVE_INFINITY;
  #failing = false;

  constructor(program: TracedProgram, queueSpansMax: number) {
    this.#program = program;
    this.#queueSpansMax = queueSpansMax;
  }

  processor(queue: SpanProcessor): SpanProcessor {
    return {
      onStart: (span, context) => queue.onStart(span, context),
      onEnd: span => {
        if (this.#waiting >= this.#queueSpansMax) {
          this.#program.observer.spansEnded('dropped', 1);
          return;
        }
        this.#waiting += 1;
        queue.onEnd(span);
      },
      forceFlush: () => queue.forceFlush(),
      shutdown: () => queue.shutdown(),
    };
  }

  exporter(exporter: SpanExporter): SpanExporter {
    return {
      export: (spans, done) => {
        this.#waiting -= spans.length;
        exporter.export(spans, result => {
          this.#count(spans, result);
          done(result);
        });
      },
      forceFlush: async () => await exporter.forceFlush?.(),
      shutdown: () => exporter.shutdown(),
    };
  }

  #count(spans: readonly ReadableSpan[], { code, error }: ExportResult): void {
    const { observer, log } = this.#program;
    if (code === ExportResultCode.SUCCESS) {
      observer.spansEnded('exported', spans.length);
      if (this.#failing) log.info('the collector takes traces again');
      this.#failing = false;
      return;
    }
    observer.spansEnded('failed', spans.length);
    this.#failing = true;
    const nowMs = performance.now();
    if (nowMs - this.#complainedAtMs < COMPLAINT_PAUSE_MS) return;
    this.#complainedAtMs = nowMs;
    // A message may have the collector's address, and what it answered.
    log.warn({ code: codeOf(error), spans: spans.length }, 'the collector took no traces');
  }
}

/** The system's code, or the HTTP status. */
function codeOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | undefined)?.code;
  return code === undefined ? undefined : String(code);
}
