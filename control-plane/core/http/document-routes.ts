/**
 * What callers read about this service: the OpenAPI document and the page of error codes, each as a
 * page for people too where a package renders them. No key.
 */
import type { FastifyInstance, HTTPMethods } from 'fastify';
import { ERROR_DOCS_PATH } from '../../http/error-handler.ts';
import type { HttpInterface } from './http-interface.ts';
import { openApiDocument } from './openapi.ts';

const OPENAPI_PATH = '/v1/openapi.json';
const DOCS_PATH = '/docs';
const JSON_TYPE = 'application/json';
const CACHE_CONTROL = 'public, max-age=300';

type Headers = Readonly<Record<string, string>>;

export interface DocumentOptions {
  readonly baseUrl: string;
  readonly version: string;
  /** docs/errors.md, as the `type` of every problem points into it. */
  readonly errorsPage: string;
  readonly interfaces: readonly HttpInterface[];
}

export function registerDocumentRoutes(app: FastifyInstance, options: DocumentOptions): void {
  const whole = openApiDocument(options);
  // Asked for once every route is there.
  const document = () => servedBy(app, whole);
  const markdown = { 'content-type': 'text/markdown; charset=utf-8', vary: 'accept' };
  const json = prepare(() => JSON.stringify(document()), { 'content-type': JSON_TYPE });
  const errors = prepare(() => options.errorsPage, markdown);
  const pages = options.interfaces.find(one => one.documentPages)?.documentPages;
  serve(app, OPENAPI_PATH, json);
  if (pages === undefined) {
    serve(app, ERROR_DOCS_PATH, errors);
    return;
  }
  const { headers } = pages;
  const paths = { documentPath: OPENAPI_PATH, errorDocsPath: ERROR_DOCS_PATH };
  const docs = prepare(() => pages.renderInterface(document(), paths), headers);
  const errorsPage = () => pages.renderErrors(options.errorsPage, { docsPath: DOCS_PATH });
  serve(app, DOCS_PATH, docs);
  serve(app, ERROR_DOCS_PATH, errors, prepare(errorsPage, { ...headers, vary: 'accept' }));
}

/** Without the paths that are a package's which is not here. */
function servedBy(app: FastifyInstance, document: ReturnType<typeof openApiDocument>) {
  const paths = Object.entries(document.paths).filter(([path, operations]) => {
    const url = path.replaceAll(/\{(\w+)\}/g, ':$1');
    const methods = Object.keys(operations).map(name => name.toUpperCase() as HTTPMethods);
    return methods.some(method => app.hasRoute({ method, url }));
  });
  return { ...document, paths: Object.fromEntries(paths) };
}

/** Browsers name it; programs that accept anything get the plain form. */
const TAKES_HTML = /\btext\/html\b/i;

interface Prepared {
  readonly body: () => Buffer;
  readonly headers: Headers;
}

/** Made once, for the first who asks: a start waits for no page. */
function prepare(render: () => string, headers: Headers): Prepared {
  let body: Buffer | undefined;
  return {
    body: () => (body ??= Buffer.from(render())),
    headers: { 'cache-control': CACHE_CONTROL, ...headers },
  };
}

/** @param forBrowsers instead, where HTML is asked for by name */
function serve(app: FastifyInstance, path: string, plain: Prepared, forBrowsers = plain): void {
  app.get(path, async (request, reply) => {
    const { body, headers } = TAKES_HTML.test(request.headers.accept ?? '') ? forBrowsers : plain;
    return reply.headers(headers).send(body());
  });
}
