/**
 * The documents that callers read without a key: the error codes and the OpenAPI 3.1 document, each
 * also as a page if a package renders it. The OpenAPI document merges openapi.json and the parts of
 * packages, adds address and version, and expands these short forms:
 *
 * | in openapi.json                 | in the document                                             |
 * |---------------------------------|-------------------------------------------------------------|
 * | `"$ref": "#/parts/NAME"`,       | a copy: client generators follow no reference into another  |
 * | `"$ref": "…/properties/NAME"`   | schema                                                      |
 * | `"headers": "Allow RateLimit?"` | references to these headers and to those of every answer;   |
 * |                                 | `?`: optional                                               |
 * | `"problems": "CODE CODE"`       | a problem answer: codes, titles, examples, and the headers  |
 * |                                 | of its status                                               |
 * | `"finishing": "JSON"`           | the fields of finishing as properties; `form`: as parts     |
 * | `"queryFields": "NAME NAME"`    | parameters for these fields and for those of finishing;     |
 * |                                 | `"queryFields"` in a list: references to them               |
 */

import { OPENAPI_PATH } from '@matting/http/known-paths.ts';
import { ERROR_DOCS_PATH, PROBLEM_TYPE } from '@matting/http/problems.ts';
import { ERROR_CATALOGUE, type ErrorCode, isErrorCode } from '@matting/proto/contract/errors.ts';
import { FINISHING_FIELDS, jsonSchemaOf } from '@matting/proto/contract/finishing/table.ts';
import type { FastifyInstance, FastifyRequest, HTTPMethods } from 'fastify';
import source from './openapi.json' with { type: 'json' };
import { NOT_IN_A_QUERY } from './read-matting-body.ts';

type JsonObject = { readonly [name: string]: unknown };

const HEADERS: Readonly<Record<string, JsonObject>> = source.components.headers;
const EVERY_HEADER = ['X-Request-ID', 'Cache-Control'];
const STATUS_HEADERS: Readonly<Record<number, readonly string[]>> = {
  401: ['WWW-Authenticate'],
  405: ['Allow'],
  429: ['Retry-After'],
  503: ['Retry-After'],
};
const PART = /^#\/(parts\/.+|components\/schemas\/\w+\/properties\/\w+)$/;
const TEXT = { type: 'string' };
const QUERY_FIELDS = [
  ...source.components.parameters.queryFields.split(' '),
  ...FINISHING_FIELDS.filter(field => !NOT_IN_A_QUERY.includes(field)),
].map(queryParameter);
const QUERY_REFS = QUERY_FIELDS.map(([name]) => ({ $ref: `#/components/parameters/${name}` }));

interface DocumentSources {
  readonly baseUrl: string;
  readonly version: string;
  readonly openApi: readonly OpenApiPart[];
}

/** A package's part of the document, in the form of openapi.json; merged by name. */
export type OpenApiPart = JsonObject & { readonly tags?: typeof source.tags };

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function merged(one: JsonObject, other: JsonObject): JsonObject {
  const entries = Object.entries(other).map(([name, value]) => {
    const there = one[name];
    return [name, isObject(there) && isObject(value) ? merged(there, value) : value];
  });
  return { ...one, ...Object.fromEntries(entries) };
}

/** @throws Error for an unknown part, header or code in openapi.json */
function openApiDocument({ openApi, ...options }: DocumentSources) {
  const [first, ...others] = source.tags;
  const tags = [first, ...openApi.flatMap(part => part.tags ?? []), ...others];
  const whole = { ...openApi.reduce(merged, source), tags } as typeof source;
  const { parts: _, ...document } = whole;
  const components = { ...document.components, headers: {} };
  const expanded = expand({ ...document, components }, whole) as typeof document;
  const text = JSON.stringify(expanded);
  const used = Object.entries(HEADERS).filter(([name]) => text.includes(`"${headerRef(name)}"`));
  const headers = Object.fromEntries(
    used.map(([name, spec]) => [name, { ...spec, required: true }]),
  );
  return {
    ...expanded,
    info: { ...expanded.info, version: options.version },
    servers: [{ url: options.baseUrl }],
    components: { ...expanded.components, headers },
  };
}

