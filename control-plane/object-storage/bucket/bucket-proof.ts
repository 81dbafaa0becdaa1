/**
 * Whether the bucket can be written. Every blob that is stored proves it; where none is for a
 * while, a small object that is written over again does: each is paid for, so not at every probe.
 * A request that fails ends what was proven.
 */
import { createHash } from 'node:crypto';
import { unwritable } from '../../core/storage/storage-errors.ts';
import type { StorageOutcome, StorageRequestEnd } from '../../core/storage/storage-kind.ts';
import type { BucketBounds } from './bucket-bounds.ts';
import type { BucketClient } from './bucket-client.ts';

const KEY = 'tmp/check';
const BYTES = Buffer.from('check');
const SHA256 = createHash('sha256').update(BYTES).digest('hex');

/** What says nothing against the store. */
const ANSWERS: readonly StorageOutcome[] = ['ok', 'not-found', 'exists'];

export class BucketProof {
  readonly #bounds: BucketBounds;
  #provenAtMs = Number.NEGATIVE_INFINITY;
  #probing: Promise<void> | undefined;

  constructor(bounds: BucketBounds) {
    this.#bounds = bounds;
  }

  /** What a request, of whoever, shows. */
  learn({ operation, outcome }: StorageRequestEnd): void {
    if (!ANSWERS.includes(outcome)) this.#provenAtMs = Number.NEGATIVE_INFINITY;
    else if (operation === 'put' && outcome === 'ok') this.#provenAtMs = performance.now();
  }

  /** Rejects with SERVICE_UNAVAILABLE. */
  async require(client: BucketClient): Promise<void> {
    if (performance.now() - this.#provenAtMs < this.#bounds.proofMs) return;
    this.#probing ??= this.#probe(client).finally(() => {
      this.#probing = undefined;
    });
    await this.#probing;
  }

  async #probe(client: BucketClient): Promise<void> {
    const late = AbortSignal.timeout(this.#bounds.probeMsMax);
    await client.probe(KEY, { bytes: BYTES, sha256: SHA256 }, late).catch(cause => {
      throw unwritable(cause);
    });
  }
}
