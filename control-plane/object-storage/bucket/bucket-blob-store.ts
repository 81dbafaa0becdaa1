/**
 * Blobs as objects of a bucket, which all replicas share:
 *
 *     <prefix>inputs/<id>       blobs, by their names
 *     <prefix>backgrounds/<id>
 *     <prefix>results/<id>
 *     <prefix>tmp/check-<id>    written and removed, to test the bucket
 *
 * An object appears whole and is never replaced. Its metadata has the SHA-256 of its bytes, which
 * readers of the whole object compare.
 */

import { createHash, type Hash, randomUUID } from 'node:crypto';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { CompletedPart } from '@aws-sdk/client-s3';
import { Semaphore } from '@matting/program/semaphore.ts';
import {
  type BlobStore,
  type BlobWriter,
  isStorageFull,
  requireBlobName,
  requireRoom,
  unreadable,
  unwritable,
} from '@matting/storage/blob-store.ts';
import type { StorageOpening } from '@matting/storage/storage-kind.ts';
import { BucketClient } from './bucket-client.ts';
import {
  BUCKET_BOUNDS,
  type BucketBounds,
  createBucketClients,
  PART_BYTES,
} from './bucket-connections.ts';
import { isAlreadyThere, isMissing, isUnanswered } from './bucket-error.ts';
import {
  BucketProof,
  listBucketOlderThan,
  parseUnfinished,
  readBucketBlob,
} from './bucket-reading.ts';
import { signedReadsOf } from './bucket-signing.ts';
import type { BucketOptions } from './bucket-url.ts';

interface BucketBlobStoreOptions extends StorageOpening {
  readonly bucket: BucketOptions;
  /** Replaces the system's directory for temporary files, in tests. */
  readonly spoolDir?: string;
  readonly bounds?: Partial<BucketBounds>;
}

function bucketBlobStore(
  client: BucketClient,
  proof: BucketProof,
  signRead: BlobStore['signRead'],
  { spoolDir, bounds }: { readonly spoolDir: string; readonly bounds: BucketBounds },
): BlobStore {
  const { commitMsMax } = bounds;
  const sending = new Semaphore({
    max: bounds.sendingBytesMax,
    // Each waiting write already holds a bounded slot: an upload, a download or a job.
    waitingMax: Number.POSITIVE_INFINITY,
    refusal: () => new Error('too many files wait to be sent'),
  });
  return {
    signRead,
    async createWriter(name) {
      requireBlobName(name);
      await requireRoom(spoolDir);
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
        const { bytes, storeSha256 } = await client.head(name);
        return { bytes, ...(storeSha256 === undefined ? {} : { sha256: storeSha256 }) };
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
    async check() {
      await proof.require(client);
      await requireRoom(spoolDir);
    },
    room: async () => undefined,
  };
}

/** Rejects with SERVICE_UNAVAILABLE if the bucket cannot be written. */
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
    // A full storage does not prevent the start, since it can still be read.
    await proof.requireAll(client).catch(error => {
      if (!isStorageFull(error)) throw error;
    });
    return bucketBlobStore(client, proof, await signedReadsOf(client), { spoolDir, bounds });
  } catch (error) {
    throw unwritable(error);
  }
}

const PARTS_AT_ONCE_MAX = 4;
/** Bounds the cleanup of a failed upload, since its caller waits. */
const ABORT_MS_MAX = 5000;

interface Sending {
  /** Hexadecimal, of all bytes. */
  readonly sha256: string;
  readonly signal: AbortSignal;
}

interface BucketWriting {
  readonly client: BucketClient;
  readonly name: string;
  readonly spool: SpoolFile;
  /** Bounds the bytes in memory: a part stays there until its last attempt. */
  readonly sending: Semaphore;
  readonly commitMsMax: number;
}