function expand(node: unknown, from: JsonObject): unknown {
  if (Array.isArray(node)) {
    return node.flatMap(one => (one === 'queryFields' ? QUERY_REFS : [expand(one, from)]));
  }
  if (typeof node !== 'object' || node === null) return node;
  const { $ref, problems, headers } = node as JsonObject;
  const [, part] = PART.exec(String($ref)) ?? [];
  if (part !== undefined) return expand(partAt(part, from), from);
  if (typeof problems === 'string') return problemResponse(namesIn(problems), namesIn(headers));
  const entries = Object.entries(node).flatMap(([name, value]) => {
    if (typeof value === 'string' && name === 'finishing') return finishingFields(value);
    if (name === 'queryFields') return QUERY_FIELDS;
    const isHeaders = name === 'headers' && typeof value === 'string';
    return [[name, isHeaders ? headerRefs(namesIn(value)) : expand(value, from)]];
  });
  return Object.fromEntries(entries);
}

function finishingFields(form: string): [field: string, schema: JsonObject][] {
  return FINISHING_FIELDS.map(field => {
    return [field, form === 'JSON' ? jsonSchemaOf(field) : TEXT];
  });
}

function queryParameter(name: string): [component: string, parameter: JsonObject] {
  const words = name.replaceAll(/(?:^|_)(.)/g, (_all, letter: string) => letter.toUpperCase());
  const description = `\`${name}\` as in JSON, for a body that is the image itself.`;
  return [`Picture${words}`, { name, in: 'query', required: false, description, schema: TEXT }];
}

function partAt(pointer: string, from: JsonObject): unknown {
  const names = pointer.split('/');
  const found = names.reduce<unknown>((node, name) => (node as JsonObject)?.[name], from);
  if (found === undefined) throw new Error(`openapi.json has no ${pointer}`);
  return found;
}

function namesIn(text: unknown = ''): readonly string[] {
  return String(text).split(' ').filter(Boolean);
}

function headerRef(name: string): string {
  return `#/components/headers/${name}`;
}

function headerRefs(names: readonly string[]): JsonObject {
  const named = [...EVERY_HEADER, ...names].map(name => {
    const plain = name.replace(/\?$/, '');
    const spec = HEADERS[plain];
    if (spec === undefined) throw new Error(`openapi.json describes no header ${plain}`);
    return [plain, plain === name ? { $ref: headerRef(name) } : spec];
  });
  return Object.fromEntries(named);
}

function problemResponse(names: readonly string[], headers: readonly string[]): JsonObject {
  const codes = names.map(requireErrorCode);
  const [status] = new Set(codes.map(code => ERROR_CATALOGUE[code].http));
  if (status === undefined) throw new Error('openapi.json has a problem without a code');
  return {
    description: codes.map(code => `${code}: ${ERROR_CATALOGUE[code].title}.`).join(' '),
    headers: headerRefs([...(STATUS_HEADERS[status] ?? []), ...headers]),
    content: {
      [PROBLEM_TYPE]: {
        schema: { $ref: '#/components/schemas/Problem' },
        examples: Object.fromEntries(codes.map(code => [code, { value: problemExample(code) }])),
      },
    },
  };
}

function requireErrorCode(name: string): ErrorCode {
  if (!isErrorCode(name)) throw new Error(`openapi.json names ${name}, which is no error code`);
  return name;
}

function problemExample(code: ErrorCode): JsonObject {
  const { title, http, retry } = ERROR_CATALOGUE[code];
  return {
    type: `https://matting.example.com${ERROR_DOCS_PATH}#${code.toLowerCase()}`,
    title,
    status: http,
    detail: title,
    instance: '/v1/matting',
    code,
    request_id: HEADERS['X-Request-ID']?.example,
    retryable: retry !== 'never',
  };
}

