/**
 * Traces by OpenTelemetry's SDK: sampled as asked for, gathered in a bounded queue, sent as OTLP over
 * HTTP. Loaded by open-tracing.ts alone. Nothing is registered globally: several may live in one
 * process, and no other package finds a tracer.
 */
import { readFile } from 'node:fs/promises';
import { ROOT_CONTEXT } from '@opentelemetry/api';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  type Sampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import {
  ATTR_SERVICE_INSTANCE_ID,
  ATTR_SERVICE_NAME,
  ATTR_SERVICE_VERSION,
} from '@opentelemetry/semantic-conventions';
import { settledWithin } from '../../settled-within.ts';
import type { Span, SpanBegin, TraceCarrier, Tracing } from '../span.ts';
import type { TracedProgram } from '../traced-program.ts';
import type { SamplerName, TracingSettings } from '../tracing-settings.ts';
import { CountedExport } from './counted-export.ts';
import { CARRIER_GETTER, type OtelParts, OtelSpan } from './otel-span.ts';

/** A drain waits so long for a collector that hangs. */
export const FLUSH_MAX_MS = 1500;

/** A certificate or key for the collector cannot be read. */
export class TracingFileError extends Error {
  constructor(variable: string, cause: unknown) {
    const code = (cause as { code?: unknown }).code ?? 'unknown';
    super(`${variable} cannot be read (${code})`, { cause });
    this.name = 'TracingFileError';
  }
}

export class OtelTracing implements Tracing {
  readonly #provider: TracerProvider;
  readonly #exporter: OTLPTraceExporter;
  readonly #parts: OtelParts;

  private constructor(provider: TracerProvider, exporter: OTLPTraceExporter, version: string) {
    this.#provider = provider;
    this.#exporter = exporter;
    const tracer = provider.getTracer('matting-service', version);
    this.#parts = { tracer, propagator: new W3CTraceContextPropagator() };
  }

  static async open(settings: TracingSettings, program: TracedProgram): Promise<OtelTracing> {
    const { observer, log, name, version, instanceId } = program;
    const { queueSpansMax } = settings;
    const counted = new CountedExport({ observer, log, queueSpansMax });
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
    return new OtelTracing(provider, exporter, version);
  }

  start(begin: SpanBegin, parent?: TraceCarrier): Span {
    const context =
      parent === undefined
        ? ROOT_CONTEXT
        : this.#parts.propagator.extract(ROOT_CONTEXT, parent, CARRIER_GETTER);
    return OtelSpan.start(this.#parts, begin, context);
  }

  async close(): Promise<void> {
    // Rejects where the collector takes nothing: that was counted, and said, as it happened.
    const sent = this.#provider.shutdown().catch(() => undefined);
    // It ends with the first batch that is refused; the others are still on their way.
    await settledWithin(
      sent.then(() => this.#exporter.forceFlush()),
      FLUSH_MAX_MS,
    );
  }
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
  switch (name) {
    case 'always_on':
      return new AlwaysOnSampler();
    case 'always_off':
      return new AlwaysOffSampler();
    case 'traceidratio':
      return new TraceIdRatioBasedSampler(ratio);
    case 'parentbased_always_on':
      return new ParentBasedSampler({ root: new AlwaysOnSampler() });
    case 'parentbased_always_off':
      return new ParentBasedSampler({ root: new AlwaysOffSampler() });
    case 'parentbased_traceidratio':
      return new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(ratio) });
  }
}
