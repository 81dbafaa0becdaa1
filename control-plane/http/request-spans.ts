/** The span that tracing keeps of each request. */
import {
  describeSpan,
  failSpan,
  type HttpSpanName,
  receivedCarrier,
  type StartedSpan,
  type Tracing,
  underSpan,
} from '@matting/program/tracing/active-span.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { answeredCodeOf } from './error-handler.ts';
import { headerValues } from './request-headers.ts';
import { isProbe } from './request-path.ts';

const ASSETS = '/assets/';
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'] as const;
/** The semantic conventions have this name for an unknown method. */
const OTHER_METHOD = '_OTHER';
/** The caller hung up before the answer was out. */
const CALLER_GONE = 'caller_gone';

const spans = new WeakMap<FastifyRequest, StartedSpan>();

/** Undefined: the request has none. */
export function spanOf(request: FastifyRequest): StartedSpan | undefined {
  return spans.get(request);
}

/**
 * A span from a request's headers to the end of its answer, under its caller's where one was sent.
 * Probes, parts of pages and paths that no route takes have none. Hooks that are added after it,
 * and the routes, run under the span.
 */
export function addRequestSpans(app: FastifyInstance, tracing: Tracing): void {
  app.addHook('onRequest', (request, reply, done) => {
    const route = request.is404 ? undefined : request.routeOptions.url;
    if (route === undefined || isProbe(request) || route.includes(ASSETS)) {
      done();
      return;
    }
    const span = beginSpan(tracing, request, route);
    spans.set(request, span);
    reply.raw.once('close', () => {
      underSpan(span, () => describeAnswer(request, reply));
      span.span.end();
    });
    underSpan(span, done);
  });
}

function beginSpan(tracing: Tracing, request: FastifyRequest, route: string): StartedSpan {
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
