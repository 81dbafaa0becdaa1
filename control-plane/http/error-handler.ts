import { ContractError, type ErrorCode, type ErrorSpec } from '@matting/proto/contract/errors.ts';
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { PROBLEM_TYPE, problemHeaders, problemOf } from './problems.ts';
import { isProbe, pathOf } from './request-path.ts';

const refusals = new WeakMap<FastifyRequest, ContractError>();

/** undefined: not an error. */
export function answeredErrorOf(request: FastifyRequest): ContractError | undefined {
  return refusals.get(request);
}

export function answeredCodeOf(request: FastifyRequest): ErrorCode | undefined {
  return refusals.get(request)?.code;
}

type ErrorHandler = (error: unknown, request: FastifyRequest, reply: FastifyReply) => void;
export type ErrorWriter = (
  error: ContractError,
  request: FastifyRequest,
  reply: FastifyReply,
) => void;

export interface ErrorHandlerOptions {
  /** Scopes whose codes this port sends. Default: public. */
  readonly shown?: readonly ErrorSpec['scope'][] | undefined;
  /** undefined: problem+json. */
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
    // A buffer, because Fastify adds a charset to the type of a string.
    reply.send(Buffer.from(JSON.stringify(problem)));
  };
  return (error, request, reply) => {
    const known = noteRefusal(error, request, shown);
    const write = writerOf?.(request) ?? writeProblem;
    write(known, request, reply);
  };
}

/** For an answer that contains errors: logs and counts one of them as if it ended the request. */
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

/** A refusal such as a full queue has no cause, and its stack would only fill the log. */
function logFailure(request: FastifyRequest, failed: ContractError): void {
  if (isProbe(request)) return;
  const { code, spec, cause, message } = failed;
  const level = spec.http === 500 ? 'error' : 'warn';
  request.log[level]({ ...(cause === undefined ? {} : { err: cause }), code }, message);
}

/** Characters to escape in a URI reference (RFC 3986 section 3.3), also a lone percent sign. */
const NOT_IN_A_PATH = /[^\w\-.~:/@!$&'()*+,;=%]|%(?![0-9A-Fa-f]{2})/g;

/** RFC 9457 section 3.1.5: a URI reference, whatever path the caller sent. */
function instanceOf(request: FastifyRequest): string {
  return pathOf(request).replaceAll(NOT_IN_A_PATH, character => encodeURIComponent(character));
}

/** A node's codes mean nothing to a REST caller, so they become INTERNAL_ERROR. */
function toContractError(error: unknown, shown: readonly ErrorSpec['scope'][]): ContractError {
  if (error instanceof ContractError && shown.includes(error.spec.scope)) return error;
  const known = ofFramework(error as Partial<FastifyError> | null);
  const detail = 'Something went wrong on our side. Send the same request again.';
  return known ?? new ContractError('INTERNAL_ERROR', detail, { cause: error });
}

/** Fastify's own errors. Our checks catch nearly all of them earlier. */
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
