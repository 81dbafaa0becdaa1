/**
 * A blob of a bucket while it is written. Its bytes are spooled, and sent by the commit: what is
 * never committed (a request that joins another, a picture that is refused, an attempt that fails)
 * costs the store nothing, and what is sent can be sent again.
 */
import type { CompletedPart } from '@aws-sdk/client-s3';
import type { Semaphore } from '#program/semaphore.ts';
import { type BlobWriter, unreadable, unwritable } from '../../core/storage/blob-store.ts';
import { PART_BYTES } from './bucket-bounds.ts';
import type { BucketClient } from './bucket-client.ts';
import { isAlreadyThere, isMissing, isUnanswered } from './bucket-errors.ts';
import type { SpooledPart, SpoolFile } from './spool-file.ts';

/** Parts of one blob that are under way at once. */
const PARTS_AT_ONCE_MAX = 4;
/** The end of an upload that failed, for whose caller it is not worth more. */
const ABORT_MS_MAX = 5000;

/** What a commit sends. */
interface Sending {
  /** Of all bytes, hexadecimal. */
  readonly sha256: string;
  /** Aborts at the commit's bound. */
  readonly signal: AbortSignal;
}

export interface BucketWriting {
  readonly client: BucketClient;
  readonly name: string;
  readonly spool: SpoolFile;
  /** By bytes: what is being sent is in memory as often as it may have to be sent again. */
  readonly sending: Semaphore;
  readonly commitMsMax: number;
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

  /** What it leaves costs room: where this fails too, the sweeper ends the upload. */
  async #endUpload(uploadId: string): Promise<void> {
    const { client, name } = this.#writing;
    const signal = AbortSignal.timeout(ABORT_MS_MAX);
    // It is counted as a request that failed; the caller is told of what failed before.
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
    const hands = Math.min(PARTS_AT_ONCE_MAX, parts.length);
    // All of them, though one fails: no part may arrive behind the upload's end.
    const ends = await Promise.allSettled(Array.from({ length: hands }, sendSome));
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
   * An attempt whose answer was lost has written it, and the next one met it: the same bytes under
   * this name are ours. A store that refuses before it has read the body may end the connection
   * before its answer has come, so what looks like the network is looked at too.
   */
  async #requireOurs(error: unknown, sha256: string): Promise<void> {
    const { client, name, spool } = this.#writing;
    // An upload that is unknown to the store was completed, or never will be.
    if (!isAlreadyThere(error) && !isMissing(error) && !isUnanswered(error)) throw error;
    const there = await client.head(name).catch(() => {
      throw error;
    });
    if (there.notedSha256 !== sha256 || there.bytes !== spool.bytes) throw error;
  }
}
