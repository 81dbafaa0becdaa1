/** A page of HTML without a script and without a byte from elsewhere. */
import { createHash } from 'node:crypto';
import { Html, html } from './html.ts';
import { HTML_PAGE_STYLE } from './html-page-style.ts';

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
  readonly header: Html;
  /** What goes into the list of contents. */
  readonly contents: Html;
  readonly main: Html;
}

export function renderHtmlPage({ title, header, contents, main }: HtmlPage): string {
  const { text } = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<link rel="icon" href="data:,">
<style>${new Html(HTML_PAGE_STYLE)}</style>
</head>
<body>
<a class="skip" href="#content">To the content</a>
<header>
${header}
</header>
<nav aria-label="Contents">${contents}</nav>
<main id="content">
${main}
</main>
</body>
</html>
`;
  return text;
}
