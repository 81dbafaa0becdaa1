/**
 * The one error catalogue of both programs. The public codes are the REST contract's; the node
 * codes travel between a node and its callers over gRPC and never reach a REST caller under their
 * own name; the operator codes are answered on the operator's port alone. docs/errors.md has a
 * heading for each code; a test holds the two equal.
 */
import { status } from '@grpc/grpc-js';

/**
 * Who may try again. `never`: the same request fails again. `later`: the same request may
 * succeed. `other-node`: the control plane tries another node now; a caller of gRPC may too.
 */
export type RetryRule = 'never' | 'later' | 'other-node';

export interface ErrorSpec {
  readonly http: number;
  readonly grpc: status;
  readonly retry: RetryRule;
  readonly title: string;
  /**
   * `public` codes are part of the REST contract; `node` codes live on gRPC alone, `operator` codes
   * on the operator's port.
   */
  readonly scope: 'public' | 'node' | 'operator';
}

function publicError(http: number, grpc: status, retry: RetryRule, title: string): ErrorSpec {
  return { http, grpc, retry, title, scope: 'public' };
}

function nodeError(http: number, grpc: status, retry: RetryRule, title: string): ErrorSpec {
  return { http, grpc, retry, title, scope: 'node' };
}

function operatorError(http: number, grpc: status, retry: RetryRule, title: string): ErrorSpec {
  return { http, grpc, retry, title, scope: 'operator' };
}

const { INVALID_ARGUMENT, OUT_OF_RANGE, UNAUTHENTICATED, NOT_FOUND, FAILED_PRECONDITION } = status;
const { ABORTED, UNAVAILABLE, RESOURCE_EXHAUSTED, INTERNAL, UNIMPLEMENTED, ALREADY_EXISTS } =
  status;
const { CANCELLED, DATA_LOSS, DEADLINE_EXCEEDED, PERMISSION_DENIED } = status;

export const ERROR_CATALOGUE = {
  INVALID_REQUEST: publicError(400, INVALID_ARGUMENT, 'never', 'The request is malformed'),
  INVALID_IMAGE_SOURCE: publicError(
    400,
    INVALID_ARGUMENT,
    'never',
    'The image source is not usable',
  ),
  INVALID_IDEMPOTENCY_KEY: publicError(
    400,
    INVALID_ARGUMENT,
    'never',
    'The Idempotency-Key is missing or not valid',
  ),
  UNSUPPORTED_IMAGE_FORMAT: publicError(
    400,
    INVALID_ARGUMENT,
    'never',
    'The image format is not supported',
  ),
  UNSUPPORTED_OUTPUT_FORMAT: publicError(
    400,
    INVALID_ARGUMENT,
    'never',
    'The output format is not supported',
  ),
  INVALID_PARAMETER: publicError(400, INVALID_ARGUMENT, 'never', 'A parameter is not valid'),
  INVALID_CALLBACK: publicError(400, INVALID_ARGUMENT, 'never', 'The callback is not valid'),
  IMAGE_RESOLUTION_TOO_LARGE: publicError(
    400,
    OUT_OF_RANGE,
    'never',
    'The image has too many pixels',
  ),
  IMAGE_DOWNLOAD_FAILED: publicError(
    400,
    FAILED_PRECONDITION,
    'never',
    'The image could not be downloaded',
  ),
  MISSING_API_KEY: publicError(401, UNAUTHENTICATED, 'never', 'The API key is missing'),
  INVALID_API_KEY: publicError(401, UNAUTHENTICATED, 'never', 'The API key is not valid'),
  INSUFFICIENT_CREDITS: publicError(402, FAILED_PRECONDITION, 'never', 'Not enough credits'),
  KEY_CAP_REACHED: publicError(
    402,
    FAILED_PRECONDITION,
    'never',
    'The API key has used its cap of credits',
  ),
  KEY_NOT_ALLOWED: publicError(403, PERMISSION_DENIED, 'never', 'The API key may not do this'),
  JOB_NOT_FOUND: publicError(404, NOT_FOUND, 'never', 'The job does not exist'),
  NOT_FOUND: publicError(404, NOT_FOUND, 'never', 'Nothing was found at this address'),
  METHOD_NOT_ALLOWED: publicError(405, UNIMPLEMENTED, 'never', 'The method is not allowed here'),
  NOT_ACCEPTABLE: publicError(
    406,
    FAILED_PRECONDITION,
    'never',
    'No answer of this request is one that Accept takes',
  ),
  IDEMPOTENCY_CONFLICT: publicError(
    409,
    ALREADY_EXISTS,
    'never',
    'The Idempotency-Key was used for another request',
  ),
  RESULT_EXPIRED: publicError(410, NOT_FOUND, 'never', 'The result has expired'),
  PRECONDITION_FAILED: publicError(
    412,
    FAILED_PRECONDITION,
    'never',
    'The file is not the one asked for',
  ),
  IMAGE_TOO_LARGE: publicError(413, OUT_OF_RANGE, 'never', 'The image file is too large'),
  UNSUPPORTED_MEDIA_TYPE: publicError(
    415,
    INVALID_ARGUMENT,
    'never',
    'The media type is not supported',
  ),
  RANGE_NOT_SATISFIABLE: publicError(
    416,
    OUT_OF_RANGE,
    'never',
    'The range lies outside of the file',
  ),
  PROCESSING_FAILED: publicError(
    422,
    INVALID_ARGUMENT,
    'never',
    'The image could not be processed',
  ),
  RATE_LIMITED: publicError(429, RESOURCE_EXHAUSTED, 'later', 'Too many requests'),
  RESULT_LOST: publicError(500, DATA_LOSS, 'never', 'The result is lost'),
  INTERNAL_ERROR: publicError(500, INTERNAL, 'later', 'Internal error'),
  SERVICE_UNAVAILABLE: publicError(503, UNAVAILABLE, 'later', 'The service is not available'),

  NODE_OVERLOADED: nodeError(503, RESOURCE_EXHAUSTED, 'other-node', 'The node has no permit free'),
  NODE_SHORT_OF_MEMORY: nodeError(
    503,
    RESOURCE_EXHAUSTED,
    'other-node',
    'The node has no memory free for an image of that size',
  ),
  CALLER_OVER_LIMIT: nodeError(
    429,
    RESOURCE_EXHAUSTED,
    'later',
    'The caller has reached its limit on the node',
  ),
  NODE_UNAVAILABLE: nodeError(
    503,
    UNAVAILABLE,
    'other-node',
    'The node is starting, draining or gone',
  ),
  NODE_INCAPABLE: nodeError(
    503,
    FAILED_PRECONDITION,
    'other-node',
    'The node does not have this model or codec',
  ),
  NODE_FAULT: nodeError(500, INTERNAL, 'other-node', 'The node failed'),
  ENGINE_LOST: nodeError(
    500,
    ABORTED,
    'other-node',
    'The engine died while it worked on the image',
  ),
  PICTURE_WORKER_LOST: nodeError(
    500,
    ABORTED,
    'other-node',
    'The picture worker died while it worked on the image',
  ),
  STORAGE_UNREACHABLE: nodeError(
    503,
    UNAVAILABLE,
    'later',
    'The node could not read or put a file at the storage',
  ),
  INVALID_NODE_TOKEN: nodeError(401, UNAUTHENTICATED, 'never', 'The node token is not valid'),
  CALL_CANCELLED: nodeError(499, CANCELLED, 'never', 'The caller disconnected'),
  CALL_DEADLINE_EXCEEDED: nodeError(504, DEADLINE_EXCEEDED, 'never', 'The deadline passed'),

  INVALID_OPERATOR_KEY: operatorError(
    401,
    UNAUTHENTICATED,
    'never',
    'The operator key is missing or not valid',
  ),
  JOB_FINAL: operatorError(409, FAILED_PRECONDITION, 'never', 'The job has ended'),
  ORDER_CONFLICT: operatorError(409, FAILED_PRECONDITION, 'never', 'The order does not allow it'),
  NODE_UNREACHABLE: operatorError(
    502,
    UNAVAILABLE,
    'later',
    "The node's HTTP endpoints do not answer",
  ),
} as const satisfies Record<string, ErrorSpec>;

