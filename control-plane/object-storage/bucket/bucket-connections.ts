import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import type { S3Client, S3ClientConfig } from '@aws-sdk/client-s3';
import type { NodeHttpHandlerOptions } from '@smithy/node-http-handler';
import type { BucketOptions } from './bucket-url.ts';

export interface BucketBounds {
  /**
   * For readers of results (1,024), inputs for nodes, and a reserve. Readers may be as slow as
   * callers, so other requests have their own connections.
   */
  readonly readConnectionsMax: number;
  readonly connectionsMax: number;
  readonly connectMsMax: number;
  /** From the start of an attempt, including its body, to the answer's head. */
  readonly answerMsMax: number;
  /** As `answerMsMax`, but shorter, since a caller waits for reads. */
  readonly readAnswerMsMax: number;
  /** Longest wait of a reader for a byte. The connection is then closed. */
  readonly silenceMsMax: number;
  /** How often one read may continue on a new connection. */
  readonly resumesMax: number;
  /** The waits between them take 6 s on average, at most 11 s: enough for a store's restart. */
  readonly writeAttemptsMax: number;
  readonly readAttemptsMax: number;
  readonly requestMsMax: number;
  /** A commit, including its wait for memory. */
  readonly commitMsMax: number;
  /** Bytes in memory that are being sent: four parts, or the results of 80 photos. */
  readonly sendingBytesMax: number;
  /** Keys or uploads on a page of a listing. S3 allows no more. */
  readonly pageMax: number;
  /** Validity of a test write. Each costs money. */
  readonly proofMs: number;
  /** Below the timeout of readiness probes (2 s). */
  readonly probeMsMax: number;
}

/** A larger blob is sent in parts of this size. */
export const PART_BYTES = 8 * 1024 * 1024;

export const BUCKET_BOUNDS: BucketBounds = {
  readConnectionsMax: 2048,
  connectionsMax: 256,
  connectMsMax: 5000,
  answerMsMax: 20_000,
  readAnswerMsMax: 8000,
  silenceMsMax: 10_000,
  resumesMax: 3,
  writeAttemptsMax: 8,
  readAttemptsMax: 4,
  requestMsMax: 60_000,
  commitMsMax: 120_000,
  sendingBytesMax: 4 * PART_BYTES,
  pageMax: 1000,
  proofMs: 15_000,
  probeMsMax: 1500,
};

const FREE_CONNECTIONS_MAX = 64;
/** The first attempt may fail only because the client has yet to learn the store's clock. */
const PROBE_ATTEMPTS_MAX = 2;

/** Most servers with an endpoint of their own accept it. */
const REGION_DEFAULT = 'us-east-1';

type Sdk = typeof import('@aws-sdk/client-s3');
type Handler = typeof import('@smithy/node-http-handler').NodeHttpHandler;

export interface BucketClients {
  readonly writes: S3Client;
  readonly reads: S3Client;
  readonly probes: S3Client;
}

export interface BucketConnections {
  readonly sdk: Sdk;
  readonly clients: BucketClients;
}

type SdkLog = NonNullable<S3ClientConfig['logger']>;

/** Loads the SDK (0.1 s, 35 MB). Opens no connection. */
export async function createBucketClients(
  options: BucketOptions,
  bounds: BucketBounds,
  logger: SdkLog,
): Promise<BucketConnections> {
  const [sdk, { NodeHttpHandler }] = await Promise.all([
    import('@aws-sdk/client-s3'),
    import('@smithy/node-http-handler'),
  ]);
  const shared: S3ClientConfig = {
    ...(options.endpoint === undefined ? {} : { endpoint: options.endpoint.href }),
    ...(await regionOf(sdk, options)),
    forcePathStyle: options.pathStyle,
    // We send our own checksum with each body.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    // True would open a new connection for each body of 2 MiB or more.
    expectContinueHeader: false,
    logger,
  };
  const writeHandler = createHandler(NodeHttpHandler, bounds.connectionsMax, {
    connectionTimeout: bounds.connectMsMax,
    requestTimeout: bounds.answerMsMax,
    socketTimeout: bounds.answerMsMax,
    logger,
  });
  // Readers bound silence within a body themselves: a slow reader is not a slow store.
  const readHandler = createHandler(NodeHttpHandler, bounds.readConnectionsMax, {
    connectionTimeout: bounds.connectMsMax,
    requestTimeout: bounds.readAnswerMsMax,
    logger,
  });
  const clientOf = (requestHandler: InstanceType<Handler>, attemptsMax: number) =>
    new sdk.S3Client({
      ...shared,
      requestHandler,
      maxAttempts: attemptsMax,
      retryStrategy: new BucketRetries(attemptsMax),
    });
  return {
    sdk,
    clients: {
      writes: clientOf(writeHandler, bounds.writeAttemptsMax),
      reads: clientOf(readHandler, bounds.readAttemptsMax),
      probes: clientOf(writeHandler, PROBE_ATTEMPTS_MAX),
    },
  };
}

