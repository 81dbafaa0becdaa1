/** The documents under /docs: quick start, calls and schemas of OpenAPI, and guides. */

import { OPENAPI_PATH } from '@matting/http/known-paths.ts';
import { shortCurl } from '@matting/proto/contract/curl-sample.ts';
import type { Brand } from '../page/brand.ts';
import { type Child, DOCS_PATH, html } from '../page/html.ts';
import { addressesIn, GUIDES, type Guide, guidePath, linkMarkdown, readGuide } from './guides.ts';
import {
  CLIENT_PATH,
  type DocumentFrame,
  type Navigation,
  renderHtmlPage,
  SCHEMAS_PATH,
} from './html-page.ts';
import {
  baseUrlOf,
  type Document,
  operationsOf,
  type QuickStart,
  referencePath,
  renderDocsPage,
  renderReferencePage,
  renderSchemasPage,
} from './interface-page.ts';
import { renderSections, type Section } from './markdown.ts';

export interface DocumentPage {
  readonly html: () => string;
  readonly markdown: () => string;
}

export function documentPages(
  openApi: unknown,
  start: QuickStart & { readonly brand: Brand },
): ReadonlyMap<string, DocumentPage> {
  const document = openApi as Document;
  const navigation = navigationOf(document);
  const { brand, hasAccountArea } = start;
  const at = (path: string) => ({ navigation, path, brand, hasAccountArea });
  const reference = document.tags.map(({ name, description }) => {
    const path = referencePath(name);
    const markdown = () => jsonPage(name, description, operationsOf(document, name));
    return [path, { html: () => renderReferencePage(document, name, at(path)), markdown }] as const;
  });
  const { schemas } = document.components;
  return new Map<string, DocumentPage>([
    [
      DOCS_PATH,
      {
        html: () => renderDocsPage(document, at(DOCS_PATH), start),
        markdown: () => listForPrograms(document, start),
      },
    ],
    ...reference,
    [
      SCHEMAS_PATH,
      {
        html: () => renderSchemasPage(document, at(SCHEMAS_PATH)),
        markdown: () => jsonPage('Schemas', 'The objects of this interface.', schemas),
      },
    ],
    ...GUIDES.map(
      guide => [guidePath(guide), guidePage(guide, document, at(guidePath(guide)))] as const,
    ),
  ]);
}

function guidePage(guide: Guide, document: Document, frame: DocumentFrame): DocumentPage {
  const read = () => readGuide(guide, baseUrlOf(document));
  return {
    html: () => renderMarkdownPage(read(), guide.file, frame),
    markdown: () => linkMarkdown(read(), guide.file),
  };
}

function navigationOf({ tags }: Document): Navigation {
  const guides = (group: Guide['group']) =>
    GUIDES.filter(one => one.group === group).map(one => ({
      href: guidePath(one),
      label: one.label,
    }));
  const calls = tags.map(({ name }) => ({ href: referencePath(name), label: name }));
  return [
    { group: 'Start', links: [{ href: DOCS_PATH, label: 'Quick start' }, ...guides('Start')] },
    { group: 'Rules', links: guides('Rules') },
    { group: 'Reference', links: [...calls, { href: SCHEMAS_PATH, label: 'Schemas' }] },
    { group: 'Tools', links: guides('Tools') },
    { group: 'Moving here', links: guides('Moving here') },
  ];
}

/** The list of documents in the form of https://llmstxt.org, with a first call. */
function listForPrograms(document: Document, { hasClient }: QuickStart): string {
  const baseUrl = baseUrlOf(document);
  const guides = GUIDES.map(
    guide => `- [${guide.label}](${baseUrl}${guidePath(guide)}.md): ${guide.about}`,
  );
  const client = `- [matting-client](${baseUrl}${CLIENT_PATH}): \`npm install ${baseUrl}${CLIENT_PATH}\``;
  return `# ${document.info.title}

> Removes the background of images. Version ${document.info.version}, at ${baseUrl}.

\`\`\`sh
${shortCurl({ baseUrl })}
\`\`\`

${document.info.description}

## Documents

${guides.join('\n')}

## For programs

- [OpenAPI 3.1](${baseUrl}${OPENAPI_PATH}): every call, field and answer.
${hasClient ? `${client}\n` : ''}`;
}

function jsonPage(title: string, about: string, value: unknown): string {
  return `# ${title}\n\n${about}\n\n\`\`\`json\n${JSON.stringify(value, undefined, 1)}\n\`\`\`\n`;
}

/**
 * Links at the side lead to the sections of the second level and of error codes.
 * @param file in the repository, to resolve links
 */
export function renderMarkdownPage(markdown: string, file: string, frame: DocumentFrame): string {
  const [top, ...sections] = renderSections(markdown, addressesIn(file));
  const listed = sections.filter(({ level, title }) => level === 2 || isCode(title));
  const links = listed.map(({ title, words, anchor }) => {
    const linked = isCode(title) ? html`<code>${title}</code>` : words;
    return html`<li><a href="#${anchor}">${linked}</a></li>`;
  });
  return renderHtmlPage({
    ...frame,
    title: top?.title.replaceAll('`', '') ?? '',
    contents: links,
    main: html`${top?.blocks}${sections.map(renderSection)}`,
  });
}

/** A problem's `type` uses the name in lower case as the anchor. */
function isCode(title: string): boolean {
  return /^[A-Z_]+$/.test(title);
}

function renderSection({ level, words, anchor, blocks }: Section): Child {
  const heading = level === 2 ? html`<h2>${words}</h2>` : html`<h3>${words}</h3>`;
  return html`<section id="${anchor}">${heading}${blocks}</section>`;
}
