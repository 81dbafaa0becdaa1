/**
 * Two stores as one, while blobs move from one to the other: what is written goes to the first,
 * what is read comes from wherever it lies, what is removed is removed from both. A mover copies
 * a blob before it removes it, so a reader that finds it in neither asks the first once more.
 */
import { BlobNotFoundError, type BlobStore, type SignedAccess } from './blob-store.ts';

/** Before the name of an unfinished write of the second store, as this one lists it. */
const OF_SECOND = 'fallback:';
const UNFINISHED = /^tmp\//;

/** @param first takes what is written; @param second is read where the first has not the blob */
export function joinBlobStores(first: BlobStore, second: BlobStore): BlobStore {
  return {
    signed: first.signed && signedWhereStored(first, first.signed),
    createWriter: name => first.createWriter(name),
    async openRead(name, reading) {
      for (const store of [first, second]) {
        try {
          return await store.openRead(name, reading);
        } catch (error) {
          if (!(error instanceof BlobNotFoundError)) throw error;
        }
      }
      return await first.openRead(name, reading);
    },
    stat: async name =>
      (await first.stat(name)) ?? (await second.stat(name)) ?? (await first.stat(name)),
    async remove(name) {
      if (name.startsWith(OF_SECOND)) return second.remove(name.slice(OF_SECOND.length));
      await first.remove(name);
      if (!UNFINISHED.test(name)) await second.remove(name);
    },
    async *listOlderThan(olderThanMs, part) {
      yield* first.listOlderThan(olderThanMs, part);
      for await (const name of second.listOlderThan(olderThanMs, part)) {
        yield UNFINISHED.test(name) ? OF_SECOND + name : name;
      }
    },
    /** The second is read from only: it may be full, or read-only. */
    async check() {
      await first.check();
      await second.stat('inputs/none');
    },
    freeBytes: () => first.freeBytes(),
  };
}

/** The first's. A blob that has not moved yet is not there to be read: BlobNotFoundError. */
function signedWhereStored(first: BlobStore, signed: SignedAccess): SignedAccess {
  return {
    ...signed,
    signRead: async (name, reading) => {
      if ((await first.stat(name)) === undefined) throw new BlobNotFoundError(name);
      return await signed.signRead(name, reading);
    },
  };
}