/** From the URL, the environment or the SDK's files. Optional with an endpoint. */
async function regionOf(sdk: Sdk, { region, endpoint }: BucketOptions): Promise<S3ClientConfig> {
  if (region !== undefined) return { region };
  const found = new sdk.S3Client().config.region();
  if (endpoint === undefined) return { region: await found };
  return { region: await found.catch(() => REGION_DEFAULT) };
}

function createHandler(
  NodeHttpHandler: Handler,
  maxSockets: number,
  options: NodeHttpHandlerOptions,
): InstanceType<Handler> {
  const agent = { keepAlive: true, maxSockets, maxFreeSockets: FREE_CONNECTIONS_MAX };
  return new NodeHttpHandler({
    httpAgent: new HttpAgent(agent),
    httpsAgent: new HttpsAgent(agent),
    throwOnRequestTimeout: true,
    ...options,
  });
}

/** The wait before retry n is random, up to this x 2^n. */
const BASE_MS = 100;
/** As BASE_MS, if the store asks for fewer requests (SlowDown, 429). */
const SLOW_DOWN_BASE_MS = 500;
const WAIT_MS_MAX = 5000;

/**
 * The SDK's list lacks these: bytes were damaged, the store still processes an attempt of ours, or
 * versitygw removed the folder, which was empty.
 */
const REPEATED = new Set([
  'BadDigest',
  'IncompleteBody',
  'XAmzContentChecksumMismatch',
  'XAmzContentSHA256Mismatch',
  'ConditionalRequestConflict',
  'OperationAborted',
  'ExistingObjectIsDirectory',
]);

type Given = NonNullable<S3ClientConfig['retryStrategy']>;
type Strategy = Extract<Given, { acquireInitialRetryToken: unknown }>;
type Token = Awaited<ReturnType<Strategy['acquireInitialRetryToken']>>;
type Failure = Parameters<Strategy['refreshRetryTokenForRetry']>[1];

function attempt(retries: number, waitMs: number): Token {
  return { getRetryCount: () => retries, getRetryDelay: () => waitMs };
}

/**
 * The SDK's standard strategy has 35 retries for the whole process: fifty results written during a
 * store's restart would use them up, and most would be lost. Here each request has its own
 * attempts. The requests in flight are bounded elsewhere (bucket-blob-store.ts), so they do not
 * flood the store.
 */
export class BucketRetries implements Strategy {
  readonly #attemptsMax: number;
  readonly #random: () => number;

  /** @param attemptsMax includes the first */
  constructor(attemptsMax: number, random = Math.random) {
    this.#attemptsMax = attemptsMax;
    this.#random = random;
  }

  async acquireInitialRetryToken(): Promise<Token> {
    return attempt(0, 0);
  }

  /** Rejects after the last attempt. The SDK then throws that attempt's error. */
  async refreshRetryTokenForRetry(token: Token, failure: Failure): Promise<Token> {
    const retries = token.getRetryCount();
    if (!isRepeated(failure) || retries + 1 >= this.#attemptsMax) {
      throw new Error('no further attempt');
    }
    const baseMs = failure.errorType === 'THROTTLING' ? SLOW_DOWN_BASE_MS : BASE_MS;
    const longestMs = Math.min(WAIT_MS_MAX, baseMs * 2 ** retries);
    const askedMs = (failure.retryAfterHint?.getTime() ?? 0) - Date.now();
    const waitMs = Math.max(this.#random() * longestMs, Math.min(askedMs, WAIT_MS_MAX));
    return attempt(retries + 1, waitMs);
  }

  recordSuccess(): void {
    // Requests share no budget of retries.
  }
}

function isRepeated({ errorType, error }: Failure): boolean {
  if (errorType === 'THROTTLING' || errorType === 'TRANSIENT') return true;
  return error !== undefined && REPEATED.has(error.name);
}
