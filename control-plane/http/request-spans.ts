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
/** The semantic conventions' name for an unknown method. */
const OTHER_METHOD = '_OTHER';
const CALLER_GONE = 'caller_gone';

const spans = new WeakMap<FastifyRequest, StartedSpan>();

export function spanOf(request: FastifyRequest): StartedSpan | undefined {
  return spans.get(request);
}

/** Probes, assets and unknown paths have no span. Later hooks and the routes run under it. */
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
  // A refusal is not a failure of the service: the conventions leave its status unset.
  if (statusCode >= 500) failSpan(code ?? String(statusCode));
  else if (!raw.writableFinished) failSpan(CALLER_GONE);
}
