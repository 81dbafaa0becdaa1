import type { FastifyRequest } from 'fastify';
import { PageError, queryText } from '../session/visit.ts';

/** The instant and the id of the last row of a page. */
export interface PageCursor {
  readonly atMs: number;
  readonly id: string;
}

const CURSOR = /^(\d{1,15})-([0-9a-z]{1}[0-9a-f]{7}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

export function cursorText({ atMs, id }: PageCursor): string {
  return `${atMs}-${id}`;
}

export function parseCursor(text: string): PageCursor | undefined {
  const [, atMs, id] = CURSOR.exec(text) ?? [];
  return id === undefined ? undefined : { atMs: Number(atMs), id };
}

/**
 * @param found has one row more than `max` if there is a next page
 * @returns last: the cursor row of the next page; undefined: there is none
 */
export function pageOf<T>(found: readonly T[], max: number) {
  return { rows: found.slice(0, max), last: found.length > max ? found[max - 1] : undefined };
}

/** Undefined: the first page. @throws PageError */
export function cursorOf(request: FastifyRequest): PageCursor | undefined {
  const text = queryText(request, 'after');
  const cursor = parseCursor(text);
  if (text !== '' && cursor === undefined) throw new PageError('badForm');
  return cursor;
}
