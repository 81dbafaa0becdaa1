import { OPENAPI_PATH } from '@matting/http/known-paths.ts';
import { ERROR_DOCS_PATH } from '@matting/http/problems.ts';
import { shortCurl } from '@matting/proto/contract/curl-sample.ts';
import { ACCOUNT_PATH, type Child, DOCS_PATH, html } from '../page/html.ts';
import {
  CLIENT_PATH,
  type DocumentFrame,
  LLMS_PATH,
  renderHtmlPage,
  SCHEMAS_PATH,
} from './html-page.ts';
import { codeSamples } from './samples.ts';

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
export interface Document {
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly servers: readonly { readonly url: string }[];
  readonly tags: readonly { readonly name: string; readonly description: string }[];
  readonly paths: PathItems;
  readonly webhooks: PathItems;
  readonly components: { readonly schemas: Readonly<Record<string, JsonSchema>> };
}
export interface Described {
  readonly method: string;
  /** A path, or the name of a webhook. */
  readonly path: string;
  readonly operation: Operation;
}

export function referencePath(tag: string): string {
  return `${DOCS_PATH}/${tag.toLowerCase()}`;
}

/** The quick start: a first call, and a list of all calls. */
export function renderDocsPage(openApi: unknown, frame: DocumentFrame, start: QuickStart): string {
  const document = openApi as Document;
  const { title, version, description } = document.info;
  const groups = document.tags.map(({ name, description: about }) => {
    const entries = operationsOf(document, name).map(
      ({ method, path, operation }) => html`<tr><td>${badge(method)}<code>${path}</code></td>
<td><a href="${referencePath(name)}#${operation.operationId}">${operation.summary}</a></td></tr>`,
    );
    return html`<section id="${name.toLowerCase()}"><h2>${name}</h2><p class="soft">${prose(about)}</p>
<div class="wide" tabindex="0"><table><tbody>${entries}</tbody></table></div></section>`;
  });
  const contents = document.tags.map(
    ({ name }) => html`<li><a href="#${name.toLowerCase()}">${name}</a></li>`,
  );
  return renderHtmlPage({
    ...frame,
    title,
    lead: html`Version ${version}, at <code>${baseUrlOf(document)}</code>. For programs:${' '}
<a href="${OPENAPI_PATH}">OpenAPI 3.1</a>, <a href="${LLMS_PATH}">llms.txt</a>.`,
    contents: html`<li><a href="#quick-start">Quick start</a></li>
<li><a href="#rules">Every call</a></li>${contents}<li><a href="#problems">Errors</a></li>`,
    main: html`${quickStart(baseUrlOf(document), start)}
<section id="rules"><h2>Every call</h2><p>${prose(description)}</p></section>
${groups}
<section id="problems"><h2>Errors</h2>
<p>Every error is <code>application/problem+json</code>, a ${typeOf({ $ref: `${SCHEMA_PREFIX}Problem` })}.
<a href="${ERROR_DOCS_PATH}">What each code means, and what to do</a>.</p></section>`,
  });
}

export function baseUrlOf(openApi: unknown): string {
  return (openApi as Document).servers[0]?.url ?? '';
}

export function renderReferencePage(openApi: unknown, tag: string, frame: DocumentFrame): string {
  const document = openApi as Document;
  const described = operationsOf(document, tag);
  const entries = described.map(
    ({ method, path, operation }) =>
      html`<li><a href="#${operation.operationId}">${badge(method)}<code>${path}</code></a></li>`,
  );
  const about = document.tags.find(({ name }) => name === tag)?.description ?? '';
  const page = new ReferencePage(document);
  return renderHtmlPage({
    ...frame,
    title: tag,
    lead: prose(about),
    contents: entries,
    main: html`${described.map(one => page.operation(one))}${page.headers(described)}`,
  });
}

export function renderSchemasPage(openApi: unknown, frame: DocumentFrame): string {
  const schemas = Object.entries((openApi as Document).components.schemas);
  const links = schemas.map(
    ([name]) => html`<li><a href="#${schemaAnchor(name)}"><code>${name}</code></a></li>`,
  );
  const articles = schemas.map(
    ([name, schema]) => html`<article id="${schemaAnchor(name)}">
<h2>${name}</h2>${renderSchema(schema)}</article>`,
  );
  return renderHtmlPage({
    ...frame,
    title: 'Schemas',
    contents: links,
    main: html`${articles}`,
  });
}

export interface QuickStart {
  readonly hasAccountArea: boolean;
  readonly hasClient: boolean;
}

