/**
 * Answers: the headers that each has, what is thrown on the way of a request as an error of the
 * catalogue (RFC 9457), and what is kept of each request: its line in the log, its span.
 */

import {
  describeSpan,
  failSpan,
  type HttpSpanName,
  receivedCarrier,
  type StartedSpan,
  type Tracing,
  underSpan,
} from '@matting/program/tracing/active-span.ts';
import { ContractError, type ErrorCode, type ErrorSpec } from '@matting/proto/contract/errors.ts';
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { nearName } from './near-names.ts';
import { headerValues } from './request-headers.ts';

/** No CORS headers: keys do not belong in pages. */
export const ANSWER_HEADERS = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'cache-control': 'no-store',
} as const;

/** @param negotiated the path where Accept decides what is sent; refusals say so too */
export function setAnswerHeaders(
  request: FastifyRequest,
  reply: FastifyReply,
  negotiated?: string,
): void {
  reply.headers(ANSWER_HEADERS).header('x-request-id', request.id);
  if (pathOf(request) === negotiated) reply.header('vary', 'accept');
}

/** RFC 9112 section 3.2.2: a server takes a target in absolute form too, as the router does. */
const ORIGIN = /^https?:\/\/[^/?]*/i;

export function pathOf(request: FastifyRequest): string {
  const target = request.url.replace(ORIGIN, '');
  const query = target.indexOf('?');
  return query === -1 ? target : target.slice(0, query);
}

/**
 * Adds the checks that every request of a port meets before its route. Call it before you add a
 * route.
 * @param negotiated as of setAnswerHeaders
 */
export function checkRequests(app: FastifyInstance, negotiated?: string): void {
  const paths = new KnownPaths();
  app.addHook('onRoute', ({ url, method }) => paths.add(url, method));
  app.addHook('onRequest', (request, reply, done) => {
    setAnswerHeaders(request, reply, negotiated);
    requireHost(request);
    if (request.is404) refuseUnknownPath(request, reply, paths);
    done();
  });
  // No request reaches it, since the hook above refuses first: it replaces the framework's answer.
  app.setNotFoundHandler((request, reply) => refuseUnknownPath(request, reply, paths));
}

class KnownPaths {
  readonly #methods = new Map<
    string,
    { readonly matches: RegExp; readonly methods: Set<string> }
  >();

  /** @param url as the router takes it: `:name` stands for one segment. */
  add(url: string, method: string | readonly string[]): void {
    let known = this.#methods.get(url);
    if (known === undefined) {
      const matches = new RegExp(`^${url.replaceAll('.', '\\.').replaceAll(/:\w+/g, '[^/]+')}$`);
      known = { matches, methods: new Set() };
      this.#methods.set(url, known);
    }
    for (const one of [method].flat()) known.methods.add(one);
  }

  /** The methods for Allow. undefined: there is no such path. */
  methodsOf(path: string): readonly string[] | undefined {
    for (const { matches, methods } of this.#methods.values()) {
      if (matches.test(path)) return [...methods].sort();
    }
    return undefined;
  }

