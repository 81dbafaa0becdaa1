/** An attempt's result goes into this blob while it comes in, until it is committed or removed. */
import type { MatteResult } from '@matting/nodes/attempt-outcome.ts';
import type { ResultSink } from '@matting/nodes/matte-client-call.ts';
import type { BlobStore, BlobWriter } from '@matting/storage/blob-store.ts';

export interface ResultBlob {
  readonly blob: string;
  /** Makes it durable, and proves it; if that rejects, the caller removes what is left. */
  commit(result: Pick<MatteResult, 'bytes' | 'sha256'>): Promise<void>;
  abort(): Promise<void>;
}

/** Opens its blob with the first byte: refused attempts cost no file. */
export class BlobSink implements ResultSink, ResultBlob {
  readonly blob: string;
  readonly #blobs: Pick<BlobStore, 'createWriter' | 'stat'>;
  #writer: BlobWriter | undefined;

  constructor(blobs: Pick<BlobStore, 'createWriter' | 'stat'>, blob: string) {
    this.blob = blob;
    this.#blobs = blobs;
  }

  async write(chunk: Uint8Array): Promise<void> {
    this.#writer ??= await this.#blobs.createWriter(this.blob);
    await this.#writer.write(chunk);
  }

  async commit(result: Pick<MatteResult, 'bytes' | 'sha256'>): Promise<void> {
    if (this.#writer === undefined) throw new Error('a result without bytes');
    try {
      await this.#writer.commit();
    } catch (error) {
      await this.#writer.abort();
      throw error;
    }
    await this.#requireStored(result);
  }

  /** A store, or a proxy before it, may answer well and keep nothing. */
  async #requireStored({ bytes, sha256 }: Pick<MatteResult, 'bytes' | 'sha256'>): Promise<void> {
    const stored = await this.#blobs.stat(this.blob);
    if (stored === undefined) throw new Error('the storage does not have what was put there');
    const isSame = stored.bytes === bytes && (stored.sha256 ?? sha256) === sha256;
    if (!isSame) throw new Error('the storage has something else than what was put there');
  }

  async abort(): Promise<void> {
    await this.#writer?.abort();
  }
}
