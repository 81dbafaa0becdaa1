/**
 * What is kept of each request: the end of its answer, its log line, its span.
 *
 * The end is noted also where the caller left before it: Fastify's onResponse misses those.
 */

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { ErrorCode } from '#contract/errors.ts';
import {
  describeSpan,
  failSpan,
  receivedCarrier,
  underSpan,
} from '#program/tracing/active-span.ts';
import type { HttpSpanName, StartedSpan, Tracing } from '#program/tracing/span.ts';
import { answeredCodeOf, answeredJobOf } from './error-handler.ts';
import { headerValues } from './request-headers.ts';

/** What others log, too, for a caller who left before the answer's head was sent. */
const LEFT_BEFORE = 499;

/** Of one answer: some ten, of Node, the body's readers and what waits with it. More would be a leak. */
const LISTENERS_MAX = 20;

interface AnswerEnd {
  /** 499 where the caller left before anything was sent. */
  readonly status: number;
  /** True where the caller left before the end; else absent, so that a line has it only then. */
  readonly left?: true;
}

type Note = (request: FastifyRequest, reply: FastifyReply, end: AnswerEnd) => void;

/** Calls `note` once for each request that a route or the not-found handler took. */
export function onAnswerEnd(app: FastifyInstance, note: Note): void {
  const noted = new WeakSet<FastifyRequest>();
  const noteOnce = (request: FastifyRequest, reply: FastifyReply) => {
    if (noted.has(request)) return;
    noted.add(request);
    const left = !reply.raw.writableFinished;
    const status = left && !reply.raw.headersSent ? LEFT_BEFORE : reply.statusCode;
    note(request, reply, { status, ...(left && { left }) });
  };
  app.addHook('onRequest', (request, reply, done) => {
    reply.raw.setMaxListeners(LISTENERS_MAX);
    // Before what else listens: a request's span ends then.
    reply.raw.prependOnceListener('close', () => noteOnce(request, reply));
    done();
  });
  app.addHook('onResponse', (request, reply, done) => {
    noteOnce(request, reply);
    done();
  });
}

/*
 * The one log line of each request, and what the metrics count of it, also where the caller left
 * before the end of its answer. The line has the request's id, its account and its job; the job's
 * own lines name the node. It never has a URL, since a result's link is a secret.
 */

/** One answer, for metrics. */
export interface Answered {
  /** The route's pattern, never the URL; undefined where no route took the request. */
  readonly route: string | undefined;
  /** Undefined where the bytes were no request. */
  readonly method: string | undefined;
  readonly status: number;
  readonly code: ErrorCode | undefined;
  /** From the request to the end of its answer; undefined where the bytes were no request. */
  readonly seconds: number | undefined;
}

const jobs = new WeakMap<FastifyRequest, string>();
/** Whose result a link leads to; its reader shows no key. */
const owners = new WeakMap<FastifyRequest, string>();

/** Called by routes that answer with a job; errors carry their job themselves. */
export function noteJob(request: FastifyRequest, jobId: string): void {
  jobs.set(request, jobId);
}

/** Called by the route of result links. */
export function noteResult(
  request: FastifyRequest,
  { jobId, accountId }: { readonly jobId: string; readonly accountId: string },
): void {
  noteJob(request, jobId);
  owners.set(request, accountId);
}

interface AnswerLogOptions {
  /** Whose request it is; undefined: a stranger's. */
  readonly accountOf: (request: FastifyRequest) => string | undefined;
  readonly onAnswered: ((answered: Answered) => void) | undefined;
}

export function addAnswerLog(
  app: FastifyInstance,
  { accountOf, onAnswered }: AnswerLogOptions,
): void {
  onAnswerEnd(app, (request, reply, { status, ...gone }) => {
    const answered: Answered = {
      route: request.is404 ? undefined : request.routeOptions.url,
      method: request.method,
      status,
      code: answeredCodeOf(request),
      seconds: reply.elapsedTime / 1000,
    };
    const accountId = accountOf(request) ?? owners.get(request);
    const jobId = jobs.get(request) ?? answeredJobOf(request);
    // The connection, not the request, brings the end of an answer.
    underSpan(spanOf(request), () => {
      describeSpan({ 'matting.account.id': accountId, 'matting.job.id': jobId });
      request.log.info({ ...answered, accountId, jobId, ...gone }, 'answered');
    });
    onAnswered?.(answered);
  });
}

/*
 * The span of a request, from its headers to the end of its connection's part in it: under its
 * caller's, where the caller sent one. Probes, parts of pages and paths that no route takes have
 * none.
 */

const PROBES: ReadonlySet<string> = new Set(['/livez', '/readyz']);
const ASSETS = '/assets/';
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'] as const;
/** What semantic conventions call a method that is none of the known ones. */
const OTHER_METHOD = '_OTHER';
/** The caller hung up before the answer was out. */
const CALLER_GONE = 'caller_gone';

const spans = new WeakMap<FastifyRequest, StartedSpan>();

/** Undefined: the request is not traced. */
function spanOf(request: FastifyRequest): StartedSpan | undefined {
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
