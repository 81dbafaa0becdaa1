import type { VNode } from 'preact';
import { type Child, html } from './html.ts';

export function shortId(id: string): VNode {
  return html`<span class="mono soft" title=${id}>${id.slice(0, 8)}</span>`;
}

export type Column = string | ColumnProps;

interface ColumnProps {
  readonly label: string;
  readonly align?: 'end';
  readonly silent?: boolean;
  /** Gives room to the other columns: an ellipsis cuts long text. */
  readonly cut?: boolean;
}

export function end(label: string): Column {
  return { label, align: 'end' };
}

interface TableProps {
  readonly caption: string;
  readonly columns: readonly Column[];
  readonly rows: readonly (readonly Child[])[];
  readonly empty?: Child;
  /** On a phone a row has two lines: the first and the third cell, then the others. */
  readonly isCompact?: boolean;
}

/** On a phone a row is a card: the first cell is its title, the others have the columns' names. */
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

/** One box holds the content, so that the column's name on a card is next to all of it. */
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
