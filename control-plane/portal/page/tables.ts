/** A page shows rows as tables, pairs of a name and a value, or figures. */

import type { VNode } from 'preact';
import { type Child, html } from './html.ts';

/** Shows a row's id in its last column: the first eight digits tell rows apart. */
export function shortId(id: string): VNode {
  return html`<span class="mono soft" title=${id}>${id.slice(0, 8)}</span>`;
}

export type Column = string | ColumnProps;

interface ColumnProps {
  readonly label: string;
  readonly align?: 'end';
  readonly silent?: boolean;
  /** The column gives room to the others: long text is cut by an ellipsis. */
  readonly cut?: boolean;
}

/** Numbers stand at the end of their column. */
export function end(label: string): Column {
  return { label, align: 'end' };
}

interface TableProps {
  readonly caption: string;
  readonly columns: readonly Column[];
  /** A row has as many cells as there are columns; the first names the row. */
  readonly rows: readonly (readonly Child[])[];
  readonly empty?: Child;
  /** On a phone a row is two lines: the first and the third cell, then the others. */
  readonly isCompact?: boolean;
}

/**
 * Shows every row as a card on a phone: the first cell is its title, the others have column names.
 */
export function dataTable({ caption, columns, rows, empty, isCompact }: TableProps): VNode {
  if (rows.length === 0 && empty) return html`<div class="panel">${empty}</div>`;
  const shown: ColumnProps[] = columns.map(one => (typeof one === 'string' ? { label: one } : one));
  const nameOf = ({ align, cut }: ColumnProps) => align ?? (cut ? 'cut' : undefined);
  return html`<div class=${`panel table${isCompact ? ' compact' : ''}`} role="region" aria-label=${caption} tabindex="0"><table>
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

/** One box holds the content, so that a card on a phone has the column's name beside all of it. */
function inCell(content: Child): Child {
  const isEmpty = content === null || content === undefined || content === false || content === '';
  return isEmpty ? null : html`<div>${content}</div>`;
}

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
  /** bad: somebody should look at it. */
  readonly tone?: 'bad' | undefined;
}

export function figures(list: readonly Figure[]): VNode {
  const shown = list.map(({ label, value, note, tone }) => {
    return html`<div class=${tone === undefined ? 'panel' : `panel ${tone}`}>
      <dt>${label}</dt><dd class="figure">${value}</dd>${note ? html`<dd class="hint">${note}</dd>` : null}
    </div>`;
  });
  return html`<dl class="figures">${shown}</dl>`;
}

/** Says, if a list has no rows, what would be here and how to begin. */
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
