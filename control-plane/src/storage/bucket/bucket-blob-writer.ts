/**
 * A blob of a bucket while it is written. Its bytes are spooled, and sent by the commit: what is
 * never committed (a request that joins another, a picture that is refused, an attempt that fails)
 * costs the store nothing, and what is sent can be sent again.
 */
import type { CompletedPart } from '@aws-sdk/client-s3';
import type { BlobWriter } from '../blob-store.ts';
import { unreadable, unwritable } from '../storage-errors.ts';
import type { BucketClient } from './bucket-client.ts';
import { isAlreadyThere, isMissing } from './bucket-errors.ts';
import type { ByteTurns } from './byte-turns.ts';
import type { SpooledPart, SpoolFile } from './spool-file.ts';

/** Above it a blob is sent in parts of this size, each with its own attempts. */
export const PART_BYTES = 8 * 1024 * 1024;
/** Parts of one blob that are under way at once. */
const PARTS_AT_ONCE_MAX = 4;

export interface BucketWriting {
  readonly client: BucketClient;
  readonly name: string;
  readonly spool: SpoolFile;
  readonly turns: ByteTurns;
}

/**
 * | state     | entered by   | left by                        |
 * |-----------|--------------|--------------------------------|
 * | open      | createWriter | commit, abort                  |
 * | committed | commit       | -; abort does nothing          |
 * | aborted   | abort        | -; a second abort does nothing |
 *
 * A commit that fails leaves it open: the caller aborts. The blob may be there all the same, where
 * the store's answer was lost; no row names it then, and the sweeper finds it.
 */
export class BucketBlobWriter implements BlobWriter {
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
    const { spool } = this.#writing;
    try {
      const sha256 = spool.sha256();
      await (spool.bytes > PART_BYTES ? this.#sendParts(sha256) : this.#sendWhole(sha256));
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

  async #sendWhole(sha256: string): Promise<void> {
    const { client, name, spool, turns } = this.#writing;
    await turns.take(spool.bytes, async () => {
      const bytes = await spool.read(0, spool.bytes);
      await client.put(name, { bytes, sha256 }).catch(error => this.#requireOurs(error, sha256));
    });
  }

  async #sendParts(sha256: string): Promise<void> {
    const { client, name } = this.#writing;
    const uploadId = await client.createMultipart(name, sha256);
    try {
      const parts = await this.#uploadAll(uploadId);
      await client
        .completeMultipart(name, uploadId, parts)
        .catch(error => this.#requireOurs(error, sha256));
    } catch (error) {
      // What it leaves costs room: where this fails too, the sweeper ends the upload.
      await client.abortMultipart(name, uploadId).catch(() => undefined);
      throw error;
    }
  }

  async #uploadAll(uploadId: string): Promise<CompletedPart[]> {
    const { spool } = this.#writing;
    const parts = spool.parts();
    const completed: CompletedPart[] = [];
    const left = parts.entries();
    let failed = false;
    const sendSome = async () => {
      for (const [index, part] of left) {
        if (failed) return;
        try {
          completed[index] = await this.#uploadPart(uploadId, index + 1, part);
        } catch (error) {
          failed = true;
          throw error;
        }
      }
    };
    const hands = Math.min(PARTS_AT_ONCE_MAX, parts.length);
    // All of them, though one fails: no part may arrive behind the upload's end.
    const ends = await Promise.allSettled(Array.from({ length: hands }, sendSome));
    for (const end of ends) if (end.status === 'rejected') throw end.reason;
    return completed;
  }

  async #uploadPart(uploadId: string, number: number, part: SpooledPart): Promise<CompletedPart> {
    const { client, name, spool, turns } = this.#writing;
    const { offset, length, sha256 } = part;
    return await turns.take(length, async () => {
      const bytes = await spool.read(offset, length);
      return await client.uploadPart(name, { uploadId, number, bytes, sha256 });
    });
  }

  /**
   * An attempt whose answer was lost has written it, and the next one met it: the same bytes under
   * this name are ours.
   */
  async #requireOurs(error: unknown, sha256: string): Promise<void> {
    const { client, name, spool } = this.#writing;
    if (!isAlreadyThere(error) && !isMissing(error)) throw error;
    const there = await client.head(name).catch(cause => {
      // An upload that is unknown to the store was completed, or never will be.
      throw isMissing(cause) ? error : cause;
    });
    if (there.notedSha256 !== sha256 || there.bytes !== spool.bytes) throw error;
  }
}
