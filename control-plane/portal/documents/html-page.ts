/** A page of HTML without a script and without a byte from elsewhere. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { type Child, html, renderDocument } from '../page/html.ts';

/** How a page of documents looks: one column on a phone, contents beside it on a desk. */
const HTML_PAGE_STYLE = `\n${readFileSync(new URL('html-page.css', import.meta.url), 'utf8')}`;

const NO_ICON = '<link rel="icon" href="data:,">';

const styleHash = createHash('sha256').update(HTML_PAGE_STYLE).digest('base64');

/** For its answer. The one style sheet is named by its hash; nothing else may load or run. */
export const HTML_PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': [
    "default-src 'none'",
    `style-src 'sha256-${styleHash}'`,
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
} as const;

export interface HtmlPage {
  readonly title: string;
  /** With the page's one h1. */
  readonly header: Child;
  /** What goes into the list of contents. */
  readonly contents: Child;
  readonly main: Child;
}

export function renderHtmlPage({ title, header, contents, main }: HtmlPage): string {
  const page = html`<html lang="en">
<head>
<meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<title>${title}</title>
<style></style>
</head>
<body>
<a class="skip" href="#content">To the content</a>
<header>${header}</header>
<nav aria-label="Contents">${contents}</nav>
<main id="content">${main}</main>
</body>
</html>`;
  // A tree takes no address of data, and escapes its text, which a style sheet is not.
  return renderDocument(page).replace('<style>', () => `${NO_ICON}<style>${HTML_PAGE_STYLE}`);
}
