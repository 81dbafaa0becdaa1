import type { IncomingMessage } from 'node:http';
import { holdBody } from '@matting/http/unread-bodies.ts';
import type { Release, Semaphore } from '@matting/program/semaphore.ts';
import type { BlobStore, BlobWriter } from '@matting/storage/blob-store.ts';

interface Gathering {
  writeGathered(): Promise<void>;
}

/**
 * One slot for all uploads of a request. With one each, requests could wait for each other forever.
 */
export class UploadSlot {
  readonly #blobs: Pick<BlobStore, 'createWriter'>;
  readonly #slots: Semaphore;
  readonly #of: { readonly accountId: string; readonly body: IncomingMessage | undefined };
  #files = 0;
  #release: Release | undefined;
  #gathering: Gathering | undefined;

  constructor(
    blobs: Pick<BlobStore, 'createWriter'>,
    slots: Semaphore,
    of: { readonly accountId: string; readonly body: IncomingMessage | undefined },
  ) {
    this.#blobs = blobs;
    this.#slots = slots;
    this.#of = of;
  }

  /** One upload buffers at a time. */
  async gather(upload: Gathering): Promise<void> {
    const before = this.#gathering;
    this.#gathering = upload;
    if (before !== upload) await before?.writeGathered();
  }

  async #take(): Promise<Release> {
    const { accountId, body } = this.#of;
    const use = { key: accountId };
    if (body === undefined || this.#slots.mayEnter(use)) return await this.#slots.take(use);
    const resume = holdBody(body);
    try {
      return await this.#slots.take(use);
    } finally {
      resume();
    }
  }

  /** The caller closes each writer once. @throws ContractError SERVICE_UNAVAILABLE */
  async openWriter(blob: string): Promise<BlobWriter> {
    if (this.#files === 0) this.#release = await this.#take();
    this.#files += 1;
    try {
      return await this.#blobs.createWriter(blob);
    } catch (error) {
      this.closed();
      throw error;
    }
  }

  closed(): void {
    this.#files -= 1;
    if (this.#files === 0) this.#release?.();
  }
}
