import { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { setAnswerHeaders } from './answer-headers.ts';
import { KnownPaths } from './known-paths.ts';
import { headerValues } from './request-headers.ts';
import { pathOf } from './request-path.ts';

type Refuse = (request: FastifyRequest, reply: FastifyReply) => never;

/**
 * Call it before you add a route.
 * @returns the handler of unknown paths, for a scope whose hooks must run before it
 */
export function checkRequests(app: FastifyInstance, negotiated?: string): Refuse {
  const paths = new KnownPaths();
  const refuse: Refuse = (request, reply) => refuseUnknownPath(request, reply, paths);
  app.addHook('onRoute', ({ url, method }) => paths.add(url, method));
  app.addHook('onRequest', (request, reply, done) => {
    setAnswerHeaders(request, reply, negotiated);
    requireHost(request);
    const isOfScope = request.server !== app && ['GET', 'HEAD'].includes(request.method);
    if (request.is404 && !isOfScope) refuse(request, reply);
    done();
  });
  // Replaces Fastify's answer. The hook above refuses first.
  app.setNotFoundHandler(refuse);
  return refuse;
}

/** @throws ContractError INVALID_REQUEST: RFC 9112 section 3.2 requires exactly one Host */
function requireHost({ raw }: FastifyRequest): void {
  const is11 = raw.httpVersionMajor === 1 && raw.httpVersionMinor >= 1;
  const count = headerValues(raw, 'host').length;
  if (count > 1 || (is11 && count === 0)) {
    throw new ContractError('INVALID_REQUEST', 'Send exactly one Host header.');
  }
}

/** @throws ContractError NOT_FOUND, METHOD_NOT_ALLOWED (with Allow) */
function refuseUnknownPath(request: FastifyRequest, reply: FastifyReply, paths: KnownPaths): never {
  const path = pathOf(request);
  const methods = paths.methodsOf(path);
  if (methods === undefined) {
    const detail = ['There is nothing at this path.', paths.hintFor(path)].filter(Boolean);
    throw new ContractError('NOT_FOUND', detail.join(' '));
  }
  reply.header('allow', methods.join(', '));
  const detail = `This path does not take ${request.method}. Use ${methods.join(' or ')}.`;
  throw new ContractError('METHOD_NOT_ALLOWED', detail);
}
