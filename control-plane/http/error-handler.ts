/**
 * Everything thrown on the way of a request becomes one of the catalogue's errors and its answer.
 */

import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { ContractError, type ErrorCode, type ErrorSpec } from '#contract/errors.ts';

const answered = new WeakMap<FastifyRequest, ContractError>();

/** The code a request was answered with; undefined where it was no error. */
export function answeredCodeOf(request: FastifyRequest): ErrorCode | undefined {
  return answered.get(request)?.code;
}

/** The job that a request's error named. */
export function answeredJobOf(request: FastifyRequest): string | undefined {
  return answered.get(request)?.jobId;
}

export type ErrorHandler = (error: unknown, request: FastifyRequest, reply: FastifyReply) => void;
/** Sends an error in the manner of an interface. */
export type ErrorWriter = (
  error: ContractError,
  request: FastifyRequest,
  reply: FastifyReply,
) => void;

interface ErrorHandlerOptions {
  /** The scopes whose codes this port answers with; others are its own failures. Public alone. */
  readonly shown?: readonly ErrorSpec['scope'][] | undefined;
  /** Who writes the errors of this request; undefined, as where absent: problem+json. */
  readonly writerOf?: ((request: FastifyRequest) => ErrorWriter | undefined) | undefined;
}

export function createErrorHandler(
  baseUrl: string,
  { shown = ['public'], writerOf }: ErrorHandlerOptions = {},
): ErrorHandler {
  const writeProblem = problemWriter(baseUrl);
  return (error, request, reply) => {
    const known = toContractError(error, shown);
    answered.set(request, known);
    if (known.spec.http >= 500) logFailure(request, known);
    const write = writerOf?.(request) ?? writeProblem;
    write(known, request, reply);
  };
}

function problemWriter(baseUrl: string): ErrorWriter {
  return (known, request, reply) => {
    const problem = problemOf(known, {
      baseUrl,
      requestId: request.id,
      instance: instanceOf(request),
    });
    reply.code(problem.status).headers(problemHeaders(known)).type(PROBLEM_TYPE);
    // A buffer, since the framework adds a charset to the type of text.
    reply.send(Buffer.from(JSON.stringify(problem)));
  };
}

/** A refusal of ours, such as a full queue, has no cause; its stack would only fill the log. */
function logFailure({ log }: FastifyRequest, { code, spec, cause, message }: ContractError): void {
  const level = spec.http === 500 ? 'error' : 'warn';
  log[level]({ ...(cause === undefined ? {} : { err: cause }), code }, message);
}

/** RFC 9112 section 3.2.2: a server takes a target in absolute form too, as the router does. */
const ORIGIN = /^https?:\/\/[^/?]*/i;

export function pathOf(request: FastifyRequest): string {
  const target = request.url.replace(ORIGIN, '');
  const query = target.indexOf('?');
  return query === -1 ? target : target.slice(0, query);
}

/** What must be escaped in a URI reference (RFC 3986 section 3.3): a lone percent sign too. */
const NOT_IN_A_PATH = /[^\w\-.~:/@!$&'()*+,;=%]|%(?![0-9A-Fa-f]{2})/g;

/** The path as a URI reference, whatever was sent: RFC 9457 section 3.1.5. */
function instanceOf(request: FastifyRequest): string {
  return pathOf(request).replaceAll(NOT_IN_A_PATH, character => encodeURIComponent(character));
}

/** A node's own codes mean nothing to a caller of REST: they become INTERNAL_ERROR. */
function toContractError(error: unknown, shown: readonly ErrorSpec['scope'][]): ContractError {
  if (error instanceof ContractError && shown.includes(error.spec.scope)) return error;
  const known = ofFramework(error as Partial<FastifyError> | null);
  const detail = 'something went wrong on our side';
  return known ?? new ContractError('INTERNAL_ERROR', detail, { cause: error });
}

/** Errors of Fastify itself; our own checks come first and catch nearly all of them. */
function ofFramework(error: Partial<FastifyError> | null): ContractError | undefined {
  const code = error?.code;
  if (code === undefined || !code.startsWith('FST_ERR_')) return undefined;
  switch (code) {
    case 'FST_ERR_BAD_URL':
      return new ContractError('INVALID_REQUEST', 'the path is not valid', { cause: error });
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return new ContractError('NOT_FOUND', 'the path is too long', { cause: error });
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
    case 'FST_ERR_CTP_EMPTY_TYPE': {
      const detail = 'the body must be application/json';
      return new ContractError('UNSUPPORTED_MEDIA_TYPE', detail, { cause: error });
    }
    default:
      return undefined;
  }
}

/* The error body of the contract: application/problem+json, RFC 9457. */

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
