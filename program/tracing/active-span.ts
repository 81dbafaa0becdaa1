/**
 * Names and attributes of spans are closed sets, so that no URL, key or picture's name can get into
 * one. The active span is kept over awaits. Without an endpoint all this only runs the work;
 * OpenTelemetry's API would load 51 modules for that.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { StageName } from '@matting/proto/contract/stages.ts';
import type { Span, SpanKind, SpanStatusCode } from '@opentelemetry/api';
import type { Logger } from 'pino';

export type HttpSpanName =
  `${'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'HTTP'} ${string}`;

type SpanName =
  /** Method and route pattern. */
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
  /** One model's answer, with its wait for an engine. */
  | 'engine'
  | StageName;

/** Names of OpenTelemetry's semantic conventions, otherwise `matting.` names. */
export type SpanAttributes = {
  readonly 'http.request.method'?: string | undefined;
  /** The route's pattern, never the path. */
  readonly 'http.route'?: string | undefined;
  readonly 'http.response.status_code'?: number | undefined;
  readonly 'rpc.system.name'?: 'grpc' | undefined;
  readonly 'rpc.method'?: 'matting.v1.MatteService/Matte' | undefined;
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
  /** The file went directly between node and storage. */
  readonly 'matting.direct'?: boolean | undefined;
  readonly 'matting.notification.attempt'?: number | undefined;
};

/** W3C Trace Context, in HTTP headers or gRPC metadata. */
export interface TraceCarrier {
  readonly traceparent: string;
  readonly tracestate?: string | undefined;
}

export interface SpanBegin {
  readonly name: SpanName;
  /** Default: INTERNAL. */
  readonly kind?: keyof typeof SpanKind;
  readonly attributes?: SpanAttributes;
  /** UTC milliseconds. Default: now. */
  readonly startTime?: number;
}

/** Has the tracer of its children: a process may have several. */
export interface StartedSpan {
  readonly span: Span;
  readonly tracing: Tracing;
}

export interface Tracing {
  /** @param parent undefined or invalid: a new trace */
  start(begin: SpanBegin, parent?: Span | TraceCarrier): StartedSpan;
  carrierOf(span: Span): TraceCarrier;
  /** Sends the remaining spans within a bound. Never rejects. */
  close(): Promise<void>;
}

/** failed: the collector did not take them. dropped: the queue was full. */
export const SPAN_FATES = ['exported', 'failed', 'dropped'] as const;
export type SpanFate = (typeof SPAN_FATES)[number];

export interface SpanObserver {
  spansEnded(fate: SpanFate, count: number): void;
}

export interface TracedProgram {
  readonly name: string;
  readonly version: string;
  /** service.instance.id. */
  readonly instanceId: string;
  readonly log: Pick<Logger, 'info' | 'warn'>;
  readonly observer: SpanObserver;
}

const SAMPLED = 1;
const ERROR: SpanStatusCode.ERROR = 2;
/** 55 characters of traceparent, a blank, and the longest tracestate of W3C Trace Context. */
const KEPT_CONTEXT_LENGTH_MAX = 568;

const active = new AsyncLocalStorage<StartedSpan | undefined>();

/** Without a span, `work` runs under the current one. */
export function underSpan<T>(span: StartedSpan | undefined, work: () => T): T {
  return span === undefined ? work() : active.run(span, work);
}

/** Timers and loops use it: they outlive the request that starts them. */
export function underNoSpan<T>(work: () => T): T {
  return active.getStore() === undefined ? work() : active.run(undefined, work);
}

/** Runs `work` in a child of the active span, if that is sampled. */
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

/**
 * Records a child span that was timed elsewhere.
 * @param endMs UTC milliseconds
 */
export function recordSpan(begin: SpanBegin & { readonly startTime: number }, endMs: number): void {
  const parent = sampledSpan();
  parent?.tracing.start(begin, parent.span).span.end(endMs);
}

export function describeSpan(attributes: SpanAttributes): void {
  active.getStore()?.span.setAttributes(attributes);
}

/** @param type an error code or a word, never a message */
export function failSpan(type: string): void {
  describeSpan({ 'error.type': type });
  active.getStore()?.span.setStatus({ code: ERROR });
}

/** @returns what outgoing calls carry; undefined: there is no span */
export function activeCarrier(): TraceCarrier | undefined {
  const started = active.getStore();
  return started?.tracing.carrierOf(started.span);
}

/** Uses OpenTelemetry's names for logs. */
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

/** Reads the flag, because an ended span no longer says that it is recording. */
function sampledSpan(): StartedSpan | undefined {
  const started = active.getStore();
  if (started === undefined) return undefined;
  return started.span.spanContext().traceFlags & SAMPLED ? started : undefined;
}

/** Never returns the message, which may contain anything. */
export function errorTypeOf(error: unknown): string {
  if (error instanceof ContractError) return error.code;
  return error instanceof Error ? error.name : 'unknown';
}

/**
 * @returns undefined: the request has not exactly one traceparent. The tracer checks its content
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
  // tracestate is optional, traceparent is not.
  return whole.length > KEPT_CONTEXT_LENGTH_MAX ? traceparent : whole;
}

export function activeKeptContext(): string | undefined {
  const carrier = activeCarrier();
  return carrier && keptContext(carrier);
}

/** @param kept from keptContext */
export function carrierOf(kept: string | null): TraceCarrier | undefined {
  if (kept === null) return undefined;
  const blank = kept.indexOf(' ');
  if (blank === -1) return { traceparent: kept };
  return { traceparent: kept.slice(0, blank), tracestate: kept.slice(blank + 1) };
}
