/**
 * Names and attributes of spans: closed sets, so that no URL, key or name of a picture can get into
 * one. Nothing here loads OpenTelemetry.
 */
import type { Span, SpanKind } from '@opentelemetry/api';
import type { Logger } from 'pino';
import type { StageName } from '#contract/stages.ts';

export type HttpSpanName =
  `${'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'HTTP'} ${string}`;

export type SpanName =
  /** Method and pattern of the route. */
  | HttpSpanName
  | 'submit'
  | 'queue'
  | 'run'
  | 'claim'
  | 'download'
  | 'attempt'
  | 'store'
  | 'notify'
  | 'matting.v1.MatteService/Matte'
  /** One model's answer, its wait for an engine among it. */
  | 'engine'
  | StageName;

/** The keys of OpenTelemetry's semantic conventions where they have one, `matting.` otherwise. */
export type SpanAttributes = {
  readonly 'http.request.method'?: string | undefined;
  /** The pattern, never the path. */
  readonly 'http.route'?: string | undefined;
  readonly 'http.response.status_code'?: number | undefined;
  readonly 'rpc.system.name'?: 'grpc' | undefined;
  readonly 'rpc.method'?: 'matting.v1.MatteService/Matte' | undefined;
  /** The name of the status. */
  readonly 'rpc.response.status_code'?: string | undefined;
  /** A code of the catalogue, or the word for what went wrong. */
  readonly 'error.type'?: string | undefined;
  readonly 'matting.job.id'?: string | undefined;
  readonly 'matting.account.id'?: string | undefined;
  readonly 'matting.job.mode'?: string | undefined;
  readonly 'matting.job.fence'?: number | undefined;
  readonly 'matting.job.taken_over'?: boolean | undefined;
  /** How a run, an attempt or a notification ended; created or joined for a submission. */
  readonly 'matting.outcome'?: string | undefined;
  readonly 'matting.node.id'?: string | undefined;
  readonly 'matting.input.bytes'?: number | undefined;
  readonly 'matting.input.format'?: string | undefined;
  readonly 'matting.output.format'?: string | undefined;
  readonly 'matting.output.bytes'?: number | undefined;
  readonly 'matting.plan'?: string | undefined;
  readonly 'matting.model'?: string | undefined;
  readonly 'matting.model.role'?: string | undefined;
  /** The file went straight between node and storage. */
  readonly 'matting.direct'?: boolean | undefined;
  /** Attempts to notify, this one among them. */
  readonly 'matting.notification.attempt'?: number | undefined;
};

/** W3C Trace Context as it travels, in HTTP headers or gRPC metadata. */
export interface TraceCarrier {
  readonly traceparent: string;
  readonly tracestate?: string | undefined;
}

export interface SpanBegin {
  readonly name: SpanName;
  /** INTERNAL where absent. */
  readonly kind?: keyof typeof SpanKind;
  readonly attributes?: SpanAttributes;
  /** UTC milliseconds; now where absent. */
  readonly startTime?: number;
}

/** A span, and where its children begin: several programs may live in one process. */
export interface StartedSpan {
  readonly span: Span;
  readonly tracing: Tracing;
}

/** Where the spans of this program begin. */
export interface Tracing {
  /**
   * @param parent of this process, of another or of an earlier time; undefined, or none that W3C
   *   Trace Context knows: a trace of its own
   */
  start(begin: SpanBegin, parent?: Span | TraceCarrier): StartedSpan;
  /** For the next process. */
  carrierOf(span: Span): TraceCarrier;
  /** Sends what is left, for as long as the bound allows. Never rejects. */
  close(): Promise<void>;
}

/**
 * exported: the collector took them. failed: it did not, and they are gone. dropped: the queue was
 * full.
 */
export const SPAN_FATES = ['exported', 'failed', 'dropped'] as const;
export type SpanFate = (typeof SPAN_FATES)[number];

/** Counts; the metrics implement it. */
export interface SpanObserver {
  spansEnded(fate: SpanFate, count: number): void;
}

export interface TracedProgram {
  /** As service.name, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES says another. */
  readonly name: string;
  readonly version: string;
  /** Which of several: service.instance.id. */
  readonly instanceId: string;
  readonly log: Pick<Logger, 'info' | 'warn'>;
  readonly observer: SpanObserver;
}