  /** The path that a wrong one probably means. Pages have no hint. */
  meantBy(path: string): string | undefined {
    const calls = [...this.#methods.keys()].filter(url => /^\/(?:v1|compat|mcp)[^:]*$/.test(url));
    // Its first part is what an address in a client's settings lacks.
    const near = calls.find(url => url.endsWith(path)) ?? nearName(path, calls);
    if (near !== undefined) return `Did you mean ${near}?`;
    return calls.includes(OPENAPI_PATH) ? `GET ${OPENAPI_PATH} lists the paths.` : undefined;
  }
}

export const OPENAPI_PATH = '/v1/openapi.json';

/** @throws ContractError INVALID_REQUEST: RFC 9112 section 3.2 asks for exactly one Host. */
function requireHost({ raw }: FastifyRequest): void {
  const is11 = raw.httpVersionMajor === 1 && raw.httpVersionMinor >= 1;
  const count = headerValues(raw, 'host').length;
  if (count > 1 || (is11 && count === 0)) {
    throw new ContractError('INVALID_REQUEST', 'Send exactly one Host header.');
  }
}

/** @throws ContractError NOT_FOUND, METHOD_NOT_ALLOWED (with Allow) */
function refuseUnknownPath(request: FastifyRequest, reply: FastifyReply, paths: KnownPaths): never {
  const path = pathOf(request);
  const methods = paths.methodsOf(path);
  if (methods === undefined) {
    const detail = ['There is nothing at this path.', paths.meantBy(path)].filter(Boolean);
    throw new ContractError('NOT_FOUND', detail.join(' '));
  }
  reply.header('allow', methods.join(', '));
  const detail = `This path does not take ${request.method}. Use ${methods.join(' or ')}.`;
  throw new ContractError('METHOD_NOT_ALLOWED', detail);
}

/* Errors. */

const refusals = new WeakMap<FastifyRequest, ContractError>();

/** The code a request was answered with; undefined where it was no error. */
export function answeredCodeOf(request: FastifyRequest): ErrorCode | undefined {
  return refusals.get(request)?.code;
}

export type ErrorHandler = (error: unknown, request: FastifyRequest, reply: FastifyReply) => void;
/** Sends an error in the manner of an interface. */
export type ErrorWriter = (
  error: ContractError,
  request: FastifyRequest,
  reply: FastifyReply,
) => void;

export interface ErrorHandlerOptions {
  /** The scopes whose codes this port answers with; others are its own failures. Public alone. */
  readonly shown?: readonly ErrorSpec['scope'][] | undefined;
  /** The writer of this request's errors. undefined or absent: they are problem+json. */
  readonly writerOf?: ((request: FastifyRequest) => ErrorWriter | undefined) | undefined;
}

export function createErrorHandler(
  baseUrl: string,
  { shown = ['public'], writerOf }: ErrorHandlerOptions = {},
): ErrorHandler {
  const writeProblem: ErrorWriter = (error, request, reply) => {
    const { id: requestId } = request;
    const problem = problemOf(error, { baseUrl, requestId, instance: instanceOf(request) });
    reply.code(problem.status).headers(problemHeaders(error)).type(PROBLEM_TYPE);
    // A buffer, since the framework adds a charset to the type of text.
    reply.send(Buffer.from(JSON.stringify(problem)));
  };
  return (error, request, reply) => {
    const known = noteRefusal(error, request, shown);
    const write = writerOf?.(request) ?? writeProblem;
    write(known, request, reply);
  };
}

/**
 * Turns an error into the refusal for an answer that holds errors within. The request's line and
 * counters note it like an error that ends the request, and the log has it if it is our failure.
 */
export function noteRefusal(
  error: unknown,
  request: FastifyRequest,
  shown: readonly ErrorSpec['scope'][] = ['public'],
): ContractError {
  const known = toContractError(error, shown);
  refusals.set(request, known);
  if (known.spec.http >= 500) logFailure(request, known);
  return known;
}

/** A prober asks every second or so: what it is told is logged where it changes, by who tells it. */
const PROBES: ReadonlySet<string> = new Set(['/livez', '/readyz']);

const isProbe = ({ routeOptions: { url } }: FastifyRequest) => url !== undefined && PROBES.has(url);

/** A refusal of ours, such as a full queue, has no cause; its stack would only fill the log. */
function logFailure(request: FastifyRequest, failed: ContractError): void {
  if (isProbe(request)) return;
  const { code, spec, cause, message } = failed;
  const level = spec.http === 500 ? 'error' : 'warn';
  request.log[level]({ ...(cause === undefined ? {} : { err: cause }), code }, message);
}

/** Characters to escape in a URI reference (RFC 3986 section 3.3), a lone percent sign too. */
const NOT_IN_A_PATH = /[^\w\-.~:/@!$&'()*+,;=%]|%(?![0-9A-Fa-f]{2})/g;

/** The path as a URI reference, whatever was sent: RFC 9457 section 3.1.5. */
function instanceOf(request: FastifyRequest): string {
  return pathOf(request).replaceAll(NOT_IN_A_PATH, character => encodeURIComponent(character));
}

/** A node's own codes mean nothing to a caller of REST: they become INTERNAL_ERROR. */
function toContractError(error: unknown, shown: readonly ErrorSpec['scope'][]): ContractError {
  if (error instanceof ContractError && shown.includes(error.spec.scope)) return error;
  const known = ofFramework(error as Partial<FastifyError> | null);
  const detail = 'Something went wrong on our side. Send the same request again.';
  return known ?? new ContractError('INTERNAL_ERROR', detail, { cause: error });
}

/** Errors of Fastify itself; our own checks come first and catch nearly all of them. */
function ofFramework(cause: Partial<FastifyError> | null): ContractError | undefined {
  switch (cause?.code) {
    case 'FST_ERR_BAD_URL':
      return new ContractError(
        'INVALID_REQUEST',
        'The path is not valid. Write it as percent-encoded UTF-8.',
        { cause },
      );
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return new ContractError('NOT_FOUND', 'The path is too long.', { cause });
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
    case 'FST_ERR_CTP_EMPTY_TYPE': {
      const detail = 'The body must be application/json.';
      return new ContractError('UNSUPPORTED_MEDIA_TYPE', detail, { cause });
    }
    default:
      return undefined;
  }
}

export const PROBLEM_TYPE = 'application/problem+json';
/** Path of the page that has a heading for each code. */
export const ERROR_DOCS_PATH = '/docs/errors';

/** @param context.instance the path that was asked for; absent where none could be read */
export function problemOf(
  error: ContractError,
  context: { readonly baseUrl: string; readonly requestId: string; readonly instance?: string },
) {
  const { spec } = error;
  return {
    type: `${context.baseUrl}${ERROR_DOCS_PATH}#${error.code.toLowerCase()}`,
    title: spec.title,
    status: spec.http,
    detail: error.message,
    ...(context.instance === undefined ? {} : { instance: context.instance }),
    code: error.code,
    request_id: context.requestId,
    retryable: error.retryable,
    ...(error.jobId === undefined ? {} : { job_id: error.jobId }),
    ...(error.fieldErrors.length === 0 ? {} : { errors: error.fieldErrors }),
  };
}

/** Seconds to wait before a retry, for errors of load that give none themselves. */
const RETRY_AFTER_S = 5;

/** The headers that belong to the error, besides its body's own. */
export function problemHeaders(error: ContractError): Record<string, string> {
  const headers: Record<string, string> = {};
  const { http } = error.spec;
  if (http === 401) headers['www-authenticate'] = 'Bearer';
  if (error.retryAfterS !== undefined || http === 429 || http === 503) {
    headers['retry-after'] = String(error.retryAfterS ?? RETRY_AFTER_S);
  }
  // Only a submission's errors name a job, and only its first answer reports the charge.
  if (error.jobId !== undefined) headers['x-credits-charged'] = '0';
  return headers;
}

/* The end of an answer, its log line and its span. */

/** Other servers log this status, too, for a caller who left before the answer's head. */
const LEFT_BEFORE = 499;
/** An answer has some ten, of Node, the body's readers and the waiters. More would be a leak. */
const LISTENERS_MAX = 20;

interface AnswerEnd {
  /** 499 where the caller left before anything was sent. */
  readonly status: number;
  /** True where the caller left before the end; else absent, so that a line has it only then. */
  readonly left?: true;
}

type Note = (request: FastifyRequest, reply: FastifyReply, end: AnswerEnd) => void;

/**
 * Calls `note` once for each request that a route or the not-found handler took, also where the
 * caller left before the end: Fastify's onResponse misses those.
 */
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
    // The note comes before other listeners, since the request's span ends then.
    reply.raw.prependOnceListener('close', () => noteOnce(request, reply));
    done();
  });
  app.addHook('onResponse', (request, reply, done) => {
    noteOnce(request, reply);
    done();
  });
}

