/** Renders the part of Markdown that the documents use. The rest, such as HTML, becomes text. */

import { lexer, type MarkedToken, type Token, type Tokens } from 'marked';
import { type Child, html } from '../page/html.ts';
import type { AddressOf } from './guides.ts';

export interface Section {
  readonly level: number;
  readonly title: string;
  readonly words: Child;
  readonly anchor: string;
  readonly blocks: readonly Child[];
}

export function renderSections(markdown: string, addressOf: AddressOf): readonly Section[] {
  const sections: (Section & { blocks: Child[] })[] = [];
  for (const token of lexer(markdown) as MarkedToken[]) {
    if (token.type === 'heading') {
      const { depth: level, text: title } = token;
      const words = renderAll(token.tokens, addressOf);
      sections.push({ level, title, words, anchor: anchorOf(title), blocks: [] });
    } else sections.at(-1)?.blocks.push(renderToken(token, addressOf));
  }
  return sections;
}

/** Makes GitHub's anchors, so that links between documents work at both. */
function anchorOf(title: string): string {
  return title
    .toLowerCase()
    .replaceAll(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');
}

function renderAll(tokens: readonly Token[], addressOf: AddressOf): Child {
  return html`${tokens.map(token => renderToken(token as MarkedToken, addressOf))}`;
}

function renderToken(token: MarkedToken, addressOf: AddressOf): Child {
  const inner = ({ tokens = [] }: { tokens?: Token[] }) => renderAll(tokens, addressOf);
  switch (token.type) {
    case 'space':
      return undefined;
    case 'code':
      return html`<pre tabindex="0"><code>${token.text}</code></pre>`;
    case 'paragraph':
      return html`<p>${inner(token)}</p>`;
    case 'list': {
      const items = token.items.map(item => html`<li>${inner(item)}</li>`);
      return token.ordered ? html`<ol start=${token.start}>${items}</ol>` : html`<ul>${items}</ul>`;
    }
    case 'table':
      return renderTable(token, inner);
    case 'codespan':
      return html`<code>${token.text}</code>`;
    case 'strong':
      return html`<b>${inner(token)}</b>`;
    case 'em':
      return html`<em>${inner(token)}</em>`;
    case 'link': {
      const href = addressOf(token.href);
      return href === undefined ? inner(token) : html`<a href="${href}">${inner(token)}</a>`;
    }
    case 'image': {
      const src = addressOf(token.href);
      return src && html`<img src="${src}" alt="${token.text}" loading="lazy" />`;
    }
    case 'text':
      return token.tokens === undefined ? token.text : inner(token);
    default:
      return token.raw;
  }
}

function renderTable(
  { header, rows }: Tokens.Table,
  inner: (cell: Tokens.TableCell) => Child,
): Child {
  const isNamed = header.some(({ text }) => text !== '');
  const names = header.map(cell => html`<th scope="col">${inner(cell)}</th>`);
  const cells = rows.map(row => html`<tr>${row.map(cell => html`<td>${inner(cell)}</td>`)}</tr>`);
  return html`<div class="wide" tabindex="0"><table>
${isNamed ? html`<thead><tr>${names}</tr></thead>` : undefined}
<tbody>${cells}</tbody></table></div>`;
}
