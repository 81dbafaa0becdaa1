/** The page of error codes for people: docs/errors.md, where the `type` of every problem leads. */
import { type Html, html } from './html.ts';
import { renderHtmlPage } from './html-page.ts';
import { type Block, parseMarkdown, renderInline } from './markdown.ts';

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

function render(block: Block): Html {
  switch (block.kind) {
    case 'code':
      return html`<pre tabindex="0"><code>${block.text}</code></pre>\n`;
    case 'paragraph':
      return html`<p>${renderInline(block.text)}</p>\n`;
    case 'heading':
      return renderHeading(block.text);
  }
}

function renderHeading(text: string): Html {
  if (!CODE.test(text)) return html`<h2>${renderInline(text)}</h2>\n`;
  return html`<h3 id="${text.toLowerCase()}">${text}</h3>\n`;
}