function quickStart(baseUrl: string, { hasAccountArea, hasClient }: QuickStart): Child {
  const key = hasAccountArea
    ? html`<a href="${ACCOUNT_PATH}/keys">Create an API key</a> in your account`
    : html`Ask whoever runs this service for an API key`;
  const samples = codeSamples({ baseUrl }).map(
    ({ name, text }) => html`<details><summary>${name}</summary><div>${code(text)}</div></details>`,
  );
  const install = html`<p>Install the TypeScript client, which this service serves:</p>
${code(`npm install ${baseUrl}${CLIENT_PATH}`)}`;
  return html`<section id="quick-start"><h2>Quick start</h2>
<p>${key}, and put it in the environment variable <code>MATTING_API_KEY</code>. In a directory with
a <code>photo.jpg</code> this writes <code>cutout.png</code>:</p>
${code(shortCurl({ baseUrl }))}
<p>Use one <code>Idempotency-Key</code> per picture, and the same one on every retry: a picture is
charged once. The programs below make it from the picture, and say what went wrong:</p>
${samples}
${hasClient ? install : undefined}
<p>Next: <a href="${DOCS_PATH}/rest">the tutorial</a>,${' '}
<a href="${DOCS_PATH}/finishing">backgrounds, crops and sizes</a>,${' '}
<a href="${DOCS_PATH}/webhooks">webhooks</a> and${' '}
<a href="${DOCS_PATH}/requests#retries-and-idempotency">retries</a>.</p>
</section>`;
}

/** Renders calls. Parts that several calls share appear once on a page. */
class ReferencePage {
  readonly #document: Document;
  readonly #bodies = new Map<string, Operation>();
  readonly #shownParameters = new Set<string>();
  readonly #shownExamples = new Set<string>();

  constructor(document: Document) {
    this.#document = document;
  }

