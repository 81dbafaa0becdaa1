/**
 * When a request to a bucket is made again. The SDK's standard strategy has a budget for all
 * requests of a process, 35 retries: fifty results that are stored while a store restarts would
 * spend it, and most would be lost. Here each request has its own attempts; what may be under way
 * at once is bounded before (bucket-blob-writer.ts), so a store in need is not flooded.
 */
import type { S3ClientConfig } from '@aws-sdk/client-s3';

/** The wait before the n-th attempt again is up to this x 2^n, at random. */
const BASE_MS = 100;
/** The same where the store asks for less (SlowDown, 429). */
const SLOW_DOWN_BASE_MS = 500;
const WAIT_MS_MAX = 5000;

/**
 * What the SDK does not repeat: bytes damaged on the way, which the store has refused, since what
 * we send is what we hashed; an attempt of ours that is still under way there.
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
    // There is no budget to be filled up again.
  }
}

function isRepeated({ errorType, error }: Failure): boolean {
  if (errorType === 'THROTTLING' || errorType === 'TRANSIENT') return true;
  return error !== undefined && REPEATED.has(error.name);
}
