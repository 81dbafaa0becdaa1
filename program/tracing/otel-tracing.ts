/**
 * OpenTelemetry's SDK with a bounded queue, OTLP over HTTP. Only open-tracing.ts loads it. Nothing
 * is registered globally, so a process may have several.
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
/** Longest wait of a drain for a hanging collector. */
const FLUSH_MAX_MS = 1500;

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
      // The exporter has counted and logged a refusal already.
      const sent = provider.shutdown().catch(() => undefined);
      // `shutdown` ends at the first refused batch, while others are still being sent.
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
    // Enough requests at once for a whole queue at the process's end, and for the running batch.
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
 * Counts the fates of spans, and logs refusals once a minute. The SDK's queue has no readable
 * count, so the same bound is applied before it.
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
    // A message may contain the collector's address and its answer.
    log.warn({ code: codeOf(error), spans: spans.length }, 'the collector took no traces');
  }
}

/** The system's code or the HTTP status. */
function codeOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | undefined)?.code;
  return code === undefined ? undefined : String(code);
}
