/**
 * Cross-origin requests (the Fetch standard), only where the operator allows an origin: a key in a
 * page can be read by everyone who opens it. Off, the interface answers none of it.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { pathOf } from '../core/http/answers/error-handler.ts';
import { headerValues } from '../core/http/headers/raw-headers.ts';
import { isRemovebgRequest } from './removebg-errors.ts';

const METHODS = 'GET, POST, OPTIONS';
const REQUEST_HEADERS = 'X-Api-Key, Authorization, Content-Type, Accept';
/** What a page may read of an answer. */
const ANSWER_HEADERS = [
  ...['X-Width', 'X-Height', 'X-Max-Width', 'X-Max-Height', 'X-Type', 'X-Credits-Charged'],
  ...['X-Foreground-Top', 'X-Foreground-Left', 'X-Foreground-Width', 'X-Foreground-Height'],
  ...['X-RateLimit-Limit', 'X-RateLimit-Remaining', 'X-RateLimit-Reset', 'Retry-After'],
  ...['X-Ignored-Fields', 'X-Job-ID', 'X-Request-ID'],
].join(', ');
const PREFLIGHT_MAX_AGE_S = 600;

/** @param origins as a browser sends them; `*` is every one; none: nothing is added */
export function allowOrigins(app: FastifyInstance, origins: readonly string[]): void {
  if (origins.length === 0) return;
  app.addHook('onRequest', (request, reply, done) => {
    if (isRemovebgRequest(pathOf(request))) setOriginHeaders(request, reply, origins);
    done();
  });
  for (const path of ['/v1.0/removebg', '/v1.0/account']) {
    app.options(path, (_request, reply) =>
      reply
        .headers({
          'access-control-allow-methods': METHODS,
          'access-control-allow-headers': REQUEST_HEADERS,
          'access-control-max-age': String(PREFLIGHT_MAX_AGE_S),
        })
        .code(204)
        .send(),
    );
  }
}

function setOriginHeaders(
  request: FastifyRequest,
  reply: FastifyReply,
  origins: readonly string[],
): void {
  reply.header('access-control-expose-headers', ANSWER_HEADERS);
  if (origins.includes('*')) {
    reply.header('access-control-allow-origin', '*');
    return;
  }
  reply.header('vary', 'origin');
  const [origin, ...more] = headerValues(request.raw, 'origin');
  if (origin === undefined || more.length > 0 || !origins.includes(origin)) return;
  reply.header('access-control-allow-origin', origin);
}
