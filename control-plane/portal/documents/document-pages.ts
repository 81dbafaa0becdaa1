/**
 * The core's documents about the interface as pages for people, without a script and without a byte
 * from elsewhere: the OpenAPI document, of which nothing is known but OpenAPI, and docs/errors.md,
 * where the `type` of every problem leads.
 */

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { DocumentPages } from '@matting/core/http/document-routes.ts';
import { type Child, html, renderDocument } from '../page/html.ts';

/** How a page of documents looks: one column on a phone, contents beside it on a desk. */
const HTML_PAGE_STYLE = `\n${readFileSync(new URL('html-page.css', import.meta.url), 'utf8')}`;

const NO_ICON = '<link rel="icon" href="data:,">';

const styleHash = createHash('sha256').update(HTML_PAGE_STYLE).digest('base64');

/** For its answer. The one style sheet is named by its hash; nothing else may load or run. */
const HTML_PAGE_HEADERS = {
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

interface HtmlPage {
  readonly title: string;
  readonly header: Child;
  readonly contents: Child;
  readonly main: Child;
}

function renderHtmlPage({ title, header, contents, main }: HtmlPage): string {
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

interface Header {
  readonly description?: string;
  readonly schema: JsonSchema;
  readonly required?: boolean;
}
interface Parameter extends Header {
  readonly name: string;
  readonly in: string;
}
type Ref = { readonly $ref: string };
interface Media {
  readonly schema: JsonSchema;
  readonly examples?: Readonly<Record<string, { readonly value: unknown }>>;
}
interface Response {
  readonly description: string;
  readonly headers?: Readonly<Record<string, Header | Ref>>;
  readonly content?: Readonly<Record<string, Media>>;
}
interface Operation {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly summary: string;
  readonly description?: string;
  readonly security?: readonly unknown[];
  readonly parameters?: readonly (Parameter | Ref)[];
  readonly requestBody?: { readonly description?: string; readonly content: Response['content'] };
  readonly responses: Readonly<Record<string, Response>>;
}
type PathItems = Readonly<Record<string, Readonly<Record<string, Operation>>>>;
interface Document {
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly servers: readonly { readonly url: string }[];
  readonly tags: readonly { readonly name: string; readonly description: string }[];
  readonly paths: PathItems;
  readonly webhooks: PathItems;
  readonly components: { readonly schemas: Readonly<Record<string, JsonSchema>> };
}
interface Described {
  readonly method: string;
  /** A path, or the name of a webhook. */
  readonly path: string;
  readonly operation: Operation;
}

export function renderDocsPage(
  openApi: unknown,
  options: { readonly documentPath: string; readonly errorDocsPath: string },
): string {
  const document = openApi as Document;
  const page = new DocsPage(document, options.errorDocsPath);
  const { title, version, description } = document.info;
  return renderHtmlPage({
    title: `${title}: REST interface`,
    header: html`<h1>${title}</h1>
<p>${prose(description)}</p>
<p class="soft">Version ${version}, at <code>${document.servers.map(({ url }) => url).join(', ')}</code>. For programs:${' '}
<a href="${options.documentPath}">OpenAPI 3.1</a>. Errors:${' '}
<a href="${options.errorDocsPath}">every code and what to do</a>.</p>`,
    contents: page.contents(),
    main: html`${page.operations()}
${page.schemas()}`,
  });
}

class DocsPage {
  readonly #document: Document;
  readonly #errorDocsPath: string;
  readonly #groups: readonly { name: string; description: string; described: Described[] }[];

  constructor(document: Document, errorDocsPath: string) {
    this.#document = document;
    this.#errorDocsPath = errorDocsPath;
    const all = [...describedOf(document.paths), ...describedOf(document.webhooks)];
    this.#groups = document.tags.map(tag => ({
      ...tag,
      described: all.filter(({ operation }) => operation.tags.includes(tag.name)),
    }));
  }

  contents(): Child {
    const groups = this.#groups.map(({ name, described }) => {
      const entries = described.map(
        ({ method, path, operation }) =>
          html`<li><a href="#${operation.operationId}">${badge(method)}<code>${path}</code></a></li>`,
      );
      return html`<h2>${name}</h2><ul>${entries}</ul>`;
    });
    const more = html`<h2><a href="#schemas">Schemas</a></h2>`;
    return html`${groups}${more}`;
  }

  operations(): Child {
    const groups = this.#groups.map(
      ({ name, description, described }) => html`<section>
<h2>${name}</h2><p class="soft">${prose(description)}</p>
${described.map(one => this.#operation(one))}
</section>`,
    );
    return html`${groups}`;
  }

  schemas(): Child {
    const articles = Object.entries(this.#document.components.schemas).map(
      ([name, schema]) => html`<article id="${schemaAnchor(name)}">
<h3>${name}</h3>${renderSchema(schema)}
</article>`,
    );
    return html`<section id="schemas"><h2>Schemas</h2>${articles}</section>`;
  }

  #operation({ method, path, operation }: Described): Child {
    const { operationId, summary, description, security, requestBody } = operation;
    const key =
      security !== undefined && security.length > 0
        ? html`<p class="soft">Needs <code>${'Authorization: Bearer <API_KEY>'}</code>.</p>`
        : undefined;
    const responses = Object.entries(operation.responses).map(([status, response]) =>
      this.#response(status, response),
    );
    return html`<article id="${operationId}">
<h3>${summary}</h3>
<p>${badge(method)}<code class="path">${path}</code></p>
${description === undefined ? undefined : html`<p>${prose(description)}</p>`}${key}
${this.#parameters(operation)}
${requestBody === undefined ? undefined : html`<h4>Body</h4>${this.#body(requestBody)}`}
<h4>Answers</h4>${responses}
</article>`;
  }

  #parameters({ parameters = [] }: Operation): Child {
    if (parameters.length === 0) return undefined;
    const rows = parameters.map(parameter => {
      const { name, in: place, ...header } = this.#resolve<Parameter>(parameter);
      return row(`${name}`, `${place}, ${header.required ? 'required' : 'optional'}`, header);
    });
    return html`<h4>Parameters</h4><dl>${rows}</dl>`;
  }

  #body(body: { description?: string; content?: Response['content'] }): Child {
    const { description, content = {} } = body;
    const words = description === undefined ? undefined : html`<p>${prose(description)}</p>`;
    const media = Object.entries(content).map(
      ([type, { schema, examples = {} }]) => html`<p><code>${type}</code> ${schemaLine(schema)}</p>
${Object.entries(examples).map(([name, { value }]) => example(name, value))}`,
    );
    return html`${words}${media}`;
  }

  #response(status: string, response: Response): Child {
    const headers = Object.entries(response.headers ?? {}).map(([name, header]) => {
      const resolved = this.#resolve<Header>(header);
      return row(name, resolved.required ? 'always' : 'sometimes', resolved);
    });
    const problems = problemsOf(response);
    const codes = problems.map(
      ({ code, title }) => html`<div>
<dt><a href="${this.#errorDocsPath}#${code.toLowerCase()}"><code>${code}</code></a></dt>
<dd>${title}</dd></div>`,
    );
    const headline = problems.map(({ code }) => code).join(', ') || response.description;
    return html`<details>
<summary><b>${status}</b> ${prose(headline)}</summary>
<div>${codes.length > 0 ? html`<dl>${codes}</dl>` : undefined}
${headers.length > 0 ? html`<dl>${headers}</dl>` : undefined}
${this.#body({ content: response.content })}</div>
</details>`;
  }

  #resolve<T extends object>(value: T | Ref): T {
    if (!('$ref' in value)) return value;
    const parts = String(value.$ref).slice(2).split('/');
    return parts.reduce<unknown>(
      (node, part) => (node as Record<string, unknown>)[part],
      this.#document,
    ) as T;
  }
}

function describedOf(items: PathItems): Described[] {
  return Object.entries(items).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({ method, path, operation })),
  );
}

function badge(method: string): Child {
  return html`<span class="method ${method}">${method.toUpperCase()}</span>`;
}

function row(name: string, note: string, { schema, description = '' }: Header): Child {
  return html`<div><dt><code>${name}</code> <span class="soft">${note}</span></dt>
<dd>${typeOf(schema)}. ${prose(description)}</dd></div>`;
}

interface Problem {
  readonly code: string;
  readonly title: string;
}

/** The problems of an answer, from its examples; none for other answers. */
function problemsOf({ content = {} }: Response): readonly Problem[] {
  const examples = Object.values(content['application/problem+json']?.examples ?? {});
  return examples.map(({ value }) => value as Problem);
}

function schemaLine(schema: JsonSchema): Child {
  const [first = schema] = (schema.allOf ?? []) as readonly JsonSchema[];
  return typeOf(first);
}

function example(name: string, value: unknown): Child {
  const text = JSON.stringify(value, null, 2);
  return html`<details><summary>Example: ${name}</summary>
<div><pre tabindex="0"><code>${text}</code></pre></div></details>`;
}

/** Text in which `...` is code. */
function prose(text: string): Child {
  const pieces = text.split('`');
  return html`${pieces.map((piece, index) => (index % 2 === 1 ? html`<code>${piece}</code>` : piece))}`;
}

type JsonSchema = { readonly [keyword: string]: unknown };

const SCHEMA_PREFIX = '#/components/schemas/';

function schemaAnchor(name: string): string {
  return `schema-${name}`;
}

/** What a value may be, in a few words: `string or null`, `"queued"`, a link to a schema. */
function typeOf(schema: JsonSchema): Child {
  const { $ref, type, items, format, oneOf } = schema;
  if (typeof $ref === 'string') {
    const name = $ref.replace(SCHEMA_PREFIX, '');
    return html`<a href="#${schemaAnchor(name)}">${name}</a>`;
  }
  if ('const' in schema) return html`<code>${JSON.stringify(schema.const)}</code>`;
  if (Array.isArray(schema.enum)) {
    return joined(schema.enum.map(value => html`<code>${JSON.stringify(value)}</code>`));
  }
  if (type === 'array') return html`array of ${typeOf((items ?? {}) as JsonSchema)}`;
  if (Array.isArray(oneOf)) return joined(oneOf.map(typeOf));
  const words = [type ?? 'any'].flat().join(' or ');
  return html`${words}${format === undefined ? '' : ` (${format})`}`;
}

/** The properties of an object, those of objects inside indented by their path. */
function propertiesOf(schema: JsonSchema, path = ''): Child {
  const required = (schema.required ?? []) as readonly string[];
  const properties = Object.entries((schema.properties ?? {}) as Record<string, JsonSchema>);
  const rows = properties.map(([name, property]) => {
    const inner = property.type === 'array' ? (property.items as JsonSchema) : property;
    const at = `${path}${name}${property.type === 'array' ? '[]' : ''}`;
    const nested = inner?.properties === undefined ? undefined : propertiesOf(inner, `${at}.`);
    return html`<div>
<dt><code>${at}</code> <span class="soft">${required.includes(name) ? 'always' : 'optional'}</span></dt>
<dd>${typeOf(property)}${bounds(property)}. ${description(property)}</dd>
</div>${nested}`;
  });
  return html`${rows}`;
}

function renderSchema(schema: JsonSchema): Child {
  const body =
    schema.properties === undefined
      ? html`<p>One of ${typeOf(schema)}.</p>`
      : html`<dl>${propertiesOf(schema)}</dl>`;
  return html`<p>${description(schema)}</p>${body}`;
}

function description(schema: JsonSchema): Child {
  return schema.description === undefined ? undefined : prose(String(schema.description));
}

const BOUNDS: Readonly<Record<string, readonly [words: string, unit: string]>> = {
  minimum: ['at least', ''],
  maximum: ['at most', ''],
  minLength: ['at least', ' characters'],
  maxLength: ['at most', ' characters'],
};

function bounds(schema: JsonSchema): string {
  const named = Object.entries(BOUNDS).filter(([keyword]) => schema[keyword] !== undefined);
  return named.map(([keyword, [words, unit]]) => `, ${words} ${schema[keyword]}${unit}`).join('');
}

function joined(parts: readonly Child[]): Child {
  return html`${parts.map((part, index) => (index === 0 ? part : html` or ${part}`))}`;
}

/** A heading that is a code is an anchor of its name in lower case, as a problem's `type` names it. */
const CODE = /^[A-Z_]+$/;

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

/** As much of Markdown as docs/errors.md is written in; everything else is text. */
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

export const documentPages: DocumentPages = {
  headers: HTML_PAGE_HEADERS,
  renderInterface: renderDocsPage,
  renderErrors: renderErrorsPage,
};
