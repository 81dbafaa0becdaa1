import type { LifecycleRule } from '@aws-sdk/client-s3';
import { DAY_MS } from '@matting/program/durations.ts';
import type { BlobLives } from '@matting/storage/storage-kind.ts';

/**
 * Parses `s3://bucket/prefix?...`. Credentials come from the AWS SDK's sources (environment, files,
 * the role of a pod or machine).
 */

const SSE = ['AES256', 'aws:kms'] as const;
const PARAMETERS = ['endpoint', 'region', 'path-style', 'sse', 'sse-kms-key-id'] as const;
type Parameter = (typeof PARAMETERS)[number];

/** AWS's rule since 2018. Other S3 servers allow no more. */
const BUCKET = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;
/** Needs no escaping in a URL, a policy or a lifecycle rule. */
const PREFIX = /^[A-Za-z0-9!_.'()-]+(?:\/[A-Za-z0-9!_.'()-]+)*$/;
/** A key may have 1,024 bytes; ours add 150. */
const PREFIX_LENGTH_MAX = 512;
const REGION = /^[a-z0-9-]{1,64}$/;

export interface BucketOptions {
  readonly bucket: string;
  /** Precedes every key. Empty, or ends with a slash. */
  readonly prefix: string;
  readonly endpoint?: URL;
  readonly region?: string;
  readonly pathStyle: boolean;
  readonly encryption?: {
    readonly algorithm: (typeof SSE)[number];
    readonly kmsKeyId?: string;
  };
}

/** The message names the fault, never the value, and follows "must be". */
export class BucketUrlError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = 'BucketUrlError';
  }
}

/**
 * Parameters: `endpoint` (a URL, for stores other than AWS), `region`, `path-style` (the bucket is
 * in the path; default true with an endpoint), `sse` (AES256 or aws:kms), `sse-kms-key-id`.
 * @throws BucketUrlError
 */
export function parseBucketUrl(storageUrl: string): BucketOptions {
  const url = URL.canParse(storageUrl) ? new URL(storageUrl) : undefined;
  if (url?.protocol !== 's3:') throw new BucketUrlError('of the form s3://bucket/prefix');
  if (url.username !== '' || url.password !== '' || url.port !== '' || url.hash !== '') {
    throw new BucketUrlError(
      's3://bucket/prefix with nothing but a bucket, a prefix and parameters: credentials are ' +
        'taken from the environment, files or roles',
    );
  }
  if (!BUCKET.test(url.hostname)) {
    throw new BucketUrlError(
      's3://bucket/prefix with the name of a bucket: 3 to 63 lower-case letters, digits, . and -',
    );
  }
  const parameters = readParameters(url.searchParams);
  const endpoint = parseEndpoint(parameters.get('endpoint'));
  const region = parameters.get('region');
  if (region !== undefined && !REGION.test(region)) {
    throw new BucketUrlError('an s3:// URL whose region looks like eu-central-1');
  }
  const encryption = parseEncryption(parameters.get('sse'), parameters.get('sse-kms-key-id'));
  return {
    bucket: url.hostname,
    prefix: parsePrefix(url.pathname),
    ...(endpoint === undefined ? {} : { endpoint }),
    ...(region === undefined ? {} : { region }),
    pathStyle: parsePathStyle(parameters.get('path-style'), endpoint !== undefined),
    ...(encryption === undefined ? {} : { encryption }),
  };
}

function readParameters(given: URLSearchParams): Map<Parameter, string> {
  const parameters = new Map<Parameter, string>();
  for (const [name, value] of given) {
    const known = PARAMETERS.find(parameter => parameter === name);
    if (known === undefined) {
      const all = PARAMETERS.join(', ');
      throw new BucketUrlError(`an s3:// URL with known parameters only: ${all}`);
    }
    if (parameters.has(known)) throw new BucketUrlError(`an s3:// URL with ${known} once`);
    if (value === '') throw new BucketUrlError(`an s3:// URL whose ${known} is not empty`);
    parameters.set(known, value);
  }
  return parameters;
}

