/** A page of HTML without a script and without a byte from elsewhere. */
import { createHash } from 'node:crypto';
import { type Child, html, renderDocument } from '../account/page/html.ts';

/** How a page of documents looks: one column on a phone, contents beside it on a desk. */
const HTML_PAGE_STYLE = `
:root { color-scheme: light dark; --ink: #1c2430; --soft: #556070; --paper: #fff; --tint: #f4f6f9;
  --line: #d9dee6; --link: #0b5cad; --get: #0b6b3a; --post: #8a4300; --head: #5b3c9c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --soft: #a3aebd; --paper: #12161c; --tint: #1b212a; --line: #333c49;
    --link: #7db8f5; --get: #63d29a; --post: #f0a860; --head: #b9a2f2; }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; -webkit-text-size-adjust: 100%; }
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); overflow-wrap: anywhere; }
a { color: var(--link); }
a:focus-visible, summary:focus-visible, pre:focus-visible { outline: 3px solid var(--link);
  outline-offset: 2px; }
.skip { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: 1rem; background: var(--paper); padding: .5rem; }
nav { padding: 1rem; background: var(--tint); border: 1px solid var(--line);
  border-width: 1px 0; }
nav h2 { margin: .9rem 0 .2rem; font-size: .95rem; }
nav h2:first-child { margin-top: 0; }
nav ul { list-style: none; margin: 0; padding: 0; }
nav a { display: block; padding: .3rem 0; text-decoration: none; }
nav a:hover { text-decoration: underline; }
nav code { background: none; padding: 0; }
header, main { padding: 1rem; max-width: 56rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.35rem; margin: 2.5rem 0 .5rem; }
main section:first-child h2 { margin-top: .5rem; }
h3 { font-size: 1.1rem; margin: 0 0 .4rem; }
h4 { font-size: 1rem; margin: 1.1rem 0 .3rem; }
p { margin: .4rem 0; }
.soft { color: var(--soft); }
article { border: 1px solid var(--line); border-radius: 8px; padding: 1rem; margin: 1rem 0; }
code, pre { font: .875em/1.5 ui-monospace, Menlo, Consolas, monospace; }
code { background: var(--tint); border-radius: 4px; padding: .1em .3em; }
pre { background: var(--tint); border: 1px solid var(--line); border-radius: 6px; padding: .75rem;
  overflow-x: auto; overflow-wrap: normal; margin: .4rem 0; }
pre code { background: none; padding: 0; font-size: 1em; }
.path { background: none; padding: 0; font-weight: 600; }
.method { font: 700 .8rem/1.5 ui-monospace, monospace; border: 2px solid; border-radius: 4px;
  padding: 0 .4em; margin-right: .4em; }
.get { color: var(--get); } .post { color: var(--post); } .head { color: var(--head); }
dl { margin: .3rem 0; }
dl > div { border-top: 1px solid var(--line); padding: .45rem 0; }
dt { font-weight: 400; } dd { margin: 0; color: var(--soft); }
dt code { font-weight: 600; }
details { border-top: 1px solid var(--line); }
details:last-of-type { border-bottom: 1px solid var(--line); }
summary { cursor: pointer; padding: .5rem .2rem; }
summary b { display: inline-block; min-width: 3.2rem; }
details > div { padding: 0 0 .8rem .8rem; }
@media (min-width: 62rem) {
  body { display: grid; grid-template: "nav header" auto "nav main" 1fr / 19rem minmax(0, 1fr); }
  header { grid-area: header; padding: 1.5rem 2.5rem 0; }
  nav { grid-area: nav; position: sticky; top: 0; height: 100vh; overflow-y: auto;
    border-width: 0 1px 0 0; }
  main { grid-area: main; padding: 1.5rem 2.5rem 4rem; }
  dl > div { display: grid; grid-template-columns: minmax(12rem, 2fr) 3fr; gap: 1rem; }
}
@media print { nav { display: none; } }
`;

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
