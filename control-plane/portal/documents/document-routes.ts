/**
 * Serves the documents under /docs without a key: HTML to browsers, Markdown by Accept or `.md`,
 * their pictures and programs, and the client's package.
 */

import { existsSync, readFileSync } from 'node:fs';
import type { HttpContext } from '@matting/core/http/public-app.ts';
import { ERROR_DOCS_PATH } from '@matting/http/problems.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { registerAssets } from '../page/assets.ts';
import { assetsOf, type Brand } from '../page/brand.ts';
import { DOCS_PATH } from '../page/html.ts';
import { type DocumentPage, documentPages } from './document-pages.ts';
import { guideFileAt } from './guides.ts';
import { CLIENT_PATH, HTML_PAGE_HEADERS, LLMS_PATH } from './html-page.ts';

/** The client's package, which `make setup` and the container images build. */
const CLIENT_FILE = new URL('../../../client/build/client.tgz', import.meta.url);
const MARKDOWN_TYPE = 'text/markdown; charset=utf-8';

type Headers = Readonly<Record<string, string>>;

interface Options {
  readonly hasAccountArea: boolean;
  readonly brand: Brand;
}

const startOf = (options: Options) => ({ ...options, hasClient: existsSync(CLIENT_FILE) });

/** The core serves this page at the path of every problem's `type`. */
export function errorsPage(document: unknown, options: Options): DocumentPage {
  const page = documentPages(document, startOf(options)).get(ERROR_DOCS_PATH);
  if (page === undefined) throw new Error(`there is no guide for ${ERROR_DOCS_PATH}`);
  return page;
}

/** @param document complete only after every route is registered */
export function registerDocuments(
  app: FastifyInstance,
  document: HttpContext['document'],
  options: Options,
): void {
  const start = startOf(options);
  let pages: ReadonlyMap<string, DocumentPage> | undefined;
  const kept = new Map<string, Buffer>();
  /** Renders on the first request, so that pages do not delay the start. */
  const keep = (name: string, make: () => string | Buffer): Buffer => {
    const body = kept.get(name) ?? Buffer.from(make());
    kept.set(name, body);
    return body;
  };
  const pageAt = (path: string) => {
    pages ??= documentPages(document(), start);
    return pages.get(path);
  };
  const sendMarkdown = (reply: FastifyReply, path: string) => {
    const page = pageAt(path);
    if (page === undefined) throw notFound();
    return send(reply, keep(`${path}.md`, page.markdown), { 'content-type': MARKDOWN_TYPE });
  };
  const sendPage = (reply: FastifyReply, path: string, accept = '') => {
    const page = pageAt(path);
    if (page === undefined) throw notFound();
    reply.header('vary', 'accept');
    if (/\btext\/markdown\b/i.test(accept)) return sendMarkdown(reply, path);
    return send(reply, keep(path, page.html), HTML_PAGE_HEADERS);
  };
  app.get(DOCS_PATH, (request, reply) => sendPage(reply, DOCS_PATH, request.headers.accept));
  app.get(LLMS_PATH, (_, reply) => sendMarkdown(reply, DOCS_PATH));
  app.get<{ Params: { page: string } }>(`${DOCS_PATH}/:page`, (request, reply) => {
    const path = `${DOCS_PATH}/${request.params.page}`;
    if (path.endsWith('.md')) return sendMarkdown(reply, path.slice(0, -'.md'.length));
    return sendPage(reply, path, request.headers.accept);
  });
  for (const folder of ['images', 'examples']) {
    app.get<{ Params: { name: string } }>(`${DOCS_PATH}/${folder}/:name`, (request, reply) => {
      const address = `${DOCS_PATH}/${folder}/${request.params.name}`;
      const file = guideFileAt(address);
      if (file === undefined) throw notFound();
      return send(reply, keep(address, file.read), { 'content-type': file.type });
    });
  }
  registerAssets(app, `${DOCS_PATH}/assets`, assetsOf(options.brand));
  if (start.hasClient) {
    app.get(CLIENT_PATH, (_, reply) => {
      const bytes = keep(CLIENT_PATH, () => readFileSync(CLIENT_FILE));
      return send(reply, bytes, { 'content-type': 'application/gzip' });
    });
  }
}

function send(reply: FastifyReply, body: Buffer, headers: Headers) {
  const own = { 'cache-control': 'public, max-age=300', 'x-content-type-options': 'nosniff' };
  return reply.headers({ ...own, ...headers }).send(body);
}

function notFound(): ContractError {
  return new ContractError('NOT_FOUND', 'There is no such document. GET /llms.txt lists them.');
}
