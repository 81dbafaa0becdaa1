/**
 * What a page shows: tables that become cards on a phone, pairs, figures, pages of a list, tabs,
 * and small things that say a state.
 */
import type { VNode } from 'preact';
import { copyButton } from './forms.ts';
import { type Child, html } from './html.ts';
import { icon } from './icons.ts';

interface Column {
  readonly label: string;
  /** Numbers stand at the end of their column. */
  readonly align?: 'end';
  /** The header is for screen readers alone: a column of buttons. */
  readonly silent?: boolean;
  /** The column gives room to the others: long text is cut by an ellipsis. */
  readonly cut?: boolean;
}

interface TableProps {
  /** What the rows are, read out before them. */
  readonly caption: string;
  readonly columns: readonly Column[];
  /** As many cells a row as there are columns; the first names the row. */
  readonly rows: readonly (readonly Child[])[];
  /** Instead of a table without rows. */
  readonly empty?: Child;
}

/** On a phone every row is a card: the first cell its title, the others with their column's name. */
export function dataTable({ caption, columns, rows, empty }: TableProps): VNode {
  if (rows.length === 0 && empty) return html`<div class="panel">${empty}</div>`;
  const nameOf = ({ align, cut }: Column) =>
    [align === 'end' ? 'end' : '', cut ? 'cut' : ''].filter(name => name !== '').join(' ');
  return html`<div class="panel table" role="region" aria-label=${caption} tabindex="0"><table>
    <caption class="silent">${caption}</caption>
    <thead><tr>${columns.map(
      column =>
        html`<th scope="col" class=${nameOf(column) || undefined}>${
          column.silent ? html`<span class="silent">${column.label}</span>` : column.label
        }</th>`,
    )}</tr></thead>
    <tbody>${rows.map(
      row =>
        html`<tr>${columns.map((column, index) => {
          const name = nameOf(column) || undefined;
          const label = column.silent ? undefined : column.label;
          return index === 0
            ? html`<th scope="row" class=${name}>${row[index]}</th>`
            : html`<td class=${name} data-label=${label}>${inCell(row[index])}</td>`;
        })}</tr>`,
    )}</tbody>
  </table></div>`;
}

/** One box, so that a card on a phone has the column's name beside all of it. */
function inCell(content: Child): Child {
  const isEmpty = content === null || content === undefined || content === false || content === '';
  return isEmpty ? null : html`<div>${content}</div>`;
}

/** Names and values of one thing. Pairs without a value are left out. */
export function definitionList(pairs: readonly (readonly [label: string, value: Child])[]): VNode {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined);
  return html`<dl class="panel pairs">${shown.map(
    ([label, value]) => html`<div><dt>${label}</dt><dd>${value}</dd></div>`,
  )}</dl>`;
}

interface Figure {
  readonly label: string;
  readonly value: Child;
  readonly note?: Child;
}

/** The few figures that a page is about. */
export function figures(list: readonly Figure[]): VNode {
  return html`<dl class="figures">${list.map(
    ({ label, value, note }) => html`<div class="panel">
      <dt>${label}</dt><dd class="figure">${value}</dd>${note ? html`<dd class="hint">${note}</dd>` : null}
    </div>`,
  )}</dl>`;
}

/**
 * The pages of a list by keyset: forwards, and back to the first.
 * @param next the address behind the last row; undefined at the end
 * @param first the address of the first page; undefined on it
 */
export function pager(
  words: { readonly more: string; readonly first: string; readonly pages: string },
  { next, first }: { readonly next?: string | undefined; readonly first?: string | undefined },
): VNode | null {
  if (next === undefined && first === undefined) return null;
  return html`<nav class="pager" aria-label=${words.pages}>
    ${first === undefined ? null : html`<a class="button secondary" href=${first}>${words.first}</a>`}
    ${next === undefined ? null : html`<a class="button secondary" href=${next} rel="next">${words.more}</a>`}
  </nav>`;
}

/** The parts of one page of the navigation, each with an address of its own. */
export function tabs(
  label: string,
  links: readonly { readonly href: string; readonly label: string; readonly active: boolean }[],
): VNode {
  return html`<nav class="tabs" aria-label=${label}>${links.map(
    link =>
      html`<a href=${link.href} aria-current=${link.active ? 'page' : undefined}>${link.label}</a>`,
  )}</nav>`;
}

/** A part of a page with a heading of its own. */
export function section(
  props: { readonly title: string; readonly lead?: Child; readonly actions?: Child },
  ...children: Child[]
): VNode {
  const { title, lead, actions } = props;
  return html`<section class="section">
    <div class="section-head">
      <div><h2>${title}</h2>${lead ? html`<p class="lead">${lead}</p>` : null}</div>
      ${actions ? html`<div class="actions">${actions}</div>` : null}
    </div>
    ${children}
  </section>`;
}

/** A framed area. */
export function panel(...children: Child[]): VNode {
  return html`<div class="panel padded">${children}</div>`;
}

/** The address with other parameters; undefined takes one out. Keeps the order of the old ones. */
export function withQuery(
  path: string,
  query: Readonly<Record<string, string | number | undefined>>,
): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
  const text = new URLSearchParams(
    Object.fromEntries(given.map(([name, value]) => [name, String(value)])),
  ).toString();
  return text === '' ? path : `${path}?${text}`;
}

export type Tone = 'neutral' | 'good' | 'warning' | 'bad' | 'accent';

/** One or two words about a row: its state. */
export function badge(label: string, tone: Tone = 'neutral'): VNode {
  return html`<span class=${`badge ${tone}`}>${label}</span>`;
}

/** A message about the whole page; a bad one is read out at once. */
export function notice(tone: Tone, ...children: Child[]): VNode {
  const name =
    tone === 'good' ? 'check' : tone === 'bad' || tone === 'warning' ? 'warning' : 'info';
  return html`<div class=${`notice ${tone}`} role=${tone === 'bad' ? 'alert' : 'status'}>
    ${icon(name)}<div>${children}</div>
  </div>`;
}

/** Where a list has no rows: what would be here, and how to begin. */
export function emptyState(props: {
  readonly title: string;
  readonly text?: Child;
  readonly action?: Child;
}): VNode {
  const { title, text, action } = props;
  return html`<div class="empty">
    <p class="empty-title">${title}</p>
    ${text ? html`<p>${text}</p>` : null}
    ${action ? html`<div class="actions">${action}</div>` : null}
  </div>`;
}

/** A time that machines and people read. @param text as a formatter wrote it, in UTC */
export function time(instantMs: number, text: string): VNode {
  return html`<time datetime=${new Date(instantMs).toISOString()}>${text}</time>`;
}

/** @param at milliseconds or ISO 8601 @param none where there is no time */
export function timeOr<T extends Child>(
  at: number | string | null,
  format: (instantMs: number) => string,
  none: T,
): VNode | T {
  if (at === null) return none;
  const instantMs = typeof at === 'string' ? Date.parse(at) : at;
  return time(instantMs, format(instantMs));
}

/** A text of a machine that people copy: commands, secrets, addresses. */
export function codeBlock(
  text: string,
  words: { readonly copy: string; readonly copied: string },
  label?: string,
): VNode {
  return html`<div class="code">
    <pre tabindex="0" aria-label=${label} role=${label === undefined ? undefined : 'region'}><code>${text}</code></pre>
    ${copyButton(text, words)}
  </div>`;
}
