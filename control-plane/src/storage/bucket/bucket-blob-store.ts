/**
 * Blobs as objects of a bucket, which all replicas share:
 *
 *     <prefix>inputs/<id>       blobs, as they are named
 *     <prefix>backgrounds/<id>
 *     <prefix>results/<id>
 *     <prefix>tmp/check         written again and again, to prove that it can be
 *
 * An object appears whole, and replaces none. Beside it is the SHA-256 of its bytes, which whoever
 * reads all of them compares. It knows nothing of jobs.
 */
import { tmpdir } from 'node:os';
import type { Readable } from 'node:stream';
import type { Logger } from 'pino';
import { Semaphore } from '#program/semaphore.ts';
import { requireBlobName } from '../blob-names.ts';
import type { BlobPart, BlobReading, BlobStore, BlobWriter, SignedAccess } from '../blob-store.ts';
import { unreadable, unwritable } from '../storage-errors.ts';
import { BucketBlobWriter } from './bucket-blob-writer.ts';
import { BUCKET_BOUNDS, type BucketBounds, PART_BYTES } from './bucket-bounds.ts';
import { BucketClient, type BucketObserver } from './bucket-client.ts';
import { createBucketClients } from './bucket-connections.ts';
import { isMissing } from './bucket-errors.ts';
import { listBucketOlderThan, parseUnfinished } from './bucket-listing.ts';
import { BucketProof } from './bucket-proof.ts';
import { readBucketBlob } from './bucket-reading.ts';
import { createSignedAccess } from './bucket-signing.ts';
import type { BucketOptions } from './bucket-url.ts';
import { SpoolFile } from './spool-file.ts';

export interface BucketBlobStoreOptions {
  readonly bucket: BucketOptions;
  /** Where blobs are spooled before they are sent; the system's for temporary files where absent. */
  readonly spoolDir?: string;
  readonly log?: Pick<Logger, 'warn' | 'debug'>;
  readonly observer?: BucketObserver;
  /** Instead of BUCKET_BOUNDS, in tests. */
  readonly bounds?: Partial<BucketBounds>;
}

interface BucketParts {
  readonly client: BucketClient;
  readonly proof: BucketProof;
  readonly signed: SignedAccess;
  readonly spoolDir: string;
  readonly bounds: BucketBounds;
}

class BucketBlobStore implements BlobStore {
  readonly signed: SignedAccess;
  readonly #client: BucketClient;
  readonly #proof: BucketProof;
  readonly #spoolDir: string;
  readonly #bounds: BucketBounds;
  readonly #sending: Semaphore;

  constructor({ client, proof, signed, spoolDir, bounds }: BucketParts) {
    this.#client = client;
    this.#proof = proof;
    this.signed = signed;
    this.#spoolDir = spoolDir;
    this.#bounds = bounds;
    this.#sending = new Semaphore({
      max: bounds.sendingBytesMax,
      // Whoever waits holds a bounded place of its own already: an upload, a download, a job.
      waitingMax: Number.POSITIVE_INFINITY,
      refusal: () => new Error('too many files wait to be sent'),
    });
  }

  async createWriter(name: string): Promise<BlobWriter> {
    requireBlobName(name);
    const spool = await SpoolFile.open(this.#spoolDir, PART_BYTES).catch(cause => {
      throw unwritable(cause);
    });
    const { commitMsMax } = this.#bounds;
    const sending = this.#sending;
    return new BucketBlobWriter({ client: this.#client, name, spool, sending, commitMsMax });
  }

  async openRead(name: string, reading?: BlobReading): Promise<Readable> {
    requireBlobName(name);
    return await readBucketBlob(this.#client, name, this.#bounds, reading);
  }

  async stat(name: string): Promise<{ readonly bytes: number } | undefined> {
    requireBlobName(name);
    try {
      const { bytes } = await this.#client.head(name);
      return { bytes };
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw unreadable(error);
    }
  }

  async remove(name: string): Promise<void> {
    const unfinished = parseUnfinished(name);
    if (unfinished === undefined) requireBlobName(name);
    try {
      await (unfinished === undefined
        ? this.#client.delete(name)
        : this.#client.abortMultipart(unfinished.key, unfinished.uploadId));
    } catch (error) {
      if (!isMissing(error)) throw unwritable(error);
    }
  }

  async *listOlderThan(olderThanMs: number, part?: BlobPart): AsyncGenerator<string> {
    try {
      yield* listBucketOlderThan(this.#client, olderThanMs, part);
    } catch (error) {
      throw unreadable(error);
    }
  }

  async check(): Promise<void> {
    await this.#proof.require(this.#client);
  }

  async freeBytes(): Promise<undefined> {
    return undefined;
  }
}

/**
 * Proves that the bucket can be written. Rejects with SERVICE_UNAVAILABLE, the store's error or the
 * SDK's as its cause, where it cannot.
 */
export async function openBucketBlobStore(options: BucketBlobStoreOptions): Promise<BlobStore> {
  const { bucket, spoolDir = tmpdir(), log, observer } = options;
  const bounds = { ...BUCKET_BOUNDS, ...options.bounds };
  try {
    const quiet = (...words: unknown[]) => log?.debug({ words }, 'object storage');
    const sdkLog = { debug: quiet, info: quiet, warn: quiet, error: quiet, trace: quiet };
    const connections = await createBucketClients(bucket, bounds, sdkLog);
    const proof = new BucketProof(bounds);
    const client = new BucketClient(connections, bucket, bounds, {
      bucketRequestEnded(end) {
        proof.learn(end);
        observer?.bucketRequestEnded(end);
      },
    });
    await proof.require(client);
    const signed = await createSignedAccess(client);
    return new BucketBlobStore({ client, proof, signed, spoolDir, bounds });
  } catch (error) {
    throw unwritable(error);
  }
}
