/** A span of OpenTelemetry in the house's words. */
import {
  type Span as ApiSpan,
  SpanKind as ApiSpanKind,
  type Context,
  SpanStatusCode,
  type TextMapGetter,
  type TextMapPropagator,
  TraceFlags,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import type {
  Span,
  SpanAttributes,
  SpanBegin,
  SpanKind,
  TraceCarrier,
  TraceFields,
} from '../span.ts';

export interface OtelParts {
  readonly tracer: Tracer;
  readonly propagator: TextMapPropagator;
}

const KINDS: Readonly<Record<SpanKind, ApiSpanKind>> = {
  internal: ApiSpanKind.INTERNAL,
  server: ApiSpanKind.SERVER,
  client: ApiSpanKind.CLIENT,
  producer: ApiSpanKind.PRODUCER,
  consumer: ApiSpanKind.CONSUMER,
};

export const CARRIER_GETTER: TextMapGetter<TraceCarrier> = {
  keys: carrier => Object.keys(carrier),
  get: (carrier, key) => (key === 'traceparent' || key === 'tracestate' ? carrier[key] : undefined),
};

const CARRIER_SETTER = {
  set: (carrier: Record<string, string>, key: string, value: string) => {
    if (value !== '') carrier[key] = value;
  },
};

export class OtelSpan implements Span {
  readonly fields: TraceFields;
  readonly #parts: OtelParts;
  readonly #span: ApiSpan;
  readonly #context: Context;
  readonly #recording: boolean;

  private constructor(parts: OtelParts, span: ApiSpan, context: Context) {
    this.#parts = parts;
    this.#span = span;
    this.#context = context;
    const { traceId, spanId, traceFlags } = span.spanContext();
    this.#recording = (traceFlags & TraceFlags.SAMPLED) !== 0;
    const flags = traceFlags.toString(16).padStart(2, '0');
    this.fields = { trace_id: traceId, span_id: spanId, trace_flags: flags };
  }

  static start(parts: OtelParts, begin: SpanBegin, parent: Context): OtelSpan {
    const { name, kind = 'internal', attributes = {}, startMs } = begin;
    const options = { kind: KINDS[kind], attributes: { ...attributes } };
    const span = parts.tracer.startSpan(
      name,
      startMs === undefined ? options : { ...options, startTime: startMs },
      parent,
    );
    return new OtelSpan(parts, span, trace.setSpan(parent, span));
  }

  get recording(): boolean {
    return this.#recording;
  }

  child(begin: SpanBegin): Span {
    return OtelSpan.start(this.#parts, begin, this.#context);
  }

  set(attributes: SpanAttributes): void {
    this.#span.setAttributes({ ...attributes });
  }

  fail(type: string): void {
    this.#span.setAttribute('error.type', type);
    this.#span.setStatus({ code: SpanStatusCode.ERROR });
  }

  end(endMs?: number): void {
    this.#span.end(endMs);
  }

  carrier(): TraceCarrier {
    const carrier: Record<string, string> = {};
    this.#parts.propagator.inject(this.#context, carrier, CARRIER_SETTER);
    const { traceparent = '', tracestate } = carrier;
    return { traceparent, tracestate };
  }
}
