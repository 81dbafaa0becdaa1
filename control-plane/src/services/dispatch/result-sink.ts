/** Where an attempt's result goes while it comes in, until it is committed or removed. */
import type { ResultSink } from '../../nodes/matte-call.ts';
import type { BlobStore, BlobWriter } from '../../storage/blob-store.ts';

/** A result that is complete, and neither kept nor thrown away yet. */
export interface ResultBlob {
  readonly blob: string;
  /** Makes it durable; where that fails nothing is left of it. */
  commit(): Promise<void>;
  abort(): Promise<void>;
}

/** Opens its blob with the first byte: refused attempts cost no file. */
export class BlobSink implements ResultSink, ResultBlob {
  /** What the blob is called once it is committed. */
  readonly blob: string;
  readonly #blobs: Pick<BlobStore, 'createWriter'>;
  #writer: BlobWriter | undefined;

  constructor(blobs: Pick<BlobStore, 'createWriter'>, blob: string) {
    this.blob = blob;
    this.#blobs = blobs;
  }

  async write(chunk: Uint8Array): Promise<void> {
    this.#writer ??= await this.#blobs.createWriter(this.blob);
    await this.#writer.write(chunk);
  }

  /** Makes the result durable; where that fails nothing is left of it. */
  async commit(): Promise<void> {
    if (this.#writer === undefined) throw new Error('a result without bytes');
    try {
      await this.#writer.commit();
    } catch (error) {
      await this.#writer.abort();
      throw error;
    }
  }

  async abort(): Promise<void> {
    await this.#writer?.abort();
  }
}
