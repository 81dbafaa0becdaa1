/** The page of error codes for people: docs/errors.md, where the `type` of every problem leads. */
import { type Child, html } from '../page/html.ts';
import { renderHtmlPage } from './html-page.ts';

/** A heading that is a code is an anchor of its name in lower case, as a problem's `type` names it. */
const CODE = /^[A-Z_]+$/;

/** @param options.docsPath where the whole interface is described */
export function renderErrorsPage(markdown: string, options: { readonly docsPath: string }): string {
  const [first, ...blocks] = parseMarkdown(markdown);
  const title = first?.kind === 'heading' ? first.text : 'Errors';
  const headings = blocks.filter(block => block.kind === 'heading');
  const links = headings.map(({ text }) =>
    CODE.test(text)
      ? html`<a href="#${text.toLowerCase()}"><code>${text}</code></a>`
      : html`<h2>${renderInline(text)}</h2>`,
  );
  return renderHtmlPage({
    title,
    header: html`<h1>${renderInline(title)}</h1>
<p class="soft">The interface: <a href="${options.docsPath}">every call</a>.</p>`,
    contents: html`${links}`,
    main: html`${blocks.map(render)}`,
  });
}

function render(block: Block): Child {
  switch (block.kind) {
    case 'code':
      return html`<pre tabindex="0"><code>${block.text}</code></pre>`;
    case 'paragraph':
      return html`<p>${renderInline(block.text)}</p>`;
    case 'heading':
      return renderHeading(block.text);
  }
}

function renderHeading(text: string): Child {
  if (!CODE.test(text)) return html`<h2>${renderInline(text)}</h2>`;
  return html`<h3 id="${text.toLowerCase()}">${text}</h3>`;
}

/**
 * As much of Markdown as docs/errors.md is written in: headings, paragraphs, fenced code, and
 * inside of them code, emphasis and links. Everything else is text.
 */
type Block =
  | { readonly kind: 'heading'; readonly level: number; readonly text: string }
  | { readonly kind: 'code'; readonly text: string }
  | { readonly kind: 'paragraph'; readonly text: string };

const FENCE = /^```\w*\n([\s\S]*)^```$/m;
const HEADING = /^(#{1,6}) (.*)$/;

function parseMarkdown(markdown: string): Block[] {
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
function renderInline(text: string): Child {
  const pieces = text.split(/(`[^`]+`|\[[^\]]+\]\([^)]+\)|\*[^*\s][^*]*\*)/);
  return html`${pieces.map(renderPiece)}`;
}

function renderPiece(piece: string): Child {
  const [, words, address] = /^\[([^\]]+)\]\(([^)]+)\)$/.exec(piece) ?? [];
  if (address !== undefined) {
    return address.startsWith('#') ? html`<a href="${address}">${words}</a>` : html`${words}`;
  }
  if (/^`.+`$/s.test(piece)) return html`<code>${piece.slice(1, -1)}</code>`;
  if (/^\*.+\*$/s.test(piece)) return html`<em>${piece.slice(1, -1)}</em>`;
  return html`${piece}`;
}
