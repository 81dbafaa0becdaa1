/** Where a page of a list begins, as text for a link. */
import type { PagePlace } from '../../store/ledger/ledger-pages.ts';

const PLACE = /^(\d{1,15})-([0-9a-z]{1}[0-9a-f]{7}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

export function placeText({ atMs, id }: PagePlace): string {
  return `${atMs}-${id}`;
}

/** Undefined: it is none. */
export function parsePlace(text: string): PagePlace | undefined {
  const [, atMs, id] = PLACE.exec(text) ?? [];
  return id === undefined ? undefined : { atMs: Number(atMs), id };
}
