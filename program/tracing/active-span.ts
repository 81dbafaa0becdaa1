/**
 * Spans: their names and attributes, closed sets, so that no URL, key or name of a picture can get
 * into one; and the span that this code runs under, kept over awaits by Node. Without a span, which
 * is always so where no endpoint is set, everything here does the work and nothing else:
 * OpenTelemetry's own API would do the same, for 51 modules more at every start.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { StageName } from '@matting/proto/contract/stages.ts';
import type { Span, SpanKind, SpanStatusCode } from '@opentelemetry/api';
import type { Logger } from 'pino';

export type HttpSpanName =
  `${'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'HTTP'} ${string}`;

type SpanName =
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
  readonly 'matting.model.input'?: string | undefined;
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

export interface Tracing {
  /**
   * @param parent of this process, of another or of an earlier time; undefined, or none that W3C
   *   Trace Context knows: a trace of its own
   */
  start(begin: SpanBegin, parent?: Span | TraceCarrier): StartedSpan;
  /** The carrier for the next process. */
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

export interface SpanObserver {
  spansEnded(fate: SpanFate, count: number): void;
}

export interface TracedProgram {
  /** The service.name, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES says another. */
  readonly name: string;
  readonly version: string;
  /** Which of several: service.instance.id. */
  readonly instanceId: string;
  readonly log: Pick<Logger, 'info' | 'warn'>;
  readonly observer: SpanObserver;
}

const SAMPLED = 1;
const ERROR: SpanStatusCode.ERROR = 2;
/** 55 characters of traceparent, a blank, and what W3C Trace Context lets tracestate have. */
const KEPT_CONTEXT_LENGTH_MAX = 568;

const active = new AsyncLocalStorage<StartedSpan | undefined>();

/** Runs `work` under the span; where there is none, under what it runs under already. */
export function underSpan<T>(span: StartedSpan | undefined, work: () => T): T {
  return span === undefined ? work() : active.run(span, work);
}

/** Runs work that outlives the request in which it begins, as timers and loops do. */
export function underNoSpan<T>(work: () => T): T {
  return active.getStore() === undefined ? work() : active.run(undefined, work);
}

/** `work` as a span under the one it runs under; where there is none, or none sampled, just so. */
export function traced<T>(begin: SpanBegin, work: () => Promise<T>): Promise<T> {
  const parent = sampledSpan();
  return parent === undefined ? work() : asSpan(parent.tracing.start(begin, parent.span), work);
}

export function asSpan<T>(span: StartedSpan | undefined, work: () => Promise<T>): Promise<T> {
  return span === undefined ? work() : active.run(span, () => endedWith(span, work));
}

async function endedWith<T>({ span }: StartedSpan, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    failSpan(errorTypeOf(error));
    throw error;
  } finally {
    span.end();
  }
}

/** A part of the active span that was timed elsewhere. @param endMs UTC milliseconds */
export function recordSpan(begin: SpanBegin & { readonly startTime: number }, endMs: number): void {
  const parent = sampledSpan();
  parent?.tracing.start(begin, parent.span).span.end(endMs);
}

export function describeSpan(attributes: SpanAttributes): void {
  active.getStore()?.span.setAttributes(attributes);
}

/** The active span failed. @param type a code of the catalogue or a word, never a message */
export function failSpan(type: string): void {
  describeSpan({ 'error.type': type });
  active.getStore()?.span.setStatus({ code: ERROR });
}

/** The carrier of the active span, which goes out with a call. Undefined: there is none. */
export function activeCarrier(): TraceCarrier | undefined {
  const started = active.getStore();
  return started?.tracing.carrierOf(started.span);
}

/** The active span's fields of each log line, by OpenTelemetry's names for logs. */
export function traceFields() {
  const context = active.getStore()?.span.spanContext();
  return (
    context && {
      trace_id: context.traceId,
      span_id: context.spanId,
      /** 01: sampled. */
      trace_flags: context.traceFlags.toString(16).padStart(2, '0'),
    }
  );
}

/** A stored flag, since a span that has ended no longer says that it is recording. */
function sampledSpan(): StartedSpan | undefined {
  const started = active.getStore();
  if (started === undefined) return undefined;
  return started.span.spanContext().traceFlags & SAMPLED ? started : undefined;
}

/** Words that name what went wrong; a message may hold anything. */
export function errorTypeOf(error: unknown): string {
  if (error instanceof ContractError) return error.code;
  return error instanceof Error ? error.name : 'unknown';
}

/**
 * The carrier that came with a call. Undefined: there is no traceparent, or more than one. The
 * tracer judges its content.
 */
export function receivedCarrier(
  traceparents: readonly string[],
  states: readonly string[],
): TraceCarrier | undefined {
  const [traceparent, ...more] = traceparents;
  if (traceparent === undefined || more.length > 0) return undefined;
  return states.length === 0 ? { traceparent } : { traceparent, tracestate: states.join(',') };
}

export function keptContext({ traceparent, tracestate }: TraceCarrier): string {
  const whole = tracestate ? `${traceparent} ${tracestate}` : traceparent;
  // The vendors' part may be left out; the trace itself may not.
  return whole.length > KEPT_CONTEXT_LENGTH_MAX ? traceparent : whole;
}

/** The kept context of the active span. undefined: there is none. */
export function activeKeptContext(): string | undefined {
  const carrier = activeCarrier();
  return carrier && keptContext(carrier);
}

/** @param kept by keptContext; null: nothing was */
export function carrierOf(kept: string | null): TraceCarrier | undefined {
  if (kept === null) return undefined;
  const blank = kept.indexOf(' ');
  if (blank === -1) return { traceparent: kept };
  return { traceparent: kept.slice(0, blank), tracestate: kept.slice(blank + 1) };
}
