/**
 * Whether the bucket can be written: by a small object written over again, at most every
 * PROOF_MS, since each is paid for; probes in between get the last answer while it was good.
 */
import { createHash } from 'node:crypto';
import { unwritable } from '../storage-errors.ts';
import type { BucketClient } from './bucket-client.ts';

const KEY = 'tmp/check';
/** How long a proof holds. Requests that fail for callers are told to them, and counted. */
const PROOF_MS = 15_000;
/** Shorter than probes wait. */
const PROBE_MS_MAX = 1500;

const BYTES = Buffer.from('check');
const SHA256 = createHash('sha256').update(BYTES).digest('hex');

export class BucketProof {
  readonly #client: Pick<BucketClient, 'probe'>;
  #provenAtMs = Number.NEGATIVE_INFINITY;
  #probing: Promise<void> | undefined;

  constructor(client: Pick<BucketClient, 'probe'>) {
    this.#client = client;
  }

  /** Rejects with SERVICE_UNAVAILABLE. */
  async require(): Promise<void> {
    if (performance.now() - this.#provenAtMs < PROOF_MS) return;
    this.#probing ??= this.#probe().finally(() => {
      this.#probing = undefined;
    });
    await this.#probing;
  }

  async #probe(): Promise<void> {
    const body = { bytes: BYTES, sha256: SHA256 };
    const late = AbortSignal.timeout(PROBE_MS_MAX);
    await this.#client.probe(KEY, body, late).catch(cause => {
      throw unwritable(cause);
    });
    this.#provenAtMs = performance.now();
  }
}
