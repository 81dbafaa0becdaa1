/**
 * The error catalogue of both programs. Public codes belong to the REST contract, node codes to
 * gRPC, operator codes to the operator's port. docs/errors.md has a heading for each code.
 */
import { status } from '@grpc/grpc-js';

/**
 * `never`: the same request fails again. `later`: it may succeed. `other-node`: the control plane,
 * or a caller of gRPC, tries another node now.
 */
type RetryRule = 'never' | 'later' | 'other-node';

/**
 * What to change for the request to succeed. `picture`: another image may succeed. `job`: the named
 * or repeated job; others are not affected. `options`: a field next to the image, wrong for most
 * images. `all`: the key, the account, the address or the service; no image succeeds.
 */
type ErrorAbout = 'picture' | 'job' | 'options' | 'all';

export interface ErrorSpec {
  readonly http: number;
  readonly grpc: status;
  readonly retry: RetryRule;
  readonly about: ErrorAbout;
  readonly title: string;
  readonly scope: 'public' | 'node' | 'operator';
}

const errorOf =
  (scope: ErrorSpec['scope'], retry: RetryRule, about: ErrorAbout = 'all') =>
  (http: number, grpc: status, title: string): ErrorSpec => {
    return { http, grpc, retry, about, title, scope };
  };

const never = errorOf('public', 'never');
const ofPicture = errorOf('public', 'never', 'picture');
const ofJob = errorOf('public', 'never', 'job');
const ofOptions = errorOf('public', 'never', 'options');
const later = errorOf('public', 'later');
const nodeNever = errorOf('node', 'never');
const nodeLater = errorOf('node', 'later');
const otherNode = errorOf('node', 'other-node');
const operatorNever = errorOf('operator', 'never');
const operatorLater = errorOf('operator', 'later');

const { INVALID_ARGUMENT, OUT_OF_RANGE, UNAUTHENTICATED, NOT_FOUND, FAILED_PRECONDITION } = status;
const { ABORTED, UNAVAILABLE, RESOURCE_EXHAUSTED, INTERNAL, UNIMPLEMENTED, ALREADY_EXISTS } =
  status;
const { CANCELLED, DATA_LOSS, DEADLINE_EXCEEDED, PERMISSION_DENIED } = status;