/**
 * Spools a blob to a file and sends it at the commit. So a write that is never committed (a
 * duplicate request, a refused picture, a failed attempt) costs the store nothing, and a send can
 * be repeated.
 *
 * | state     | entered by   | left by                        |
 * |-----------|--------------|--------------------------------|
 * | open      | createWriter | commit, abort                  |
 * | committed | commit       | -; abort does nothing          |
 * | aborted   | abort        | -; a second abort does nothing |
 *
 * After a failed commit the caller must abort. If the store's answer was lost, the blob may exist;
 * no row names it, and the sweeper removes it.
 */
class BucketBlobWriter implements BlobWriter {
  readonly #writing: BucketWriting;
  #state: 'open' | 'committed' | 'aborted' = 'open';

  constructor(writing: BucketWriting) {
    this.#writing = writing;
  }

  get bytesWritten(): number {
    return this.#writing.spool.bytes;
  }

  async write(chunk: Uint8Array): Promise<void> {
    await this.#writing.spool.append(chunk).catch(cause => {
      throw unwritable(cause);
    });
  }

  async readAt(offset: number, length: number): Promise<Uint8Array> {
    return await this.#writing.spool.read(offset, length).catch(cause => {
      throw unreadable(cause);
    });
  }

  async commit(): Promise<void> {
    const { spool, commitMsMax } = this.#writing;
    const sending = { sha256: spool.sha256(), signal: AbortSignal.timeout(commitMsMax) };
    try {
      await (spool.bytes > PART_BYTES ? this.#sendParts(sending) : this.#sendWhole(sending));
    } catch (cause) {
      throw unwritable(cause);
    }
    this.#state = 'committed';
    await this.#writing.spool.close();
  }

  async abort(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#state = 'aborted';
    await this.#writing.spool.close();
  }

  async #sendWhole({ sha256, signal }: Sending): Promise<void> {
    const { client, name, spool, sending } = this.#writing;
    await sending.run({ weight: spool.bytes, signal }, async () => {
      const bytes = await spool.read(0, spool.bytes);
      await client
        .put(name, { bytes, sha256 }, signal)
        .catch(error => this.#requireOurs(error, sha256));
    });
  }

  async #sendParts({ sha256, signal }: Sending): Promise<void> {
    const { client, name } = this.#writing;
    const uploadId = await client.createMultipart(name, sha256, signal);
    try {
      const parts = await this.#uploadAll(uploadId, signal);
      await client
        .completeMultipart(name, { uploadId, parts }, signal)
        .catch(error => this.#requireOurs(error, sha256));
    } catch (error) {
      await this.#endUpload(uploadId);
      throw error;
    }
  }

  /** Removes the parts, which cost money. If this fails, the sweeper ends the upload. */
  async #endUpload(uploadId: string): Promise<void> {
    const { client, name } = this.#writing;
    const signal = AbortSignal.timeout(ABORT_MS_MAX);
    await client.abortMultipart(name, uploadId, signal).catch(() => undefined);
  }

  async #uploadAll(uploadId: string, signal: AbortSignal): Promise<CompletedPart[]> {
    const { spool } = this.#writing;
    const parts = spool.parts();
    const completed: CompletedPart[] = [];
    const left = parts.entries();
    let failed = false;
    const sendSome = async () => {
      for (const [index, part] of left) {
        if (failed) return;
        try {
          completed[index] = await this.#uploadPart({ uploadId, number: index + 1, part }, signal);
        } catch (error) {
          failed = true;
          throw error;
        }
      }
    };
    const workers = Math.min(PARTS_AT_ONCE_MAX, parts.length);
    // Waits for all even if one fails: no part may arrive after the upload was ended.
    const ends = await Promise.allSettled(Array.from({ length: workers }, sendSome));
    for (const end of ends) if (end.status === 'rejected') throw end.reason;
    return completed;
  }

  async #uploadPart(
    {
      uploadId,
      number,
      part,
    }: { readonly uploadId: string; readonly number: number; readonly part: SpooledPart },
    signal: AbortSignal,
  ): Promise<CompletedPart> {
    const { client, name, spool, sending } = this.#writing;
    const { offset, length, sha256 } = part;
    return await sending.run({ weight: length, signal }, async () => {
      const bytes = await spool.read(offset, length);
      return await client.uploadPart(name, { uploadId, number, bytes, sha256 }, signal);
    });
  }

  /**
   * Accepts an object with equal bytes: an earlier attempt may have written it and lost its answer.
   * A store may also refuse early and close the connection before its answer arrives, so network
   * errors are checked, too.
   */
  async #requireOurs(error: unknown, sha256: string): Promise<void> {
    const { client, name, spool } = this.#writing;
    // If the store does not know the upload, it was completed or never will be.
    if (!isAlreadyThere(error) && !isMissing(error) && !isUnanswered(error)) throw error;
    const there = await client.head(name).catch(() => {
      throw error;
    });
    if (there.notedSha256 !== sha256 || there.bytes !== spool.bytes) throw error;
  }
}

