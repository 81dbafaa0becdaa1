/** What a bucket's errors mean. Names are S3's, as the SDK passes them on. */

interface Answered {
  readonly name?: string;
  readonly $metadata?: { readonly httpStatusCode?: number };
}

function statusOf(error: unknown): number | undefined {
  return (error as Answered | null)?.$metadata?.httpStatusCode;
}

function nameOf(error: unknown): string | undefined {
  return (error as Answered | null)?.name;
}

/** No such object, no such upload; not: no such bucket. */
export function isMissing(error: unknown): boolean {
  return statusOf(error) === 404 && nameOf(error) !== 'NoSuchBucket';
}

/** There is an object under this name, or it is another one than was asked for. */
export function isAlreadyThere(error: unknown): boolean {
  return statusOf(error) === 412;
}

/** The range begins behind the end. */
export function isBehindTheEnd(error: unknown): boolean {
  return statusOf(error) === 416;
}

/** Worth another attempt at reading: what the network or the store may get over. */
export function isPassing(error: unknown): boolean {
  const status = statusOf(error);
  return status === undefined || status >= 500 || status === 429;
}

/** How a request ended, for metrics: few, whatever a store calls its errors. */
export type BucketOutcome =
  | 'ok'
  | 'not-found'
  | 'exists'
  | 'denied'
  | 'clock'
  | 'slow-down'
  | 'timeout'
  | 'unavailable'
  | 'other';

const CLOCK = ['RequestTimeTooSkewed', 'RequestExpired', 'RequestInTheFuture'];
const LATE = ['TimeoutError', 'AbortError', 'RequestTimeout'];

export function outcomeOf(error: unknown): BucketOutcome {
  const status = statusOf(error);
  const name = nameOf(error) ?? '';
  if (CLOCK.includes(name)) return 'clock';
  if (LATE.includes(name)) return 'timeout';
  if (name === 'SlowDown' || status === 429) return 'slow-down';
  if (status === 404 || status === 416) return 'not-found';
  if (status === 412) return 'exists';
  if (status === 401 || status === 403) return 'denied';
  return status === undefined || status >= 500 ? 'unavailable' : 'other';
}

/** What the operator can do about it, by the names of S3, the SDK and the network. */
const WORDS: Readonly<Record<string, string>> = {
  NoSuchBucket: 'there is no such bucket',
  AccessDenied: 'its user may not write there (AccessDenied)',
  Forbidden: 'its user may not write there',
  InvalidAccessKeyId: 'the access key is unknown to the store',
  SignatureDoesNotMatch: 'the secret key is not that of the access key',
  ExpiredToken: 'the credentials have expired',
  InvalidToken: 'the session token is not valid',
  RequestTimeTooSkewed: "this machine's clock differs from the store's (RequestTimeTooSkewed)",
  PermanentRedirect: 'the bucket is in another region',
  AuthorizationHeaderMalformed: 'the bucket is in another region',
  IllegalLocationConstraintException: 'the bucket is in another region',
  CredentialsProviderError: 'no credentials were found in the environment, files or roles',
  NotImplemented: 'the store does not support what is asked of it (NotImplemented)',
  ENOTFOUND: 'the name of the endpoint is not known',
  ECONNREFUSED: 'nothing listens at the endpoint',
  AbortError: 'the store did not answer in time',
  TimeoutError: 'the store did not answer in time',
};

/** One line for the operator; never a secret, an URL or a key. */
export function describeBucketError(error: unknown): string {
  const { name = 'unknown error', code } = error as { name?: string; code?: string };
  const known = WORDS[code ?? ''] ?? WORDS[name];
  const status = statusOf(error);
  return known ?? `${code ?? name}${status === undefined ? '' : ` (${status})`}`;
}
