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
import { Semaphore } from '#program/semaphore.ts';
import {
  type BlobStore,
  requireBlobName,
  type SignedAccess,
  type StorageOpening,
  unreadable,
  unwritable,
} from '../../core/storage/blob-store.ts';
import { BucketBlobWriter } from './bucket-blob-writer.ts';
import { BUCKET_BOUNDS, type BucketBounds, PART_BYTES } from './bucket-bounds.ts';
import { BucketClient } from './bucket-client.ts';
import { createBucketClients } from './bucket-connections.ts';
import { isMissing } from './bucket-errors.ts';
import {
  BucketProof,
  listBucketOlderThan,
  parseUnfinished,
  readBucketBlob,
} from './bucket-reading.ts';
import { createSignedAccess } from './bucket-signing.ts';
import type { BucketOptions } from './bucket-url.ts';
import { SpoolFile } from './spool-file.ts';

export interface BucketBlobStoreOptions extends StorageOpening {
  readonly bucket: BucketOptions;
  /** Instead of BUCKET_BOUNDS, in tests. */
  readonly bounds?: Partial<BucketBounds>;
}

/** @param spoolDir where blobs are spooled before they are sent */
function bucketBlobStore(
  client: BucketClient,
  proof: BucketProof,
  signed: SignedAccess,
  { spoolDir, bounds }: { readonly spoolDir: string; readonly bounds: BucketBounds },
): BlobStore {
  const { commitMsMax } = bounds;
  const sending = new Semaphore({
    max: bounds.sendingBytesMax,
    // Whoever waits holds a bounded place of its own already: an upload, a download, a job.
    waitingMax: Number.POSITIVE_INFINITY,
    refusal: () => new Error('too many files wait to be sent'),
  });
  return {
    signed,
    async createWriter(name) {
      requireBlobName(name);
      const spool = await SpoolFile.open(spoolDir, PART_BYTES).catch(cause => {
        throw unwritable(cause);
      });
      return new BucketBlobWriter({ client, name, spool, sending, commitMsMax });
    },
    async openRead(name, reading) {
      requireBlobName(name);
      return await readBucketBlob(client, name, bounds, reading);
    },
    async stat(name) {
      requireBlobName(name);
      try {
        const { bytes } = await client.head(name);
        return { bytes };
      } catch (error) {
        if (isMissing(error)) return undefined;
        throw unreadable(error);
      }
    },
    async remove(name) {
      const unfinished = parseUnfinished(name);
      if (unfinished === undefined) requireBlobName(name);
      try {
        await (unfinished === undefined
          ? client.delete(name)
          : client.abortMultipart(unfinished.key, unfinished.uploadId));
      } catch (error) {
        if (!isMissing(error)) throw unwritable(error);
      }
    },
    async *listOlderThan(olderThanMs, part) {
      try {
        yield* listBucketOlderThan(client, olderThanMs, part);
      } catch (error) {
        throw unreadable(error);
      }
    },
    check: () => proof.require(client),
    freeBytes: async () => undefined,
  };
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
      storageRequestEnded(end) {
        proof.learn(end);
        observer?.storageRequestEnded(end);
      },
    });
    await proof.require(client);
    const signed = await createSignedAccess(client);
    return bucketBlobStore(client, proof, signed, { spoolDir, bounds });
  } catch (error) {
    throw unwritable(error);
  }
}
