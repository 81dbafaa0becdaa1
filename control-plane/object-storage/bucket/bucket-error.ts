import type { StorageOutcome } from '@matting/storage/storage-kind.ts';

/** The store's message is cut to this length. */
const MESSAGE_LENGTH_MAX = 300;

const UNNAMED = new Set(['Unknown', 'UnknownError', 'Error']);

/** Keeps only what the log may show: the SDK's errors contain signatures and the access key. */
export class BucketError extends Error {
  /** From the store (SlowDown) or the system (ECONNRESET). */
  readonly code: string;
  /** undefined: no answer. */
  readonly status: number | undefined;
  /** For the store's operator. */
  readonly requestId: string | undefined;
  readonly attempts: number;

  constructor(operation: string, error: unknown) {
    const { code, name, message, $metadata = {} } = error as SdkError;
    const { httpStatusCode: status, requestId, attempts = 1 } = $metadata;
    // An answer to HEAD has no body and so no name; a DOMException's code is a number.
    const named = typeof code === 'string' ? code : name;
    const known = named === undefined || UNNAMED.has(named) ? `HTTP ${status}` : named;
    super(`${operation}: ${known}: ${String(message).slice(0, MESSAGE_LENGTH_MAX)}`);
    this.name = 'BucketError';
    this.code = known;
    this.status = status;
    this.requestId = requestId;
    this.attempts = attempts;
  }
}

interface SdkError {
  readonly name?: string;
  readonly code?: unknown;
  readonly message?: string;
  readonly $metadata?: {
    readonly httpStatusCode?: number;
    readonly requestId?: string;
    readonly attempts?: number;
  };
}

/** No such object or upload. A missing bucket does not count. */
export function isMissing(error: unknown): boolean {
  return error instanceof BucketError && error.status === 404 && error.code !== 'NoSuchBucket';
}

export function isAlreadyThere(error: unknown): boolean {
  return error instanceof BucketError && error.status === 412;
}

/** True if the store did not answer, so the outcome is unknown. */
export function isUnanswered(error: unknown): boolean {
  return error instanceof BucketError && error.status === undefined;
}

export function isPastTheEnd(error: unknown): boolean {
  return error instanceof BucketError && error.status === 416;
}

const CLOCK = ['RequestTimeTooSkewed', 'RequestExpired', 'RequestInTheFuture'];
const LATE = ['TimeoutError', 'AbortError', 'RequestTimeout', 'ETIMEDOUT'];

export function outcomeOf({ code, status }: BucketError): StorageOutcome {
  if (CLOCK.includes(code)) return 'clock';
  if (LATE.includes(code)) return 'timeout';
  if (code === 'SlowDown' || status === 429) return 'slow-down';
  if (status === 404 || status === 416) return 'not-found';
  if (status === 412) return 'exists';
  if (status === 401 || status === 403) return 'denied';
  return status === undefined || status >= 500 ? 'unavailable' : 'other';
}

const WRONG_REGION = 'the bucket is in another region: name it by the parameter region';
const LATE_WORDS = 'the store did not answer in time';

const EXPLANATIONS: Readonly<Record<string, string>> = {
  NoSuchBucket: 'there is no such bucket',
  AccessDenied: 'its user may not write there',
  InvalidAccessKeyId: 'the store does not know the access key',
  SignatureDoesNotMatch: 'the secret key is not that of the access key',
  ExpiredToken: 'the credentials have expired',
  InvalidToken: 'the session token is not valid',
  RequestTimeTooSkewed: "this machine's clock differs from the store's",
  PermanentRedirect: WRONG_REGION,
  AuthorizationHeaderMalformed: WRONG_REGION,
  IllegalLocationConstraintException: WRONG_REGION,
  CredentialsProviderError: 'no credentials were found in the environment, files or roles',
  NotImplemented:
    'the store lacks conditional writes (If-None-Match), SHA-256 checksums or writes in parts: ' +
    '"matting storage check" names which',
  ENOTFOUND: 'the name of the endpoint is not known',
  EAI_AGAIN: 'the name of the endpoint cannot be looked up',
  ECONNREFUSED: 'nothing listens at the endpoint',
  AbortError: LATE_WORDS,
  TimeoutError: LATE_WORDS,
  ETIMEDOUT: LATE_WORDS,
};

/** One line for the operator, without secrets, URLs and keys. */
export function describeBucketError(error: unknown): string {
  const { code = 'unknown error', status, message } = error as Partial<BucketError>;
  if (!(error instanceof BucketError)) return String(message);
  const explanation = EXPLANATIONS[code];
  const answered = status === undefined ? code : `${code}, ${status}`;
  return explanation === undefined ? answered : `${explanation} (${answered})`;
}
