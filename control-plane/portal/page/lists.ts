/**
 * What a page shows: tables that become cards on a phone, pairs, figures, pages of a list, tabs,
 * and small things that say a state.
 */
import type { VNode } from 'preact';
import { copyButton } from './forms.ts';
import { type Child, html } from './html.ts';
import { icon } from './icons.ts';

/** Its label alone; or with how it stands. */
type Column = string | ColumnProps;

interface ColumnProps {
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
  const shown: ColumnProps[] = columns.map(one => (typeof one === 'string' ? { label: one } : one));
  const nameOf = ({ align, cut }: ColumnProps) => align ?? (cut ? 'cut' : undefined);
  return html`<div class="panel table" role="region" aria-label=${caption} tabindex="0"><table>
    <caption class="silent">${caption}</caption>
    <thead><tr>${shown.map(
      column =>
        html`<th scope="col" class=${nameOf(column)}>${
          column.silent ? html`<span class="silent">${column.label}</span>` : column.label
        }</th>`,
    )}</tr></thead>
    <tbody>${rows.map(
      row =>
        html`<tr>${shown.map((column, index) => {
          const name = nameOf(column);
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
 * @param places where this page begins, undefined on the first; where the next one does, undefined
 * on the last
 * @param query what every page of the list is asked with
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

type Query = Readonly<Record<string, string | number | undefined>>;

/** The address with these parameters, but those that are undefined or empty. */
export function withQuery(path: string, query: Query): string {
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

/**
 * A time that machines and people read.
 * @param at milliseconds or ISO 8601 @param none where there is no time
 */
export function time(
  at: number | string | null,
  format: (instantMs: number) => string,
  none: Child = null,
): Child {
  if (at === null) return none;
  const instant = new Date(at);
  return html`<time datetime=${instant.toISOString()}>${format(instant.getTime())}</time>`;
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