function parsePrefix(pathname: string): string {
  const prefix = pathname.replace(/^\//, '').replace(/\/$/, '');
  if (prefix === '') return '';
  if (!PREFIX.test(prefix) || prefix.length > PREFIX_LENGTH_MAX) {
    throw new BucketUrlError(
      `an s3:// URL whose prefix has names of letters, digits and !_.'()- between single ` +
        `slashes, ${PREFIX_LENGTH_MAX} characters at most`,
    );
  }
  return `${prefix}/`;
}

function parseEndpoint(value: string | undefined): URL | undefined {
  if (value === undefined) return undefined;
  const url = URL.canParse(value) ? new URL(value) : undefined;
  const isPlain =
    url !== undefined &&
    (url.protocol === 'http:' || url.protocol === 'https:') &&
    url.username + url.password + url.search + url.hash === '' &&
    url.pathname === '/';
  if (!isPlain) {
    throw new BucketUrlError('an s3:// URL whose endpoint is https://host or http://host, a port');
  }
  return url;
}

function parsePathStyle(value: string | undefined, hasEndpoint: boolean): boolean {
  if (value === undefined) return hasEndpoint;
  if (value !== 'true' && value !== 'false') {
    throw new BucketUrlError('an s3:// URL whose path-style is true or false');
  }
  return value === 'true';
}

function parseEncryption(
  sse: string | undefined,
  kmsKeyId: string | undefined,
): BucketOptions['encryption'] {
  const algorithm = SSE.find(known => known === sse);
  if (sse !== undefined && algorithm === undefined) {
    throw new BucketUrlError(`an s3:// URL whose sse is ${SSE.join(' or ')}`);
  }
  if (kmsKeyId !== undefined && algorithm !== 'aws:kms') {
    throw new BucketUrlError('an s3:// URL that has sse-kms-key-id with sse=aws:kms only');
  }
  if (algorithm === undefined) return undefined;
  return { algorithm, ...(kmsKeyId === undefined ? {} : { kmsKeyId }) };
}

/** The sweeper removes blobs before the bucket's rules do, even after a day's outage. */
const SPARE_DAYS = 1;
/** Parts are sent within minutes, but S3 counts in days. */
const UNFINISHED_DAYS = 1;

interface LifecycleOptions extends BlobLives {
  /** Precedes every key. Empty, or ends with a slash. */
  readonly prefix: string;
}

interface Lifecycle {
  readonly Rules: readonly LifecycleRule[];
}

function daysFor(lifeMs: number): number {
  return Math.ceil(lifeMs / DAY_MS) + SPARE_DAYS;
}

/**
 * Rules for PutBucketLifecycleConfiguration. They remove what the service should have removed, and
 * never what it may still need.
 */
export function bucketLifecycle(options: LifecycleOptions): Lifecycle {
  const { prefix, resultTtlMs, jobMsMax } = options;
  const lives = [
    // An input is kept for corrections as long as its result, and the last one may take jobMsMax.
    ['inputs', jobMsMax + resultTtlMs + jobMsMax],
    ['backgrounds', jobMsMax],
    ['results', jobMsMax + resultTtlMs],
    ['tmp', 0],
  ] as const;
  const expiring = lives.map(
    ([kind, lifeMs]): LifecycleRule => ({
      ID: `matting-${kind}`,
      Status: 'Enabled',
      Filter: { Prefix: `${prefix}${kind}/` },
      Expiration: { Days: daysFor(lifeMs) },
      // Callers are promised that a removed blob is gone, also from a bucket with versions.
      NoncurrentVersionExpiration: { NoncurrentDays: 1 },
      // MinIO refuses a rule that has only this action.
      AbortIncompleteMultipartUpload: { DaysAfterInitiation: UNFINISHED_DAYS },
    }),
  );
  return { Rules: expiring };
}
