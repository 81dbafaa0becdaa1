/** Links from a page to its neighbours: the next rows of a list, the pages of one subject. */

import type { VNode } from 'preact';
import { html } from './html.ts';

/**
 * The pages of a list by keyset: forwards, and back to the first.
 * @param places where this page begins, undefined on the first; where the next one does, undefined
 * on the last
 * @param query parameters that every page of the list has
 */
export function pager(
  words: { readonly more: string; readonly first: string; readonly pages: string },
  path: string,
  { after, next }: { readonly after: unknown; readonly next: string | undefined },
  query: Query = {},
): VNode | null {
  if (next === undefined && after === undefined) return null;
  const link = (label: string, place: Query, rel?: string) =>
    html`<a class="button secondary" href=${withQuery(path, { ...query, ...place })} rel=${rel}>${label}</a>`;
  return html`<nav class="pager" aria-label=${words.pages}>
    ${after === undefined ? null : link(words.first, {})}
    ${next === undefined ? null : link(words.more, { after: next }, 'next')}
  </nav>`;
}

type NavLinks = readonly {
  readonly href: string;
  readonly label: string;
  readonly active: boolean;
}[];

/** Links the pages of one subject. */
export function tabs(label: string, links: NavLinks): VNode {
  return linkRow('tabs', label, links);
}

/** Links the few ways of looking at one list or chart, each at one click. */
export function segments(label: string, links: NavLinks): VNode {
  return linkRow('segments', label, links);
}

function linkRow(name: string, label: string, links: NavLinks): VNode {
  return html`<nav class=${name} aria-label=${label}>${links.map(
    link =>
      html`<a href=${link.href} aria-current=${link.active ? 'page' : undefined}>${link.label}</a>`,
  )}</nav>`;
}

type Query = Readonly<Record<string, string | number | undefined>>;

/** Writes the path with these parameters, without those that are undefined or empty. */
export function withQuery(path: string, query: Query): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
  const text = new URLSearchParams(
    Object.fromEntries(given.map(([name, value]) => [name, String(value)])),
  ).toString();
  return text === '' ? path : `${path}?${text}`;
}
