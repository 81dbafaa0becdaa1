/**
 * The frame of the documents about the interface: contents, search, and no byte from elsewhere.
 * They are open to all and cached by all, so they know no session, and run where there is no
 * account area.
 */

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { ERROR_DOCS_PATH } from '@matting/http/problems.ts';
import { ACCOUNT_PATH, type Child, DOCS_PATH, html, renderDocument } from '../page/html.ts';

export const REST_GUIDE_PATH = '/docs/rest';
export const SCHEMAS_PATH = '/docs/schemas';

/** How a page of documents looks: one column on a phone, contents beside it on a desk. */
const STYLE = readHere('html-page.css');
/** Finds words in all of the documents. */
const SCRIPT = readHere('../assets/find.js');

const NO_ICON = '<link rel="icon" href="data:,">';

function readHere(name: string): string {
  return `\n${readFileSync(new URL(name, import.meta.url), 'utf8')}`;
}

function hashOf(text: string): string {
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}

/** An answer with a page has these headers, which name style sheet and script by their hashes. */
export const HTML_PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': [
    "default-src 'none'",
    `style-src ${hashOf(STYLE)}`,
    `script-src ${hashOf(SCRIPT)}`,
    // The search reads the other documents.
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
} as const;

const PAGES = [
  { href: DOCS_PATH, label: 'Reference' },
  { href: REST_GUIDE_PATH, label: 'Guide' },
  { href: SCHEMAS_PATH, label: 'Schemas' },
  { href: ERROR_DOCS_PATH, label: 'Errors' },
] as const;

interface HtmlPage {
  readonly title: string;
  /** The path is that of one of the documents. */
  readonly path: (typeof PAGES)[number]['href'];
  readonly hasAccountArea: boolean;
  readonly header?: Child;
  readonly contents: Child;
  readonly main: Child;
}

export function renderHtmlPage(page: HtmlPage): string {
  const { title, header, contents, main } = page;
  const document = html`<html lang="en">
<head>
<meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<title>${title}</title>
<style></style>
</head>
<body>
<a class="skip" href="#content">To the content</a>
<header><h1>${title}</h1>${header}</header>
<nav aria-label="Documentation">
${pageLinks(page)}
<div role="search" id="find" hidden>
<label for="words">Search the documentation</label>
<input type="search" id="words" autocomplete="off" spellcheck="false" />
<p role="status" class="soft"></p>
<ol></ol>
</div>
<div class="contents">${contents}</div>
</nav>
<main id="content">${main}</main>
<script type="module"></script>
</body>
</html>`;
  // A tree takes no address of data, and escapes its text, which style and script are not.
  return renderDocument(document)
    .replace('<style>', () => `${NO_ICON}<style>${STYLE}`)
    .replace('<script type="module">', () => `<script type="module">${SCRIPT}`);
}

function pageLinks({ path, hasAccountArea }: HtmlPage): Child {
  const links = PAGES.map(
    ({ href, label }) =>
      html`<li><a href=${href} data-document aria-current=${href === path ? 'page' : undefined}>${label}</a></li>`,
  );
  const account = html`<li><a href=${ACCOUNT_PATH}>Account</a></li>`;
  return html`<ul class="pages">${links}${hasAccountArea ? account : undefined}</ul>`;
}
