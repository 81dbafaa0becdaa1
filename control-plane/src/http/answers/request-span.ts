/**
 * The span of a request, from its headers to the end of its connection's part in it: under its
 * caller's, where the caller sent one. Probes and parts of
 * pages have none, nor have paths that no route takes.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { underSpan } from '#program/tracing/active-span.ts';
import type { HttpSpanName, Span, TraceCarrier, Tracing } from '#program/tracing/span.ts';
import { headerValues } from '../headers/raw-headers.ts';
import { answeredCodeOf } from './error-handler.ts';

const PROBES: ReadonlySet<string> = new Set(['/livez', '/readyz']);
const ASSETS = '/assets/';
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'] as const;
/** What semantic conventions call a method that is none of the known ones. */
const OTHER_METHOD = '_OTHER';
/** The caller hung up before the answer was out. */
const CALLER_GONE = 'caller_gone';

const spans = new WeakMap<FastifyRequest, Span>();

/** Undefined: the request is not traced. */
export function spanOf(request: FastifyRequest): Span | undefined {
  return spans.get(request);
}

/** Hooks that are added after it, and the routes, run under the span. */
export function addRequestSpans(app: FastifyInstance, tracing: Tracing): void {
  app.addHook('onRequest', (request, reply, done) => {
    const route = request.is404 ? undefined : request.routeOptions.url;
    if (route === undefined || PROBES.has(route) || route.includes(ASSETS)) {
      done();
      return;
    }
    const span = begin(tracing, request, route);
    spans.set(request, span);
    reply.raw.once('close', () => end(span, request, reply));
    underSpan(span, done);
  });
}

function begin(tracing: Tracing, request: FastifyRequest, route: string): Span {
  const method = METHODS.find(known => known === request.method);
  const name: HttpSpanName = `${method ?? 'HTTP'} ${route}`;
  const attributes = { 'http.request.method': method ?? OTHER_METHOD, 'http.route': route };
  return tracing.start({ name, kind: 'server', attributes }, carrierOf(request));
}

/** Undefined where there is none, or more than one. What it says is judged by the tracer. */
function carrierOf(request: FastifyRequest): TraceCarrier | undefined {
  const [traceparent, ...more] = headerValues(request.raw, 'traceparent');
  if (traceparent === undefined || more.length > 0) return undefined;
  const states = headerValues(request.raw, 'tracestate');
  return { traceparent, tracestate: states.length === 0 ? undefined : states.join(',') };
}

function end(span: Span, request: FastifyRequest, { statusCode, raw }: FastifyReply): void {
  const code = answeredCodeOf(request);
  span.set({ 'http.response.status_code': statusCode });
  if (code !== undefined) span.set({ 'error.type': code });
  // A refusal is no fault of the service: the conventions leave the span's status open.
  if (statusCode >= 500) span.fail(code ?? String(statusCode));
  else if (!raw.writableFinished) span.fail(CALLER_GONE);
  span.end();
}
