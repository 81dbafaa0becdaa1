/**
 * The walk over all blobs, for those that no row names. In parts, by their names: its cursor is
 * saved after each, so that another replica goes on there. Within a part it goes on where it
 * stopped as long as this replica holds the lease of the sweep.
 */

import assert from 'node:assert/strict';
import type { BlobPart, BlobStore } from '@matting/storage/blob-store.ts';
import type { SweepWalk } from './sweep-store.ts';

/** A million blobs: a part is 125,000, about half a minute. */
export const WALK_PARTS = 8;
export const WALK_INTERVAL_MS = 3_600_000;
/** No submission or download takes so long from the first byte to the row that names its blob. */
const ORPHAN_AGE_MS = 3_600_000;

export class OrphanWalk {
  readonly #blobStore: Pick<BlobStore, 'listOlderThan'>;
  /** Undefined: none is under way. */
  #part: number | undefined;
  #names: AsyncIterator<string> | undefined;

  constructor(blobStore: Pick<BlobStore, 'listOlderThan'>) {
    this.#blobStore = blobStore;
  }

  get part(): number | undefined {
    return this.#part;
  }

  /** Takes up the walk as the database knows it. True: a new one begins. */
  async takeUp({ part, ageMs }: SweepWalk): Promise<boolean> {
    if (this.#part === part && this.#names !== undefined) return false;
    await this.close();
    const ended = part >= WALK_PARTS;
    if (ended && ageMs !== null && ageMs < WALK_INTERVAL_MS) return false;
    this.#part = ended ? 0 : part;
    return ended || ageMs === null;
  }

  /** Reads the next names of the part; fewer than `count`: it is at its end. */
  async next(count: number): Promise<string[]> {
    const part: BlobPart = { part: this.#requirePart(), of: WALK_PARTS };
    this.#names ??= this.#blobStore.listOlderThan(ORPHAN_AGE_MS, part)[Symbol.asyncIterator]();
    const names: string[] = [];
    try {
      while (names.length < count) {
        const next = await this.#names.next();
        if (next.done) {
          this.#names = undefined;
          break;
        }
        names.push(next.value);
      }
    } catch (error) {
      // The next pass begins this part again.
      this.#names = undefined;
      throw error;
    }
    return names;
  }

  endPart(): number {
    const next = this.#requirePart() + 1;
    this.#part = next === WALK_PARTS ? undefined : next;
    return next;
  }

  #requirePart(): number {
    assert(this.#part !== undefined, 'a part of the walk was taken up');
    return this.#part;
  }

  async close(): Promise<void> {
    const names = this.#names;
    this.#names = undefined;
    this.#part = undefined;
    await names?.return?.();
  }
}
