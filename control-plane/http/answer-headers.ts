import type { FastifyReply, FastifyRequest } from 'fastify';
import { pathOf } from './request-path.ts';

/** No CORS headers: keys do not belong in pages. */
export const ANSWER_HEADERS = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'cache-control': 'no-store',
} as const;

/** @param negotiated the path at which the answer depends on Accept */
export function setAnswerHeaders(
  request: FastifyRequest,
  reply: FastifyReply,
  negotiated?: string,
): void {
  reply.headers(ANSWER_HEADERS).header('x-request-id', request.id);
  if (pathOf(request) === negotiated) reply.header('vary', 'accept');
}
