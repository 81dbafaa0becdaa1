/**
 * What callers read about this service: the OpenAPI document and the page of error codes. No key.
 */
import type { FastifyInstance } from 'fastify';
import { openApiDocument } from './openapi.ts';
import { ERROR_DOCS_PATH } from './problem.ts';

const CACHE_CONTROL = 'public, max-age=300';

/** @param errorsPage docs/errors.md, as the `type` of every problem points into it */
export function registerDocumentRoutes(
  app: FastifyInstance,
  options: { readonly baseUrl: string; readonly version: string; readonly errorsPage: string },
): void {
  const openApi = Buffer.from(JSON.stringify(openApiDocument(options)));
  app.get('/v1/openapi.json', async (_request, reply) =>
    reply
      .headers({ 'cache-control': CACHE_CONTROL, 'content-type': 'application/json' })
      .send(openApi),
  );
  const page = Buffer.from(options.errorsPage);
  app.get(ERROR_DOCS_PATH, async (_request, reply) => {
    const type = 'text/markdown; charset=utf-8';
    return reply.headers({ 'cache-control': CACHE_CONTROL, 'content-type': type }).send(page);
  });
}
