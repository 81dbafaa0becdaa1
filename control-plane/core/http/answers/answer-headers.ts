/** The headers of every answer, and the checks of a request that come before its route's. */

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import type { Sight } from '#contract/finishing.ts';
import type { Job } from '../../jobs/job.ts';
import { headerValues } from '../request-headers.ts';
import { pathOf } from './error-handler.ts';

/** No CORS headers: keys do not belong in pages. */
export const ANSWER_HEADERS = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'cache-control': 'no-store',
} as const;

/** Where Accept decides between JSON and a picture: every answer says so, refusals too. */
const NEGOTIATED_PATH = '/v1/matting';

export function setAnswerHeaders(request: FastifyRequest, reply: FastifyReply): void {
  reply.headers(ANSWER_HEADERS).header('x-request-id', request.id);
  if (pathOf(request) === NEGOTIATED_PATH) reply.header('vary', 'accept');
}

/** What every request of a port meets before its route, to be called before a route is added. */
export function checkRequests(app: FastifyInstance): void {
  const paths = new KnownPaths();
  app.addHook('onRoute', ({ url, method }) => paths.add(url, method));
  app.addHook('onRequest', (request, reply, done) => {
    setAnswerHeaders(request, reply);
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

/* What a node saw in the picture, in headers: where the picture itself is the answer. */

/** Enough for a pixel of the largest picture. */
const SHARE_DIGITS = 6;

/**
 * `X-Subject-Box` (left, top, width and height in pixels of the input) and `X-Subject-Share` (of the
 * input's area). Without a subject the share alone, 0; neither where the node did not say.
 */
export function subjectHeaders(sight: Sight | null): Record<string, string> {
  if (sight === null) return {};
  if (sight.subject === null) return { 'x-subject-share': '0' };
  const { inputBox, share } = sight.subject;
  const { left, top, width, height } = inputBox;
  return {
    'x-subject-box': [left, top, width, height].join(','),
    'x-subject-share': String(Number(share.toPrecision(SHARE_DIGITS))),
  };
}

/* Server-Timing: how long each stage of a finished job took. */

/** The header; empty while the job has no stage times. */
export function serverTimingOf({ timings }: Job): Record<string, string> {
  const stages = Object.entries(timings ?? {});
  if (stages.length === 0) return {};
  const metrics = stages.map(([stage, ms]) => {
    const token = stage.replaceAll(/[^A-Za-z0-9_-]/g, '_');
    return `${token};dur=${Number(ms.toFixed(1))}`;
  });
  return { 'server-timing': metrics.join(', ') };
}
