/** Lists by keyset: which rows are a page, and the text by which an address says where the next begins. */
import type { PageCursor } from '@matting/core/ledger/ledger-pages.ts';

const PLACE = /^(\d{1,15})-([0-9a-z]{1}[0-9a-f]{7}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

export function cursorText({ atMs, id }: PageCursor): string {
  return `${atMs}-${id}`;
}

/** Undefined: it is none. */
export function parseCursor(text: string): PageCursor | undefined {
  const [, atMs, id] = PLACE.exec(text) ?? [];
  return id === undefined ? undefined : { atMs: Number(atMs), id };
}

/**
 * @param found one more than `max` where there is a next page
 * @returns last: behind which the next page begins; undefined: there is none
 */
export function pageOf<T>(found: readonly T[], max: number) {
  return { rows: found.slice(0, max), last: found.length > max ? found[max - 1] : undefined };
}
