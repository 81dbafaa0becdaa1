import type { VNode } from 'preact';
import { html } from './html.ts';

/**
 * Links to the next page and back to the first one. `after` is undefined on the first page, `next`
 * on the last.
 * @param query parameters that every page of the list keeps
 */
export function pager(
  words: { readonly more: string; readonly first: string; readonly pages: string },
  path: string,
  { after, next }: { readonly after: unknown; readonly next: string | undefined },
  query: Query = {},
): VNode | null {
  if (next === undefined && after === undefined) return null;
  const link = (label: string, target: Query, rel?: string) =>
    html`<a class="button secondary" href=${withQuery(path, { ...query, ...target })} rel=${rel}>${label}</a>`;
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

export function tabs(label: string, links: NavLinks): VNode {
  return linkRow('tabs', label, links);
}

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

export function withQuery(path: string, query: Query): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
  const text = new URLSearchParams(
    Object.fromEntries(given.map(([name, value]) => [name, String(value)])),
  ).toString();
  return text === '' ? path : `${path}?${text}`;
}
