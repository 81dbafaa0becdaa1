/**
 * As much of Markdown as docs/errors.md is written in: headings, paragraphs, fenced code, and
 * inside of them code, emphasis and links. Everything else is text.
 */
import { type Html, html } from './html.ts';

export type Block =
  | { readonly kind: 'heading'; readonly level: number; readonly text: string }
  | { readonly kind: 'code'; readonly text: string }
  | { readonly kind: 'paragraph'; readonly text: string };

const FENCE = /^```\w*\n([\s\S]*)^```$/m;
const HEADING = /^(#{1,6}) (.*)$/;

export function parseMarkdown(markdown: string): Block[] {
  // Fences first: what is inside of them may hold empty lines.
  const pieces = markdown.split(/^(```\w*\n[\s\S]*?^```)$/m);
  return pieces.flatMap(piece => {
    const code = FENCE.exec(piece)?.[1];
    if (code !== undefined) return [{ kind: 'code', text: code } as const];
    const blocks = piece.split(/\n{2,}/).map(block => block.trim());
    return blocks.filter(block => block !== '').map(toBlock);
  });
}

function toBlock(text: string): Block {
  const [, marks, words] = HEADING.exec(text) ?? [];
  if (marks === undefined || words === undefined) return { kind: 'paragraph', text };
  return { kind: 'heading', level: marks.length, text: words };
}

/** The text of a heading or a paragraph. Links to other files of the sources lose their address. */
export function renderInline(text: string): Html {
  const pieces = text.split(/(`[^`]+`|\[[^\]]+\]\([^)]+\)|\*[^*\s][^*]*\*)/);
  return html`${pieces.map(renderPiece)}`;
}

function renderPiece(piece: string): Html {
  const [, words, address] = /^\[([^\]]+)\]\(([^)]+)\)$/.exec(piece) ?? [];
  if (address !== undefined) {
    return address.startsWith('#') ? html`<a href="${address}">${words}</a>` : html`${words}`;
  }
  if (/^`.+`$/s.test(piece)) return html`<code>${piece.slice(1, -1)}</code>`;
  if (/^\*.+\*$/s.test(piece)) return html`<em>${piece.slice(1, -1)}</em>`;
  return html`${piece}`;
}
