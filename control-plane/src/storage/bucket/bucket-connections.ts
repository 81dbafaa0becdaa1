/** The clients of a bucket: their connections, time-outs and attempts. */
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import type { S3Client, S3ClientConfig } from '@aws-sdk/client-s3';
import { BucketRetries } from './bucket-retries.ts';
import type { BucketOptions } from './bucket-url.ts';

/**
 * Connections open at once: readers of results (1,024), of inputs for nodes, and room. Readers may
 * be as slow as callers are, so what writes and asks has its own.
 */
export const READ_CONNECTIONS_MAX = 2048;
export const CONNECTIONS_MAX = 256;
/** To an open connection. */
const CONNECT_MS_MAX = 5000;
/** From the beginning of an attempt, its body sent, to the head of its answer. */
const ANSWER_MS_MAX = 20_000;
/** Nothing on a connection while the rest of a short answer is due. */
const SILENCE_MS_MAX = 10_000;
/** At what must not be lost: some 6 s of waits, 11 s at most, for a store that restarts. */
const WRITE_ATTEMPTS_MAX = 8;
/** At what a caller waits for. */
const READ_ATTEMPTS_MAX = 4;
/** At the proof that the store can be written: the next one follows soon. */
const PROBE_ATTEMPTS_MAX = 1;

/** The region's name where an endpoint has none: what most servers take. */
const REGION_DEFAULT = 'us-east-1';

type Sdk = typeof import('@aws-sdk/client-s3');
type Handler = typeof import('@smithy/node-http-handler').NodeHttpHandler;

export interface BucketClients {
  readonly writes: S3Client;
  readonly reads: S3Client;
  readonly probes: S3Client;
}

/** What the SDK has to say by itself. */
export type SdkLog = NonNullable<S3ClientConfig['logger']>;

/** Opens nothing; loads the SDK: 0.1 s and 35 MB, where the storage is a bucket and only there. */
export async function createBucketClients(
  options: BucketOptions,
  logger: SdkLog,
): Promise<{ readonly sdk: Sdk; readonly clients: BucketClients }> {
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
    // It would take a new connection for every body of 2 MiB and more.
    expectContinueHeader: false,
    logger,
  };
  const asked = createHandler(NodeHttpHandler, CONNECTIONS_MAX, SILENCE_MS_MAX, logger);
  // Silence in a body is its reader's to judge: a reader that is slow is no store that is.
  const read = createHandler(NodeHttpHandler, READ_CONNECTIONS_MAX, undefined, logger);
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
      writes: clientOf(asked, WRITE_ATTEMPTS_MAX),
      reads: clientOf(read, READ_ATTEMPTS_MAX),
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
  socketTimeout: number | undefined,
  logger: SdkLog,
): InstanceType<Handler> {
  const agent = { keepAlive: true, maxSockets, maxFreeSockets: 64 };
  return new NodeHttpHandler({
    httpAgent: new HttpAgent(agent),
    httpsAgent: new HttpsAgent(agent),
    connectionTimeout: CONNECT_MS_MAX,
    requestTimeout: ANSWER_MS_MAX,
    throwOnRequestTimeout: true,
    ...(socketTimeout === undefined ? {} : { socketTimeout }),
    logger,
  });
}