  headers(described: readonly Described[]): Child {
    const responses = described.flatMap(({ operation }) => Object.values(operation.responses));
    const all = responses.flatMap(({ headers = {} }) => Object.entries(headers));
    const rows = [...new Map(all)].map(([name, header]) => row(name, '', this.#resolve(header)));
    return html`<section id="headers"><h2>Headers of answers</h2>
<details><summary>All headers</summary><div><dl>${rows}</dl></div></details></section>`;
  }

  operation({ method, path, operation }: Described): Child {
    const { operationId, summary, description, security } = operation;
    const key =
      security !== undefined && security.length > 0
        ? html`<p class="soft">Needs <code>${'Authorization: Bearer <API_KEY>'}</code>.</p>`
        : undefined;
    return html`<article id="${operationId}">
<h3>${summary}</h3>
<p>${badge(method)}<code class="path">${path}</code></p>
${description === undefined ? undefined : html`<p>${prose(description)}</p>`}${key}
${this.#fields(operation)}
${this.#parameters(operation)}
${this.#answers(operation)}
</article>`;
  }

  /** Fields of all media types of the body, each as the last type describes it. */
  #fields(operation: Operation): Child {
    const { requestBody: body } = operation;
    if (body === undefined) return undefined;
    const text = JSON.stringify(body);
    const before = this.#bodies.get(text);
    if (before !== undefined) {
      return html`<p>The body is that of <a href="#${before.operationId}">${before.summary}</a>.</p>`;
    }
    this.#bodies.set(text, operation);
    const media = Object.entries(body.content ?? {});
    const fields = new Map<string, { schema: JsonSchema; types: string[] }>();
    for (const [type, { schema }] of media) {
      for (const [name, property] of Object.entries(propertiesIn(this.#resolve(schema)))) {
        const types = [...(fields.get(name)?.types ?? []), type];
        fields.set(name, { schema: property, types });
      }
    }
    const wide = Math.max(...[...fields.values()].map(({ types }) => types.length));
    const rows = [...fields].map(([name, { schema, types }]) =>
      row(name, types.length < wide ? `only ${types.join(', ')}` : '', {
        schema,
        description: String(schema.description ?? ''),
      }),
    );
    const types = commas(media.map(([type]) => html`<code>${type}</code>`));
    return html`<h4>Body</h4><p>${types}. ${prose(body.description ?? '')}</p>
${rows.length > 0 ? html`<dl>${rows}</dl>` : undefined}
${media.map(([, { examples }]) => this.#examples(examples))}`;
  }

  /** Describes each parameter once. Lists only names of query parameters that the body has, too. */
  #parameters({ parameters = [], requestBody }: Operation): Child {
    const all = parameters.map(parameter => this.#resolve<Parameter>(parameter));
    const inBody = all.filter(one => one.in === 'query' && requestBody !== undefined);
    const others = all.filter(one => !inBody.includes(one));
    const known = others.filter(one => this.#shownParameters.has(JSON.stringify(one)));
    const fresh = others.filter(one => !known.includes(one));
    for (const one of fresh) this.#shownParameters.add(JSON.stringify(one));
    const namesOf = (list: readonly Parameter[]) =>
      commas(list.map(({ name }) => html`<code>${name}</code>`));
    return html`${all.length > 0 ? html`<h4>Parameters</h4>` : undefined}
${known.length > 0 ? html`<p>As above: ${namesOf(known)}.</p>` : undefined}
${fresh.length > 0 ? html`<dl>${fresh.map(parameterRow)}</dl>` : undefined}
${inBody.length > 0 ? html`<p>Beside a raw picture, in the query: ${namesOf(inBody)}.</p>` : undefined}`;
  }

  #examples(examples: Media['examples'] = {}): Child {
    return Object.entries(examples).map(([name, { value }]) => {
      const text = JSON.stringify(value, null, 2);
      if (this.#shownExamples.has(text)) return undefined;
      this.#shownExamples.add(text);
      return html`<details><summary>Example: ${name}</summary><div>${code(text)}</div></details>`;
    });
  }

  #answers({ responses }: Operation): Child {
    const all = Object.entries(responses);
    const refusals = all.filter(([, response]) => problemsOf(response).length > 0);
    const lines = refusals.map(
      ([status, response]) => html`<div><dt><b>${status}</b></dt>
<dd>${commas(problemsOf(response).map(({ code }) => problemLink(code)))}</dd></div>`,
    );
    const others = all.filter(one => !refusals.includes(one)).map(one => this.#answer(...one));
    return html`<details><summary>Answers: ${all.map(([status]) => html` <code>${status}</code>`)}</summary>
<div>${others}${lines.length > 0 ? html`<dl>${lines}</dl>` : undefined}</div></details>`;
  }

  #answer(status: string, { description, headers = {}, content = {} }: Response): Child {
    const names = Object.entries(headers).map(([name, header]) => {
      const { required } = this.#resolve<Header>(header);
      return html`<code>${name}</code>${required ? '' : ' (sometimes)'}`;
    });
    const media = Object.entries(content).map(
      ([type, { schema, examples }]) => html`<p><code>${type}</code> ${typeOf(schema)}</p>
${this.#examples(examples)}`,
    );
    return html`<p><b>${status}</b> ${prose(description)}</p>
${names.length > 0 ? html`<p class="soft">Headers: ${commas(names)}</p>` : undefined}${media}`;
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

export function operationsOf({ paths, webhooks }: Document, tag: string): Described[] {
  const all = [paths, webhooks].flatMap(items =>
    Object.entries(items).flatMap(([path, item]) =>
      Object.entries(item).map(([method, operation]) => ({ method, path, operation })),
    ),
  );
  return all.filter(({ operation }) => operation.tags.includes(tag));
}

function propertiesIn({ properties = {} }: JsonSchema): Readonly<Record<string, JsonSchema>> {
  return properties as Record<string, JsonSchema>;
}

function parameterRow({ name, in: location, ...header }: Parameter): Child {
  return row(name, `${location}, ${header.required ? 'required' : 'optional'}`, header);
}

function problemLink(code: string): Child {
  return html`<a href="${ERROR_DOCS_PATH}#${code.toLowerCase()}"><code>${code}</code></a>`;
}

function code(text: string): Child {
  return html`<pre tabindex="0"><code>${text}</code></pre>`;
}

function badge(method: string): Child {
  return html`<span class="method ${method}">${method.toUpperCase()}</span>`;
}

function row(name: string, note: string, { schema, description = '' }: Header): Child {
  return html`<div><dt><code>${name}</code>${note && html` <small>${note}</small>`}</dt>
<dd>${typeOf(schema)}. ${prose(description)}</dd></div>`;
}

interface Problem {
  readonly code: string;
  readonly title: string;
}

function problemsOf({ content = {} }: Response): readonly Problem[] {
  const examples = Object.values(content['application/problem+json']?.examples ?? {});
  return examples.map(({ value }) => value as Problem);
}

/** Text between backquotes is code. */
function prose(text: string): Child {
  const pieces = text.split('`');
  return html`${pieces.map((piece, index) => (index % 2 === 1 ? html`<code>${piece}</code>` : piece))}`;
}

type JsonSchema = { readonly [keyword: string]: unknown };

const SCHEMA_PREFIX = '#/components/schemas/';

function schemaAnchor(name: string): string {
  return `schema-${name}`;
}

/** `string or null`, `"queued"`, or a link to a schema. */
function typeOf(schema: JsonSchema): Child {
  const { $ref, type, items, format, oneOf } = schema;
  if (typeof $ref === 'string') {
    const [name = '', property] = $ref.replace(SCHEMA_PREFIX, '').split('/properties/');
    const text = property === undefined ? name : `as in ${name}`;
    return html`<a href="${SCHEMAS_PATH}#${schemaAnchor(name)}">${text}</a>`;
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

function propertiesOf(schema: JsonSchema, path = ''): Child {
  const required = (schema.required ?? []) as readonly string[];
  const properties = Object.entries((schema.properties ?? {}) as Record<string, JsonSchema>);
  const rows = properties.map(([name, property]) => {
    const inner = property.type === 'array' ? (property.items as JsonSchema) : property;
    const at = `${path}${name}${property.type === 'array' ? '[]' : ''}`;
    const nested = inner?.properties === undefined ? undefined : propertiesOf(inner, `${at}.`);
    return html`<div>
<dt><code>${at}</code> <small>${required.includes(name) ? 'always' : 'optional'}</small></dt>
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

function joined(parts: readonly Child[], between = ' or '): Child {
  return html`${parts.map((part, index) => (index === 0 ? part : html`${between}${part}`))}`;
}

function commas(parts: readonly Child[]): Child {
  return joined(parts, ', ');
}
