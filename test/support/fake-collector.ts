/** Receives OTLP over HTTP; keeps every span, or answers as the test sets. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { gunzipSync } from 'node:zlib';
import { type LoopbackSource, openSource } from '@matting/http/test/loopback-source.ts';

type AttributeValue = string | number | boolean;

export interface CollectedSpan {
  readonly service: string;
  readonly instance: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string;
  readonly name: string;
  readonly kind: number;
  readonly startMs: number;
  readonly endMs: number;
  readonly attributes: Readonly<Record<string, AttributeValue>>;
  readonly isError: boolean;
}

export type Behaviour = (request: IncomingMessage, response: ServerResponse) => void;

const taking: Behaviour = (_request, response) => {
  response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
};

export class FakeCollector {
  readonly spans: CollectedSpan[] = [];
  readonly bodies: string[] = [];
  readonly headers: IncomingMessage['headers'][] = [];
  behaviour: Behaviour = taking;
  #source!: LoopbackSource;

  static async open(): Promise<FakeCollector> {
    const collector = new FakeCollector();
    collector.#source = await openSource((request, response) => {
      void collector.#take(request, response);
    });
    return collector;
  }

  get endpoint(): string {
    return this.#source.url;
  }

  behaveWell(): void {
    this.behaviour = taking;
  }

  ofTrace(traceId: string): CollectedSpan[] {
    return this.spans.filter(span => span.traceId === traceId);
  }

  async close(): Promise<void> {
    await this.#source[Symbol.asyncDispose]();
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const bytes = await buffer(request);
    const isPacked = request.headers['content-encoding'] === 'gzip';
    const body = (isPacked ? gunzipSync(bytes) : bytes).toString();
    this.headers.push(request.headers);
    this.bodies.push(body);
    if (this.behaviour === taking) this.spans.push(...spansOf(body));
    this.behaviour(request, response);
  }
}

interface WireAttribute {
  readonly key: string;
  readonly value: {
    readonly stringValue?: string;
    readonly intValue?: number | string;
    readonly doubleValue?: number;
    readonly boolValue?: boolean;
  };
}

function attributesOf(list: readonly WireAttribute[] = []): Record<string, AttributeValue> {
  return Object.fromEntries(
    list.map(({ key, value }) => {
      const { stringValue, intValue, doubleValue, boolValue } = value;
      const number = intValue === undefined ? doubleValue : Number(intValue);
      return [key, stringValue ?? number ?? boolValue ?? ''];
    }),
  );
}

function spansOf(body: string): CollectedSpan[] {
  const { resourceSpans = [] } = JSON.parse(body);
  // biome-ignore lint/suspicious/noExplicitAny: the wire's form, as OTLP has it
  return resourceSpans.flatMap(({ resource, scopeSpans }: any) => {
    const about = attributesOf(resource.attributes);
    // biome-ignore lint/suspicious/noExplicitAny: the same
    return scopeSpans.flatMap(({ spans }: any) => spans.map((span: any) => spanOf(about, span)));
  });
}

// biome-ignore lint/suspicious/noExplicitAny: the same
function spanOf(about: Record<string, AttributeValue>, span: any): CollectedSpan {
  return {
    service: String(about['service.name']),
    instance: String(about['service.instance.id']),
    traceId: span.traceId,
    spanId: span.spanId,
    parentSpanId: span.parentSpanId ?? '',
    name: span.name,
    kind: span.kind,
    startMs: Number(BigInt(span.startTimeUnixNano) / 1000n) / 1000,
    endMs: Number(BigInt(span.endTimeUnixNano) / 1000n) / 1000,
    attributes: attributesOf(span.attributes),
    isError: span.status?.code === 2,
  };
}
