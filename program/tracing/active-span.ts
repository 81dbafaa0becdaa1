/**
 * The span that this code runs under, kept over awaits by Node. It is module-wide since it knows no
 * tracer: without a span, which is always so where no endpoint is set, everything here does the
 * work and nothing else.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { ContractError } from '#contract/errors.ts';
import type { Span, SpanAttributes, SpanBegin, TraceCarrier, TraceFields } from './span.ts';

const active = new AsyncLocalStorage<Span | undefined>();

export function activeSpan(): Span | undefined {
  return active.getStore();
}

/** Runs `work` under the span; where there is none, under what it runs under already. */
export function underSpan<T>(span: Span | undefined, work: () => T): T {
  return span === undefined ? work() : active.run(span, work);
}

/** For what outlives the request in which it begins, as timers and loops do. */
export function underNoSpan<T>(work: () => T): T {
  return active.getStore() === undefined ? work() : active.run(undefined, work);
}

/** `work` as a span under the one it runs under; where there is none, or none recorded, just so. */
export function traced<T>(
  begin: SpanBegin,
  work: (span: Span | undefined) => Promise<T>,
): Promise<T> {
  const parent = active.getStore();
  if (parent === undefined || !parent.recording) return work(undefined);
  return asSpan(parent.child(begin), work);
}

/** `work` as this span, which ends with it; without one, just so. */
export function asSpan<S extends Span | undefined, T>(
  span: S,
  work: (span: S) => Promise<T>,
): Promise<T> {
  return span === undefined ? work(span) : endedSpan(span, () => work(span));
}

async function endedSpan<T>(span: Span, work: () => Promise<T>): Promise<T> {
  try {
    return await active.run(span, work);
  } catch (error) {
    span.fail(errorTypeOf(error));
    throw error;
  } finally {
    span.end();
  }
}

/** A part of the active span that was timed elsewhere. @param startMs UTC milliseconds */
export function recordSpan(begin: SpanBegin & { readonly startMs: number }, endMs: number): void {
  const parent = active.getStore();
  if (parent?.recording) parent.child(begin).end(endMs);
}

export function describeSpan(attributes: SpanAttributes): void {
  active.getStore()?.set(attributes);
}

/** Of the active span: what goes out with a call. Undefined: nothing does. */
export function activeCarrier(): TraceCarrier | undefined {
  return active.getStore()?.carrier();
}

/** What each log line has of the active span. */
export function traceFields(): TraceFields | undefined {
  return active.getStore()?.fields;
}

/** Words that name what went wrong; a message may hold anything. */
export function errorTypeOf(error: unknown): string {
  if (error instanceof ContractError) return error.code;
  return error instanceof Error ? error.name : 'unknown';
}
