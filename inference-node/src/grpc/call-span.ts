/** The span of a Matte call in the node: under its caller's, where that sent one. */
import type { Metadata } from '@grpc/grpc-js';
import type { Span, SpanBegin, TraceCarrier, Tracing } from '#program/tracing/span.ts';

const BEGIN: SpanBegin = {
  name: 'matting.v1.MatteService/Matte',
  kind: 'server',
  attributes: { 'rpc.system.name': 'grpc', 'rpc.method': 'matting.v1.MatteService/Matte' },
};

/** To be ended by its owner; undefined: nothing is traced here. */
export function beginCallSpan(tracing: Tracing | undefined, metadata: Metadata): Span | undefined {
  return tracing?.start(BEGIN, carrierOf(metadata));
}

/** Undefined where there is none, or more than one. What it says is judged by the tracer. */
function carrierOf(metadata: Metadata): TraceCarrier | undefined {
  const [traceparent, ...more] = metadata.get('traceparent');
  if (typeof traceparent !== 'string' || more.length > 0) return undefined;
  const states = metadata.get('tracestate').filter(state => typeof state === 'string');
  return { traceparent, tracestate: states.length === 0 ? undefined : states.join(',') };
}
