/**
 * What a trace is made of, in words of the house: nothing here loads OpenTelemetry. Names and
 * attributes are closed sets, so that no URL, key or name of a picture can get into one.
 */
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

export type SpanKind = 'internal' | 'server' | 'client' | 'producer' | 'consumer';

/** The keys of OpenTelemetry's semantic conventions where they have one, `matting.` otherwise. */
export interface SpanAttributes {
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
}

/** W3C Trace Context as it travels, in HTTP headers or gRPC metadata. */
export interface TraceCarrier {
  readonly traceparent: string;
  readonly tracestate?: string | undefined;
}

/** Fields of log lines: OpenTelemetry's names for logs that go elsewhere than to it. */
export interface TraceFields {
  readonly trace_id: string;
  readonly span_id: string;
  /** 01: sampled. */
  readonly trace_flags: string;
}

export interface SpanBegin {
  readonly name: SpanName;
  /** internal where absent. */
  readonly kind?: SpanKind | undefined;
  readonly attributes?: SpanAttributes | undefined;
  /** UTC milliseconds; now where absent. */
  readonly startMs?: number | undefined;
}

/** Each is to be ended once. */
export interface Span {
  /** False: its trace is not sampled. It travels on, and has no children worth making. */
  readonly recording: boolean;
  readonly fields: TraceFields;
  child(begin: SpanBegin): Span;
  set(attributes: SpanAttributes): void;
  /** It failed. `type` is a code of the catalogue or a word, never a message. */
  fail(type: string): void;
  /** @param endMs UTC milliseconds; now where absent */
  end(endMs?: number): void;
  /** For the next process. */
  carrier(): TraceCarrier;
}

/** Where the spans of this process begin. */
export interface Tracing {
  /**
   * A span under one of another process, or of an earlier time.
   * @param parent undefined, or none that W3C Trace Context knows: a trace of its own
   */
  start(begin: SpanBegin, parent?: TraceCarrier | undefined): Span;
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
