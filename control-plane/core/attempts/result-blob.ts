/** Receives an attempt's result until it is committed or removed. */
import type { MatteResult } from '@matting/nodes/attempt-outcome.ts';
import type { ResultSink } from '@matting/nodes/matte-client-call.ts';
import type { BlobStore, BlobWriter } from '@matting/storage/blob-store.ts';

export interface ResultBlob {
  readonly blob: string;
  /** Makes the result durable and checks it. If that rejects, the caller removes the blob. */
  commit(result: Pick<MatteResult, 'bytes' | 'sha256'>): Promise<void>;
  abort(): Promise<void>;
}

/** Creates its blob with the first byte, so refused attempts cost no file. */
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

  /** A store, or a proxy in front of it, may answer success and keep nothing. */
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
