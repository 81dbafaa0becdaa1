/** The clients of a bucket: their connections, time-outs, attempts and bounds. */

import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import type { S3Client, S3ClientConfig } from '@aws-sdk/client-s3';
import type { NodeHttpHandlerOptions } from '@smithy/node-http-handler';
import type { BucketOptions } from './bucket-url.ts';

export interface BucketBounds {
  /**
   * Connections open at once for what is read: readers of results (1,024), of inputs for nodes, and
   * room. Readers may be as slow as callers are, so what writes and asks has its own.
   */
  readonly readConnectionsMax: number;
  readonly connectionsMax: number;
  readonly connectMsMax: number;
  /** The time runs from the beginning of an attempt, its body sent, to the head of its answer. */
  readonly answerMsMax: number;
  /** For answers while nothing is sent and a caller waits. */
  readonly readAnswerMsMax: number;
  /** No byte of a blob while its reader waits for one: the connection is given up. */
  readonly silenceMsMax: number;
  /** One reading continues so often with another connection. */
  readonly resumesMax: number;
  /**
   * A write must not be lost: its attempts wait some 6 s, 11 s at most, for a store that restarts.
   */
  readonly writeAttemptsMax: number;
  readonly readAttemptsMax: number;
  readonly requestMsMax: number;
  /** A commit, its turn among all that is sent included. */
  readonly commitMsMax: number;
  /** Bytes that are being sent, in memory: four parts at once, or the results of 80 photos. */
  readonly sendingBytesMax: number;
  /** Keys, or unfinished uploads, of a page of a listing; S3 gives no more. */
  readonly pageMax: number;
  /** A proof that the bucket can be written holds so long; each is paid for. */
  readonly proofMs: number;
  /** A proof: shorter than probes of readiness wait (2 s). */
  readonly probeMsMax: number;
}

/** A larger blob is sent in parts of this size, each with its own attempts. */
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
/** The proof of a writable store has few attempts: the first may only learn the store's clock. */
const PROBE_ATTEMPTS_MAX = 2;

/** The region's name where an endpoint has none: what most servers take. */
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

/** Opens nothing; loads the SDK: 0.1 s and 35 MB, where the storage is a bucket and only there. */
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
    // Ours are given with each body, in place of those that the SDK would compute beside them.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    // True would take a new connection for every body of 2 MiB and more.
    expectContinueHeader: false,
    logger,
  };
  const asked = createHandler(NodeHttpHandler, bounds.connectionsMax, {
    connectionTimeout: bounds.connectMsMax,
    requestTimeout: bounds.answerMsMax,
    socketTimeout: bounds.answerMsMax,
    logger,
  });
  // Silence in a body is its reader's to judge: a reader that is slow is no store that is.
  const read = createHandler(NodeHttpHandler, bounds.readConnectionsMax, {
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
      writes: clientOf(asked, bounds.writeAttemptsMax),
      reads: clientOf(read, bounds.readAttemptsMax),
      probes: clientOf(asked, PROBE_ATTEMPTS_MAX),
    },
  };
}

/** The URL's, or what the environment and the SDK's files have; an endpoint needs none of them. */
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

/** The wait before the n-th attempt again is up to this x 2^n, at random. */
const BASE_MS = 100;
/** The base is this if the store wants fewer requests (SlowDown, 429). */
const SLOW_DOWN_BASE_MS = 500;
const WAIT_MS_MAX = 5000;

/**
 * The SDK does not repeat these: bytes damaged on the way, which the store has refused, since we
 * send what we hashed; an attempt of ours that is still under way there.
 */
const REPEATED = new Set([
  'BadDigest',
  'IncompleteBody',
  'XAmzContentChecksumMismatch',
  'XAmzContentSHA256Mismatch',
  'ConditionalRequestConflict',
  'OperationAborted',
]);

type Given = NonNullable<S3ClientConfig['retryStrategy']>;
type Strategy = Extract<Given, { acquireInitialRetryToken: unknown }>;
type Token = Awaited<ReturnType<Strategy['acquireInitialRetryToken']>>;
type Failure = Parameters<Strategy['refreshRetryTokenForRetry']>[1];

function attempt(retries: number, waitMs: number): Token {
  return { getRetryCount: () => retries, getRetryDelay: () => waitMs };
}

/**
 * When a request to a bucket is made again. The SDK's standard strategy has a budget for all
 * requests of a process, 35 retries: fifty results that are stored while a store restarts would
 * spend it, and most would be lost. Here each request has its own attempts; what may be under way
 * at once is bounded before (bucket-blob-store.ts), so a store in need is not flooded.
 */
export class BucketRetries implements Strategy {
  readonly #attemptsMax: number;
  readonly #random: () => number;

  /** @param attemptsMax at a request, the first included */
  constructor(attemptsMax: number, random = Math.random) {
    this.#attemptsMax = attemptsMax;
    this.#random = random;
  }

  async acquireInitialRetryToken(): Promise<Token> {
    return attempt(0, 0);
  }

  /** Rejects where there is no further attempt; the SDK then throws what the last one met. */
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
    // No budget needs to be filled up again.
  }
}

function isRepeated({ errorType, error }: Failure): boolean {
  if (errorType === 'THROTTLING' || errorType === 'TRANSIENT') return true;
  return error !== undefined && REPEATED.has(error.name);
}