const FILE_MODE = 0o600;

interface SpooledPart {
  readonly offset: number;
  readonly length: number;
  readonly sha256: string;
}

/**
 * Buffers a blob in an unlinked file, which no crash can leave behind. The bytes are only in the
 * system's page cache. It hashes the appended bytes, so the store detects a change of the file.
 */
export class SpoolFile {
  readonly #file: FileHandle;
  readonly #partBytes: number;
  readonly #whole: Hash = createHash('sha256');
  /** Of the current part. */
  #part: Hash = createHash('sha256');
  readonly #ended: string[] = [];
  #bytes = 0;

  private constructor(file: FileHandle, partBytes: number) {
    this.#file = file;
    this.#partBytes = partBytes;
  }

  /** @param partBytes size of the parts that `parts` lists */
  static async open(directory: string, partBytes: number): Promise<SpoolFile> {
    const name = path.join(directory, `matting-spool-${randomUUID()}`);
    const file = await open(name, 'wx+', FILE_MODE);
    try {
      await unlink(name);
    } catch (error) {
      await file.close();
      throw error;
    }
    return new SpoolFile(file, partBytes);
  }

  get bytes(): number {
    return this.#bytes;
  }

  async append(chunk: Uint8Array): Promise<void> {
    let done = 0;
    while (done < chunk.length) {
      const left = chunk.length - done;
      done += (await this.#file.write(chunk, done, left, this.#bytes + done)).bytesWritten;
    }
    let rest = chunk;
    while (rest.length > 0) {
      const piece = rest.subarray(0, this.#partBytes - (this.#bytes % this.#partBytes));
      this.#hash(piece);
      rest = rest.subarray(piece.length);
    }
  }

  #hash(piece: Uint8Array): void {
    const isFirst = this.#bytes < this.#partBytes;
    this.#whole.update(piece);
    if (!isFirst) this.#part.update(piece);
    this.#bytes += piece.length;
    if (this.#bytes % this.#partBytes > 0) return;
    this.#ended.push((isFirst ? this.#whole.copy() : this.#part).digest('hex'));
    this.#part = createHash('sha256');
  }

  /** Hexadecimal, of all appended bytes. */
  sha256(): string {
    return this.#whole.copy().digest('hex');
  }

  /** The last part may be shorter. Empty for an empty file. */
  parts(): readonly SpooledPart[] {
    const hashes = [...this.#ended];
    const isWhole = this.#bytes % this.#partBytes === 0;
    if (!isWhole)
      hashes.push((hashes.length === 0 ? this.#whole : this.#part).copy().digest('hex'));
    return hashes.map((sha256, index) => {
      const offset = index * this.#partBytes;
      return { offset, length: Math.min(this.#partBytes, this.#bytes - offset), sha256 };
    });
  }

  async read(offset: number, length: number): Promise<Buffer> {
    const available = Math.max(0, Math.min(length, this.#bytes - offset));
    const buffer = Buffer.allocUnsafe(available);
    let done = 0;
    while (done < available) {
      const left = available - done;
      const { bytesRead } = await this.#file.read(buffer, done, left, offset + done);
      if (bytesRead === 0) throw new Error('the spool file is shorter than what was written');
      done += bytesRead;
    }
    return buffer;
  }

  async close(): Promise<void> {
    await this.#file.close();
  }
}
