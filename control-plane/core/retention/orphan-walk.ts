/**
 * Searches all blobs, in parts by name, for those that no row names. The next part is saved, so any
 * replica can continue.
 */

import assert from 'node:assert/strict';
import type { BlobPart, BlobStore } from '@matting/storage/blob-store.ts';
import type { SweepWalk } from './sweep-store.ts';

/** With a million blobs a part is 125,000, about half a minute. */
export const WALK_PARTS = 8;
export const WALK_INTERVAL_MS = 3_600_000;
/** Longer than any time from a blob's first byte to the row that names it. */
const ORPHAN_AGE_MS = 3_600_000;

export class OrphanWalk {
  readonly #blobStore: Pick<BlobStore, 'listOlderThan'>;
  #part: number | undefined;
  #names: AsyncIterator<string> | undefined;

  constructor(blobStore: Pick<BlobStore, 'listOlderThan'>) {
    this.#blobStore = blobStore;
  }

  get part(): number | undefined {
    return this.#part;
  }

  /** @returns true if a new walk begins */
  async takeUp({ part, ageMs }: SweepWalk): Promise<boolean> {
    if (this.#part === part && this.#names !== undefined) return false;
    await this.close();
    const ended = part >= WALK_PARTS;
    if (ended && ageMs !== null && ageMs < WALK_INTERVAL_MS) return false;
    this.#part = ended ? 0 : part;
    return ended || ageMs === null;
  }

  /** @returns fewer than `count` names at the end of the part */
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
