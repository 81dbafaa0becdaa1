/** The context of a trace as text of one line, for a row that outlives the process. */
import { activeCarrier } from './active-span.ts';
import type { TraceCarrier } from './span.ts';

/** 55 characters of traceparent, a blank, and what W3C Trace Context lets tracestate have. */
export const KEPT_CONTEXT_LENGTH_MAX = 568;

export function keptContext({ traceparent, tracestate }: TraceCarrier): string {
  const whole = tracestate ? `${traceparent} ${tracestate}` : traceparent;
  // The vendors' part may be left out; the trace itself may not.
  return whole.length > KEPT_CONTEXT_LENGTH_MAX ? traceparent : whole;
}

/** Of the active span; undefined: there is none. */
export function activeKeptContext(): string | undefined {
  const carrier = activeCarrier();
  return carrier && keptContext(carrier);
}

export function carrierOf(kept: string): TraceCarrier {
  const blank = kept.indexOf(' ');
  if (blank === -1) return { traceparent: kept };
  return { traceparent: kept.slice(0, blank), tracestate: kept.slice(blank + 1) };
}
