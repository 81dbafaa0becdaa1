/** The span of a Matte call in the node: under its caller's, where that sent one. */
import type { Metadata } from '@grpc/grpc-js';
import { receivedCarrier } from '#program/tracing/active-span.ts';
import type { SpanBegin, StartedSpan, Tracing } from '#program/tracing/span.ts';

const BEGIN: SpanBegin = {
  name: 'matting.v1.MatteService/Matte',
  kind: 'SERVER',
  attributes: { 'rpc.system.name': 'grpc', 'rpc.method': 'matting.v1.MatteService/Matte' },
};

/** To be ended by its owner; undefined: nothing is traced here. */
export function beginCallSpan(
  tracing: Tracing | undefined,
  metadata: Metadata,
): StartedSpan | undefined {
  const values = (key: string) => metadata.get(key).filter(value => typeof value === 'string');
  return tracing?.start(BEGIN, receivedCarrier(values('traceparent'), values('tracestate')));
}
