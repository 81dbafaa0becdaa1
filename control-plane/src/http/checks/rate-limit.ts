/**
 * The third check of every call with a key, behind the API key and the Idempotency-Key and before a
 * body byte is read: how often the account asks. Every answer from here on has the account's quota
 * in the fields of draft-ietf-httpapi-ratelimit-headers-11 (structured fields, RFC 9651).
 */
import type { onRequestAsyncHookHandler } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import type { RateKind } from '../../domain/rate-quota.ts';
import type { RateLimits } from '../../services/rate-limits.ts';
import { callerOf } from './authentication.ts';

/** The onRequest hook. @throws ContractError RATE_LIMITED */
export function requireRate(
  rateLimits: Pick<RateLimits, 'take'>,
  kind: RateKind,
): onRequestAsyncHookHandler {
  return async (request, reply) => {
    const state = await rateLimits.take(callerOf(request).accountId, kind);
    const { limit, windowS, remaining, resetS } = state;
    reply.headers({
      'ratelimit-policy': `"${kind}";q=${limit};w=${windowS}`,
      ratelimit: `"${kind}";r=${remaining};t=${resetS}`,
    });
    if (state.allowed) return;
    const detail = `the account is over its ${limit} ${kind} in ${windowS} seconds`;
    throw new ContractError('RATE_LIMITED', detail, { retryAfterS: resetS });
  };
}
