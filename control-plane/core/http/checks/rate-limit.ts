/**
 * The third check of every call with a key, behind the API key and the Idempotency-Key and before a
 * body byte is read: how often the account asks, and the key where it has a rate of its own. Every
 * answer from here on has the quota of each that was asked in the fields of
 * draft-ietf-httpapi-ratelimit-headers-11 (structured fields, RFC 9651).
 */
import type { onRequestAsyncHookHandler } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import type { Caller } from '../../accounts/account.ts';
import type { RateLimits, RateState } from '../../rates/rate-limits.ts';
import type { RateKind } from '../../rates/rate-quota.ts';
import { callerOf } from './authentication.ts';

/** The onRequest hook. @throws ContractError RATE_LIMITED */
export function requireRate(rateLimits: RateLimits, kind: RateKind): onRequestAsyncHookHandler {
  return async (request, reply) => {
    const told: ToldRate[] = [];
    for await (const rate of takeRates(rateLimits, callerOf(request), kind)) {
      told.unshift(rate);
      reply.headers({
        'ratelimit-policy': told
          .map(({ name, limit, windowS }) => `"${name}";q=${limit};w=${windowS}`)
          .join(', '),
        ratelimit: told
          .map(({ name, remaining, resetS }) => `"${name}";r=${remaining};t=${resetS}`)
          .join(', '),
      });
      requireAllowed(rate);
    }
  };
}

/** A rate, and by which name it is told. */
export interface ToldRate extends RateState {
  readonly name: RateKind | 'key-submissions';
}

/**
 * That of the key, where it has one of its own, and then the account's: what the key refuses takes
 * nothing of what other keys share.
 */
export async function* takeRates(
  rateLimits: RateLimits,
  { accountId, apiKeyId, policy }: Caller,
  kind: RateKind,
): AsyncGenerator<ToldRate> {
  const ofKey = kind === 'submissions' ? policy?.submissionsPerMinute : undefined;
  if (ofKey !== undefined) {
    yield { name: 'key-submissions', ...(await rateLimits.takeOfKey(apiKeyId, ofKey)) };
  }
  yield { name: kind, ...(await rateLimits.take(accountId, kind)) };
}

/** @throws ContractError RATE_LIMITED */
export function requireAllowed({ name, allowed, limit, windowS, resetS }: ToldRate): void {
  if (allowed) return;
  const [who, what] =
    name === 'key-submissions' ? ['the API key', 'submissions'] : ['the account', name];
  const detail = `${who} is over its ${limit} ${what} in ${windowS} seconds`;
  throw new ContractError('RATE_LIMITED', detail, { retryAfterS: resetS });
}