/** One answer, for metrics. */
export interface Answered {
  /** The route's pattern, never the URL; undefined where no route took the request. */
  readonly route: string | undefined;
  /** Undefined where the bytes were no request. */
  readonly method: string | undefined;
  readonly status: number;
  readonly code: ErrorCode | undefined;
  /** From the request to the end of its answer. undefined: the bytes were not a request. */
  readonly seconds: number | undefined;
}

const jobs = new WeakMap<FastifyRequest, string>();
/** The owner of the result behind a link. Its reader shows no key. */
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
  /** The account that made the request. undefined: a stranger. */
  readonly accountOf: (request: FastifyRequest) => string | undefined;
  readonly onAnswered: ((answered: Answered) => void) | undefined;
}

/**
 * One line a request, with its id, its account and its job; the job's own lines name the node. It
 * never has a URL, since a result's link is a secret.
 */
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
    const jobId = jobs.get(request) ?? refusals.get(request)?.jobId;
    // The connection, not the request, brings the end of an answer.
    underSpan(spans.get(request), () => {
      describeSpan({ 'matting.account.id': accountId, 'matting.job.id': jobId });
      const line = { ...answered, accountId, jobId, ...gone };
      if (isProbe(request)) request.log.debug(line, 'answered');
      else request.log.info(line, 'answered');
    });
    onAnswered?.(answered);
  });
}

const ASSETS = '/assets/';
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'] as const;
/** The semantic conventions have this name for an unknown method. */
const OTHER_METHOD = '_OTHER';
/** The caller hung up before the answer was out. */
const CALLER_GONE = 'caller_gone';

const spans = new WeakMap<FastifyRequest, StartedSpan>();

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
