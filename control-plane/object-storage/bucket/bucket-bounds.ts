/** How much of everything there is between this process and a bucket; docs/operations.md has them. */

export interface BucketBounds {
  /**
   * Connections open at once for what is read: readers of results (1,024), of inputs for nodes, and
   * room. Readers may be as slow as callers are, so what writes and asks has its own.
   */
  readonly readConnectionsMax: number;
  readonly connectionsMax: number;
  /** To an open connection. */
  readonly connectMsMax: number;
  /** From the beginning of an attempt, its body sent, to the head of its answer. */
  readonly answerMsMax: number;
  /** The same where nothing is sent and a caller waits. */
  readonly readAnswerMsMax: number;
  /** No byte of a blob while its reader waits for one: the connection is given up. */
  readonly silenceMsMax: number;
  /** How often one reading goes on with another connection. */
  readonly resumesMax: number;
  /** At what must not be lost: some 6 s of waits, 11 s at most, for a store that restarts. */
  readonly writeAttemptsMax: number;
  /** At what a caller waits for. */
  readonly readAttemptsMax: number;
  /** A request with all its attempts. */
  readonly requestMsMax: number;
  /** A commit, its turn among all that is sent included. */
  readonly commitMsMax: number;
  /** Bytes that are being sent, in memory: four parts at once, or the results of 80 photos. */
  readonly sendingBytesMax: number;
  /** Keys, or unfinished uploads, of a page of a listing; S3 gives no more. */
  readonly pageMax: number;
  /** How long a proof holds that the bucket can be written; each is paid for. */
  readonly proofMs: number;
  /** A proof: shorter than probes of readiness wait (2 s). */
  readonly probeMsMax: number;
}

/** Above it a blob is sent in parts of this size, each with its own attempts. */
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
