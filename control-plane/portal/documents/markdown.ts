/** Parses as much of Markdown as the documents use into trees; everything else is text. */

import { type Child, html } from '../page/html.ts';
import type { AddressOf } from './guides.ts';

type Block =
  | { readonly kind: 'heading'; readonly level: number; readonly text: string }
  | { readonly kind: 'code' | 'paragraph'; readonly text: string }
  | { readonly kind: 'list'; readonly items: readonly string[] }
  | { readonly kind: 'steps'; readonly first: number; readonly items: readonly string[] }
  | { readonly kind: 'table'; readonly rows: readonly (readonly string[])[] };

const FENCE = /^```\w*\n([\s\S]*)^```$/m;
const STEP = /\n\d+\. /;
const INDENT = '    ';
const HEADING = /^(#{1,6}) (.*)$/;

/** A heading with what stands below it until the next. */
export interface Section {
  readonly level: number;
  readonly title: string;
  readonly anchor: string;
  readonly blocks: readonly Block[];
}

/** @returns the first with the title of the document */
export function parseMarkdown(markdown: string): readonly Section[] {
  const sections: { level: number; title: string; anchor: string; blocks: Block[] }[] = [];
  for (const block of blocksOf(markdown)) {
    if (block.kind === 'heading') {
      const { level, text } = block;
      sections.push({ level, title: text, anchor: anchorOf(text), blocks: [] });
    } else sections.at(-1)?.blocks.push(block);
  }
  return sections;
}

/** Makes anchors as GitHub does, so that links among the documents hold here and there. */
function anchorOf(title: string): string {
  return title
    .toLowerCase()
    .replaceAll(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');
}

function blocksOf(markdown: string): Block[] {
  // Fences come first, since they may hold empty lines.
  const pieces = markdown.split(/^(```\w*\n[\s\S]*?^```)$/m);
  return pieces.flatMap(piece => {
    const code = FENCE.exec(piece)?.[1];
    if (code !== undefined) return [{ kind: 'code', text: code.trimEnd() } as const];
    const blocks = piece.split(/\n{2,}/).filter(block => block.trim() !== '');
    return blocks.map(toBlock);
  });
}

function toBlock(block: string): Block {
  const text = block.trim();
  const lines = block.split('\n').filter(line => line !== '');
  if (lines.every(line => line.startsWith(INDENT))) {
    return { kind: 'code', text: lines.map(line => line.slice(INDENT.length)).join('\n') };
  }
  const [, marks, words] = HEADING.exec(text) ?? [];
  if (marks && words) return { kind: 'heading', level: marks.length, text: words };
  if (text.startsWith('- ')) return { kind: 'list', items: text.slice(2).split(/\n- /) };
  const [number = '', first] = /^(\d+)\. /.exec(text) ?? [];
  if (first) {
    return { kind: 'steps', first: Number(first), items: text.slice(number.length).split(STEP) };
  }
  if (!text.startsWith('|')) return { kind: 'paragraph', text };
  const [head = '', , ...rows] = text.split('\n');
  return { kind: 'table', rows: [head, ...rows].map(cellsOf) };
}

function cellsOf(row: string): string[] {
  return row.slice(1, row.lastIndexOf('|')).split(' | ');
}

export function renderBlock(block: Block, addressOf: AddressOf): Child {
  const inline = (text: string) => renderInline(text, addressOf);
  switch (block.kind) {
    case 'code':
      return html`<pre tabindex="0"><code>${block.text}</code></pre>`;
    case 'paragraph':
      return html`<p>${inline(block.text)}</p>`;
    case 'list':
      return html`<ul>${block.items.map(item => html`<li>${inline(item)}</li>`)}</ul>`;
    case 'steps':
      return html`<ol start=${block.first}>${block.items.map(item => html`<li>${inline(item)}</li>`)}</ol>`;
    case 'table':
      return renderTable(block.rows, inline);
    case 'heading':
      return undefined;
  }
}

function renderTable(
  [head = [], ...rows]: readonly (readonly string[])[],
  inline: (text: string) => Child,
): Child {
  const cells = (row: readonly string[]) => row.map(cell => html`<td>${inline(cell.trim())}</td>`);
  const isNamed = head.some(name => name.trim() !== '');
  const names = head.map(name => html`<th scope="col">${inline(name.trim())}</th>`);
  return html`<div class="wide" tabindex="0"><table>
${isNamed ? html`<thead><tr>${names}</tr></thead>` : undefined}
<tbody>${rows.map(row => html`<tr>${cells(row)}</tr>`)}</tbody></table></div>`;
}

const INLINE = /(`[^`]+`|!?\[[^\]]+\]\([^)]+\)|\*\*[^*]+\*\*|\*[^*\s][^*]*\*)/;

export function renderInline(text: string, addressOf: AddressOf): Child {
  return html`${text.split(INLINE).map(piece => renderPiece(piece, addressOf))}`;
}

function renderPiece(piece: string, addressOf: AddressOf): Child {
  const [, mark, words = '', target] = /^(!?)\[([^\]]+)\]\(([^)]+)\)$/.exec(piece) ?? [];
  if (target !== undefined) {
    const href = addressOf(target);
    if (mark) return href && html`<img src="${href}" alt="${words}" loading="lazy" />`;
    const inner = renderInline(words, addressOf);
    return href === undefined ? inner : html`<a href="${href}">${inner}</a>`;
  }
  const [, code, strong, soft] = /^(?:`(.+)`|\*\*(.+)\*\*|\*(.+)\*)$/s.exec(piece) ?? [];
  if (code !== undefined) return html`<code>${code}</code>`;
  if (strong !== undefined) return html`<b>${renderInline(strong, addressOf)}</b>`;
  if (soft !== undefined) return html`<em>${renderInline(soft, addressOf)}</em>`;
  return piece;
}