export type ErrorCode = keyof typeof ERROR_CATALOGUE;

export function isErrorCode(value: string): value is ErrorCode {
  return Object.hasOwn(ERROR_CATALOGUE, value);
}

/** One of a request's fields and what is wrong with it. */
export interface FieldError {
  readonly field: string;
  readonly detail: string;
}

export interface ContractErrorOptions {
  /** What was caught; logged, never shown. */
  readonly cause?: unknown;
  /** Where the cause, not the code, decides (IMAGE_DOWNLOAD_FAILED, PROCESSING_FAILED). */
  readonly retryable?: boolean | undefined;
  readonly fieldErrors?: readonly FieldError[];
  /** The job it concerns, where there is one. */
  readonly jobId?: string | undefined;
  /** Seconds, for Retry-After. */
  readonly retryAfterS?: number | undefined;
}

/** Anything that goes wrong in a way the catalogue names. Everything else thrown is INTERNAL_ERROR. */
export class ContractError extends Error {
  readonly code: ErrorCode;
  readonly retryable: boolean;
  readonly fieldErrors: readonly FieldError[];
  readonly jobId: string | undefined;
  readonly retryAfterS: number | undefined;

  /** @param detail a sentence for the caller: no secret, no image byte, no path of the machine. */
  constructor(code: ErrorCode, detail: string, options: ContractErrorOptions = {}) {
    super(detail, { cause: options.cause });
    this.name = 'ContractError';
    this.code = code;
    this.retryable = options.retryable ?? ERROR_CATALOGUE[code].retry !== 'never';
    this.fieldErrors = options.fieldErrors ?? [];
    this.jobId = options.jobId;
    this.retryAfterS = options.retryAfterS;
  }

  get spec(): ErrorSpec {
    return ERROR_CATALOGUE[this.code];
  }
}

/** @param wrong what is wrong with the field, without its name: "must be …" */
export function invalidParameter(field: string, wrong: string): ContractError {
  const fieldErrors = [{ field, detail: wrong }];
  return new ContractError('INVALID_PARAMETER', `${field} ${wrong}`, { fieldErrors });
}