export const ERROR_CATALOGUE = {
  INVALID_REQUEST: never(400, INVALID_ARGUMENT, 'The request is malformed'),
  INVALID_IMAGE_SOURCE: ofPicture(400, INVALID_ARGUMENT, 'The image source is not valid'),
  INVALID_IDEMPOTENCY_KEY: never(
    400,
    INVALID_ARGUMENT,
    'The Idempotency-Key is missing or not valid',
  ),
  UNSUPPORTED_IMAGE_FORMAT: ofPicture(400, INVALID_ARGUMENT, 'The image format is not supported'),
  UNSUPPORTED_OUTPUT_FORMAT: ofOptions(400, INVALID_ARGUMENT, 'The output format is not supported'),
  INVALID_PARAMETER: ofOptions(400, INVALID_ARGUMENT, 'A parameter is not valid'),
  INVALID_CALLBACK: ofOptions(400, INVALID_ARGUMENT, 'The callback is not valid'),
  IMAGE_RESOLUTION_TOO_LARGE: ofPicture(400, OUT_OF_RANGE, 'The image has too many pixels'),
  IMAGE_DOWNLOAD_FAILED: ofPicture(400, FAILED_PRECONDITION, 'The image could not be downloaded'),
  MISSING_API_KEY: never(401, UNAUTHENTICATED, 'The API key is missing'),
  INVALID_API_KEY: never(401, UNAUTHENTICATED, 'The API key is not valid'),
  INSUFFICIENT_CREDITS: never(402, FAILED_PRECONDITION, 'Not enough credits'),
  KEY_CAP_REACHED: never(402, FAILED_PRECONDITION, 'The API key has reached its credit cap'),
  KEY_NOT_ALLOWED: never(403, PERMISSION_DENIED, 'The API key does not allow this'),
  JOB_NOT_FOUND: ofJob(404, NOT_FOUND, 'The job does not exist'),
  BATCH_NOT_FOUND: ofJob(404, NOT_FOUND, 'The batch does not exist'),
  NOT_FOUND: never(404, NOT_FOUND, 'Nothing exists at this address'),
  METHOD_NOT_ALLOWED: never(405, UNIMPLEMENTED, 'The method is not allowed here'),
  NOT_ACCEPTABLE: never(406, FAILED_PRECONDITION, 'Accept does not include the type of the answer'),
  IDEMPOTENCY_CONFLICT: ofJob(
    409,
    ALREADY_EXISTS,
    'The Idempotency-Key was used for another request',
  ),
  JOB_CANCELLED: ofJob(409, ABORTED, 'The job was cancelled'),
  JOB_NOT_CANCELLABLE: errorOf('public', 'later', 'job')(
    409,
    FAILED_PRECONDITION,
    'A node is processing the job',
  ),
  BATCH_NOT_REPEATABLE: ofJob(409, FAILED_PRECONDITION, 'The batch has nothing to submit again'),
  JOB_NOT_CORRECTABLE: ofJob(409, FAILED_PRECONDITION, 'The job takes no corrections'),
  CORRECTIONS_EXHAUSTED: ofJob(409, FAILED_PRECONDITION, 'The job has all its corrections'),
  RESULT_EXPIRED: ofJob(410, NOT_FOUND, 'The result has expired'),
  PRECONDITION_FAILED: ofJob(412, FAILED_PRECONDITION, 'The file is not the one you have'),
  IMAGE_TOO_LARGE: ofPicture(413, OUT_OF_RANGE, 'The image file is too large'),
  UNSUPPORTED_MEDIA_TYPE: never(415, INVALID_ARGUMENT, 'The media type is not supported'),
  RANGE_NOT_SATISFIABLE: ofJob(416, OUT_OF_RANGE, 'The range is outside the file'),
  PROCESSING_FAILED: ofPicture(422, INVALID_ARGUMENT, 'The image could not be processed'),
  NO_SUBJECT: ofPicture(422, FAILED_PRECONDITION, 'No subject was found in the image'),
  RATE_LIMITED: later(429, RESOURCE_EXHAUSTED, 'Too many requests'),
  RESULT_LOST: ofJob(500, DATA_LOSS, 'The result is lost'),
  INTERNAL_ERROR: later(500, INTERNAL, 'Internal error'),
  SERVICE_UNAVAILABLE: later(503, UNAVAILABLE, 'The service is unavailable'),

  NODE_OVERLOADED: otherNode(503, RESOURCE_EXHAUSTED, 'The node has no free place'),
  NODE_SHORT_OF_MEMORY: otherNode(
    503,
    RESOURCE_EXHAUSTED,
    'The node has too little free memory for an image of this size',
  ),
  CALLER_OVER_LIMIT: nodeLater(
    429,
    RESOURCE_EXHAUSTED,
    'The caller has reached its limit on the node',
  ),
  NODE_UNAVAILABLE: otherNode(503, UNAVAILABLE, 'The node is starting, draining or gone'),
  NODE_INCAPABLE: otherNode(503, FAILED_PRECONDITION, 'The node does not have this model or codec'),
  NODE_FAULT: otherNode(500, INTERNAL, 'The node failed'),
  ENGINE_LOST: otherNode(500, ABORTED, 'The engine died while it processed the image'),
  PICTURE_WORKER_LOST: otherNode(
    500,
    ABORTED,
    'The picture worker died while it processed the image',
  ),
  INVALID_NODE_TOKEN: nodeNever(401, UNAUTHENTICATED, 'The node token is not valid'),
  CALL_CANCELLED: nodeNever(499, CANCELLED, 'The caller disconnected'),
  CALL_DEADLINE_EXCEEDED: nodeNever(504, DEADLINE_EXCEEDED, 'The deadline passed'),

  INVALID_OPERATOR_KEY: operatorNever(
    401,
    UNAUTHENTICATED,
    'The operator key is missing or not valid',
  ),
  JOB_FINAL: operatorNever(409, FAILED_PRECONDITION, 'The job has ended'),
  ORDER_CONFLICT: operatorNever(409, FAILED_PRECONDITION, 'The order does not allow it'),
  NODE_UNREACHABLE: operatorLater(502, UNAVAILABLE, "The node's HTTP endpoints do not answer"),
};

export type ErrorCode = keyof typeof ERROR_CATALOGUE;

export function isErrorCode(value: string): value is ErrorCode {
  return Object.hasOwn(ERROR_CATALOGUE, value);
}

export interface FieldError {
  readonly field: string;
  readonly detail: string;
}

interface ContractErrorOptions {
  /** For the log only. */
  readonly cause?: unknown;
  /** Set if the cause decides (IMAGE_DOWNLOAD_FAILED, PROCESSING_FAILED). */
  readonly retryable?: boolean | undefined;
  readonly fieldErrors?: readonly FieldError[];
  readonly jobId?: string | undefined;
  /** For Retry-After. */
  readonly retryAfterS?: number | undefined;
}

/** Any other thrown error becomes INTERNAL_ERROR. */
export class ContractError extends Error {
  readonly code: ErrorCode;
  readonly retryable: boolean;
  readonly fieldErrors: readonly FieldError[];
  readonly jobId: string | undefined;
  readonly retryAfterS: number | undefined;

  /**
   * @param detail the fault, then what to send, a sentence each; no secrets, image bytes or paths
   */
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

/** `invalidParameter` for output_format. */
export function unsupportedOutput(wrong: string): ContractError {
  const fieldErrors = [{ field: 'output_format', detail: wrong }];
  return new ContractError('UNSUPPORTED_OUTPUT_FORMAT', `output_format ${wrong}.`, { fieldErrors });
}

/** @param wrong follows the field's name, without a full stop: "must be …" */
export function invalidParameter(field: string, wrong: string): ContractError {
  const fieldErrors = [{ field, detail: wrong }];
  return new ContractError('INVALID_PARAMETER', `${field} ${wrong}.`, { fieldErrors });
}

/** The request is valid and can be repeated after this time. */
export function unavailable(detail: string, retryAfterS: number): ContractError {
  return new ContractError('SERVICE_UNAVAILABLE', detail, { retryAfterS });
}