type Headers = Readonly<Record<string, string>>;
const JSON_HEADERS: Headers = { 'content-type': 'application/json' };

export interface DocumentPages {
  readonly homePath: string;
  readonly docsPath: string;
  /** The page of errors, for browsers, and as Markdown for programs. */
  errors(document: unknown): { html(): string; markdown(): string };
  readonly headers: Headers;
}

interface DocumentOptions {
  readonly document: ServedDocument;
  /** The text of docs/errors.md. */
  readonly errorsPage: string;
  readonly pages: DocumentPages | undefined;
  readonly pathPrefix: string;
}

export function registerDocumentRoutes(app: FastifyInstance, options: DocumentOptions): void {
  const { pages, document } = options;
  const markdown = { 'content-type': 'text/markdown; charset=utf-8', vary: 'accept' };
  const json = prepare(() => JSON.stringify(document()), JSON_HEADERS);
  registerRoot(app, options);
  serve(app, OPENAPI_PATH, json);
  const plain = () => pages?.errors(document()).markdown() ?? options.errorsPage;
  const page = () => pages?.errors(document()).html() ?? options.errorsPage;
  const headers = { ...(pages?.headers ?? markdown), vary: 'accept' };
  serve(app, ERROR_DOCS_PATH, prepare(plain, markdown), prepare(page, headers));
}

function registerRoot(app: FastifyInstance, { pages, pathPrefix }: DocumentOptions): void {
  const docs = pages?.docsPath ?? ERROR_DOCS_PATH;
  const paths = { openapi: OPENAPI_PATH, docs, matting: '/v1/matting' };
  const named = Object.entries(paths).map(([name, path]) => [name, `${pathPrefix}${path}`]);
  const names = { service: 'matting', ...Object.fromEntries(named) };
  const { body, headers } = prepare(() => JSON.stringify(names), {
    ...JSON_HEADERS,
    vary: 'accept',
  });
  app.get('/', async (request, reply) => {
    reply.headers(headers);
    if (pages === undefined || !takesHtml(request)) return reply.send(body());
    return reply.removeHeader('content-type').redirect(pages.homePath, 303);
  });
}

/** Rendered for a request, once every route is registered. */
export type ServedDocument = ReturnType<typeof servedDocument>;

export function servedDocument(app: FastifyInstance, sources: DocumentSources) {
  const whole = openApiDocument(sources);
  let served: ReturnType<typeof servedBy> | undefined;
  return () => (served ??= servedBy(app, whole));
}

function servedBy(app: FastifyInstance, document: ReturnType<typeof openApiDocument>) {
  const paths = Object.entries(document.paths).filter(([path, operations]) => {
    const url = path.replaceAll(/\{(\w+)\}/g, ':$1');
    const methods = Object.keys(operations).map(name => name.toUpperCase() as HTTPMethods);
    return methods.some(method => app.hasRoute({ method, url }));
  });
  return { ...document, paths: Object.fromEntries(paths) };
}

function takesHtml({ headers }: FastifyRequest): boolean {
  return /\btext\/html\b/i.test(headers.accept ?? '');
}

interface Prepared {
  readonly body: () => Buffer;
  readonly headers: Headers;
}

/** Renders at the first request. */
function prepare(render: () => string, headers: Headers): Prepared {
  let body: Buffer | undefined;
  return {
    body: () => (body ??= Buffer.from(render())),
    headers: { 'cache-control': 'public, max-age=300', ...headers },
  };
}

function serve(app: FastifyInstance, path: string, plain: Prepared, forBrowsers = plain): void {
  app.get(path, async (request, reply) => {
    const { body, headers } = takesHtml(request) ? forBrowsers : plain;
    return reply.headers(headers).send(body());
  });
}
