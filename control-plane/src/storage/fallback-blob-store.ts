/**
 * Two stores as one, while blobs move from one to the other: what is written goes to the first,
 * what is read comes from wherever it lies, what is removed is removed from both. A mover copies
 * a blob before it removes it, so a reader that finds it in neither asks the first once more.
 */
import type { Readable } from 'node:stream';
import {
  BlobNotFoundError,
  type BlobPart,
  type BlobReading,
  type BlobStore,
  type BlobWriter,
  type SignedAccess,
} from './blob-store.ts';

/** Before the name of an unfinished write of the second store, as this one lists it. */
const OF_SECOND = 'fallback:';
const UNFINISHED = /^tmp\//;

class FallbackBlobStore implements BlobStore {
  readonly signed: SignedAccess | undefined;
  readonly #first: BlobStore;
  readonly #second: BlobStore;

  constructor(first: BlobStore, second: BlobStore) {
    this.#first = first;
    this.#second = second;
    this.signed = first.signed && signedWhereStored(first, first.signed);
  }

  createWriter(name: string): Promise<BlobWriter> {
    return this.#first.createWriter(name);
  }

  async openRead(name: string, reading?: BlobReading): Promise<Readable> {
    for (const store of [this.#first, this.#second]) {
      try {
        return await store.openRead(name, reading);
      } catch (error) {
        if (!(error instanceof BlobNotFoundError)) throw error;
      }
    }
    return await this.#first.openRead(name, reading);
  }

  async stat(name: string): Promise<{ readonly bytes: number } | undefined> {
    return (
      (await this.#first.stat(name)) ??
      (await this.#second.stat(name)) ??
      (await this.#first.stat(name))
    );
  }

  async remove(name: string): Promise<void> {
    if (name.startsWith(OF_SECOND)) return this.#second.remove(name.slice(OF_SECOND.length));
    await this.#first.remove(name);
    if (!UNFINISHED.test(name)) await this.#second.remove(name);
  }

  async *listOlderThan(olderThanMs: number, part?: BlobPart): AsyncGenerator<string> {
    yield* this.#first.listOlderThan(olderThanMs, part);
    for await (const name of this.#second.listOlderThan(olderThanMs, part)) {
      yield UNFINISHED.test(name) ? OF_SECOND + name : name;
    }
  }

  /** The second is read from only: it may be full, or read-only. */
  async check(): Promise<void> {
    await this.#first.check();
    await this.#second.stat('inputs/none');
  }

  freeBytes(): Promise<number | undefined> {
    return this.#first.freeBytes();
  }
}

/** The first's. A blob that has not moved yet is not there to be read: BlobNotFoundError. */
function signedWhereStored(first: BlobStore, signed: SignedAccess): SignedAccess {
  return {
    origin: signed.origin,
    signRead: async (name, reading) => {
      if ((await first.stat(name)) === undefined) throw new BlobNotFoundError(name);
      return await signed.signRead(name, reading);
    },
    signWrite: (name, writing) => signed.signWrite(name, writing),
    stored: name => signed.stored(name),
  };
}

/** @param first takes what is written; @param second is read where the first has not the blob */
export function joinBlobStores(first: BlobStore, second: BlobStore): BlobStore {
  return new FallbackBlobStore(first, second);
}
