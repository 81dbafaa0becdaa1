/**
 * The span of a request, from its headers to the end of its connection's part in it: under its
 * caller's, where the caller sent one. Probes and parts of
 * pages have none, nor have paths that no route takes.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import {
  describeSpan,
  failSpan,
  receivedCarrier,
  underSpan,
} from '#program/tracing/active-span.ts';
import type { HttpSpanName, StartedSpan, Tracing } from '#program/tracing/span.ts';
import { headerValues } from '../headers/raw-headers.ts';
import { answeredCodeOf } from './error-handler.ts';

const PROBES: ReadonlySet<string> = new Set(['/livez', '/readyz']);
const ASSETS = '/assets/';
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'] as const;
/** What semantic conventions call a method that is none of the known ones. */
const OTHER_METHOD = '_OTHER';
/** The caller hung up before the answer was out. */
const CALLER_GONE = 'caller_gone';

const spans = new WeakMap<FastifyRequest, StartedSpan>();

/** Undefined: the request is not traced. */
export function spanOf(request: FastifyRequest): StartedSpan | undefined {
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
    reply.raw.once('close', () => {
      underSpan(span, () => describeAnswer(request, reply));
      span.span.end();
    });
    underSpan(span, done);
  });
}

function begin(tracing: Tracing, request: FastifyRequest, route: string): StartedSpan {
  const method = METHODS.find(known => known === request.method);
  const name: HttpSpanName = `${method ?? 'HTTP'} ${route}`;
  const attributes = { 'http.request.method': method ?? OTHER_METHOD, 'http.route': route };
  const parent = receivedCarrier(
    headerValues(request.raw, 'traceparent'),
    headerValues(request.raw, 'tracestate'),
  );
  return tracing.start({ name, kind: 'SERVER', attributes }, parent);
}

function describeAnswer(request: FastifyRequest, { statusCode, raw }: FastifyReply): void {
  const code = answeredCodeOf(request);
  describeSpan({ 'http.response.status_code': statusCode });
  if (code !== undefined) describeSpan({ 'error.type': code });
  // A refusal is no fault of the service: the conventions leave the span's status open.
  if (statusCode >= 500) failSpan(code ?? String(statusCode));
  else if (!raw.writableFinished) failSpan(CALLER_GONE);
}
