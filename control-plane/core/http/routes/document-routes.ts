/**
 * What callers read about this service: the OpenAPI document, its page for people, and the page of
 * error codes. No key.
 */
import type { FastifyInstance } from 'fastify';
import { renderDocsPage } from '../../../portal/documents/docs-page.ts';
import { renderErrorsPage } from '../../../portal/documents/errors-page.ts';
import { HTML_PAGE_HEADERS } from '../../../portal/documents/html-page.ts';
import { ERROR_DOCS_PATH } from '../answers/problem.ts';
import { openApiDocument } from '../openapi/openapi.ts';

const OPENAPI_PATH = '/v1/openapi.json';
const DOCS_PATH = '/docs';
const JSON_TYPE = 'application/json';
const CACHE_CONTROL = 'public, max-age=300';

type Headers = Readonly<Record<string, string>>;

/** @param errorsPage docs/errors.md, as the `type` of every problem points into it */
export function registerDocumentRoutes(
  app: FastifyInstance,
  options: { readonly baseUrl: string; readonly version: string; readonly errorsPage: string },
): void {
  const document = openApiDocument(options);
  const paths = { documentPath: OPENAPI_PATH, errorDocsPath: ERROR_DOCS_PATH };
  const json = { 'content-type': JSON_TYPE };
  serve(
    app,
    OPENAPI_PATH,
    prepare(() => JSON.stringify(document), json),
  );
  serve(
    app,
    DOCS_PATH,
    prepare(() => renderDocsPage(document, paths), HTML_PAGE_HEADERS),
  );
  const markdown = { 'content-type': 'text/markdown; charset=utf-8', vary: 'accept' };
  serve(
    app,
    ERROR_DOCS_PATH,
    prepare(() => options.errorsPage, markdown),
    prepare(() => renderErrorsPage(options.errorsPage, { docsPath: DOCS_PATH }), {
      ...HTML_PAGE_HEADERS,
      vary: 'accept',
    }),
  );
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
