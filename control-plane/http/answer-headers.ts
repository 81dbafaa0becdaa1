/** The headers of every answer, and the checks of a request that come before its route's. */

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import { pathOf } from './error-handler.ts';
import { headerValues } from './request-headers.ts';

/** No CORS headers: keys do not belong in pages. */
export const ANSWER_HEADERS = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'cache-control': 'no-store',
} as const;

export function setAnswerHeaders(request: FastifyRequest, reply: FastifyReply): void {
  reply.headers(ANSWER_HEADERS).header('x-request-id', request.id);
}

/**
 * What every request of a port meets before its route, to be called before a route is added.
 * @param setHeaders of every answer, refusals too
 */
export function checkRequests(app: FastifyInstance, setHeaders = setAnswerHeaders): void {
  const paths = new KnownPaths();
  app.addHook('onRoute', ({ url, method }) => paths.add(url, method));
  app.addHook('onRequest', (request, reply, done) => {
    setHeaders(request, reply);
    requireHost(request);
    if (request.is404) refuseUnknownPath(request, reply, paths);
    done();
  });
  // No request reaches it, since the hook above refuses first: it replaces the framework's answer.
  app.setNotFoundHandler((request, reply) => refuseUnknownPath(request, reply, paths));
}

/** The paths that exist and their methods: collected as routes are added. */
class KnownPaths {
  readonly #methods = new Map<
    string,
    { readonly matches: RegExp; readonly methods: Set<string> }
  >();

  /** @param url as the router takes it: `:name` stands for one segment. */
  add(url: string, method: string | readonly string[]): void {
    let known = this.#methods.get(url);
    if (known === undefined) {
      const matches = new RegExp(`^${url.replaceAll('.', '\\.').replaceAll(/:\w+/g, '[^/]+')}$`);
      known = { matches, methods: new Set() };
      this.#methods.set(url, known);
    }
    for (const one of [method].flat()) known.methods.add(one);
  }

  /** For Allow; undefined where there is no such path. */
  methodsOf(path: string): readonly string[] | undefined {
    for (const { matches, methods } of this.#methods.values()) {
      if (matches.test(path)) return [...methods].sort();
    }
    return undefined;
  }
}

/** @throws ContractError INVALID_REQUEST: RFC 9112 section 3.2 asks for exactly one Host. */
function requireHost(request: FastifyRequest): void {
  const { raw } = request;
  const is11 = raw.httpVersionMajor === 1 && raw.httpVersionMinor >= 1;
  const count = headerValues(raw, 'host').length;
  if (count > 1 || (is11 && count === 0)) {
    throw new ContractError('INVALID_REQUEST', 'exactly one Host header is required');
  }
}

/** @throws ContractError NOT_FOUND, METHOD_NOT_ALLOWED (with Allow) */
function refuseUnknownPath(request: FastifyRequest, reply: FastifyReply, paths: KnownPaths): never {
  const methods = paths.methodsOf(pathOf(request));
  if (methods === undefined) throw new ContractError('NOT_FOUND', 'there is nothing at this path');
  reply.header('allow', methods.join(', '));
  const detail = `${request.method} is not allowed here, only ${methods.join(', ')}`;
  throw new ContractError('METHOD_NOT_ALLOWED', detail);
}
