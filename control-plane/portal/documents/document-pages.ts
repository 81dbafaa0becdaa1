/**
 * The documents about the interface as pages for people: the OpenAPI document with a quick start,
 * the guide of docs/rest.md, and docs/errors.md, where the `type` of every problem leads.
 */

import { readFileSync } from 'node:fs';
import type { HttpInterface } from '@matting/core/package.ts';
import { ERROR_DOCS_PATH } from '@matting/http/problems.ts';
import { ACCOUNT_PATH, type Child, DOCS_PATH, html } from '../page/html.ts';
import { HTML_PAGE_HEADERS, REST_GUIDE_PATH, renderHtmlPage, SCHEMAS_PATH } from './html-page.ts';
import { renderDocsPage, renderSchemasPage } from './interface-page.ts';
import {
  type AddressOf,
  parseMarkdown,
  renderBlock,
  renderInline,
  type Section,
} from './markdown.ts';

const REST_GUIDE = new URL('../../../docs/rest.md', import.meta.url);

/** Documents name these pages by their files. */
const PAGES: Readonly<Record<string, string>> = {
  'rest.md': REST_GUIDE_PATH,
  'errors.md': ERROR_DOCS_PATH,
};

const addressOf: AddressOf = target => {
  if (/^(?:#|https:\/\/)/.test(target)) return target;
  const [file = '', anchor] = target.split('#');
  const page = PAGES[file];
  return page && anchor ? `${page}#${anchor}` : page;
};

/** Links beside it lead to its sections of the second level, and to those of codes. */
export function renderMarkdownPage(
  markdown: string,
  page: { readonly path: typeof ERROR_DOCS_PATH | typeof REST_GUIDE_PATH; hasAccountArea: boolean },
): string {
  const [top, ...sections] = parseMarkdown(markdown);
  const listed = sections.filter(({ level, title }) => level === 2 || isCode(title));
  const links = listed.map(({ title, anchor }) => {
    const words = isCode(title) ? html`<code>${title}</code>` : inline(title);
    return html`<li><a href="#${anchor}">${words}</a></li>`;
  });
  return renderHtmlPage({
    ...page,
    title: top?.title ?? '',
    contents: html`<ul>${links}</ul>`,
    main: html`${top?.blocks.map(block => renderBlock(block, addressOf))}${sections.map(renderSection)}`,
  });
}

/** Its anchor is its name in lower case, as a problem's `type` names it. */
function isCode(title: string): boolean {
  return /^[A-Z_]+$/.test(title);
}

function inline(text: string): Child {
  return renderInline(text, addressOf);
}

function renderSection({ level, title, anchor, blocks }: Section): Child {
  const heading = level === 2 ? html`<h2>${inline(title)}</h2>` : html`<h3>${inline(title)}</h3>`;
  return html`<section id="${anchor}">${heading}${blocks.map(block => renderBlock(block, addressOf))}</section>`;
}

export function documentPages(options: {
  readonly hasAccountArea: boolean;
}): NonNullable<HttpInterface['documentPages']> {
  const { hasAccountArea } = options;
  return {
    headers: HTML_PAGE_HEADERS,
    homePath: hasAccountArea ? ACCOUNT_PATH : DOCS_PATH,
    docsPath: DOCS_PATH,
    renderErrors: markdown =>
      renderMarkdownPage(markdown, { path: ERROR_DOCS_PATH, hasAccountArea }),
    pages: {
      [DOCS_PATH]: document => renderDocsPage(document, options),
      [SCHEMAS_PATH]: document => renderSchemasPage(document, options),
      [REST_GUIDE_PATH]: () =>
        renderMarkdownPage(readFileSync(REST_GUIDE, 'utf8'), {
          path: REST_GUIDE_PATH,
          hasAccountArea,
        }),
    },
  };
}
