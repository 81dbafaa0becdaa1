/**
 * The checks of the remove.bg interface made from headers alone: the key, in either of two headers,
 * the account's rate, and for submissions what the headers say of the body and whether the account
 * has a place for one more. There is no Idempotency-Key: it is derived from the request.
 */
import type { FastifyRequest, onRequestAsyncHookHandler, onRequestHookHandler } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import type { AppServices } from '../core/http/app-services.ts';
import {
  askingAgain,
  bearerTokenOf,
  callerOf,
  holdPlace,
  requireAllowed,
  requireApiKey,
  TOKEN_LENGTH_MAX,
  takeRates,
} from '../core/http/header-checks.ts';
import type { RateLimits } from '../core/rates/rate-limits.ts';
import type { RateKind } from '../core/rates/rate-windows.ts';
import type { Connections } from '../http/connections.ts';
import { headerValues } from '../http/request-headers.ts';
import { requireRemovebgBody } from './removebg-body.ts';

type Check = onRequestHookHandler | onRequestAsyncHookHandler;

export interface RemovebgChecks {
  readonly submission: Check[];
  readonly account: Check[];
  /** For the time after the body was read: whose key it is, where that of its headers may still. */
  readonly askAgain: ReturnType<typeof askingAgain>;
}

export function createRemovebgChecks(
  services: AppServices,
  connections: Connections,
): RemovebgChecks {
  const { rateLimits } = services;
  const apiKey = requireApiKey(services, 'submit', requireKey);
  return {
    submission: [
      apiKey,
      requireRate(rateLimits, 'submissions'),
      requireRemovebgBody,
      holdPlace(connections),
    ],
    account: [requireApiKey(services, 'account', requireKey), requireRate(rateLimits, 'reads')],
    askAgain: askingAgain(apiKey),
  };
}

/**
 * X-Api-Key, else Authorization: Bearer. Where the first is there the second belongs to something
 * before us, and is not read.
 * @throws ContractError MISSING_API_KEY, INVALID_API_KEY
 */
function requireKey(request: FastifyRequest): string {
  const [key, ...more] = headerValues(request.raw, 'x-api-key').map(value => value.trim());
  if (more.length > 0) {
    throw new ContractError('INVALID_API_KEY', 'the X-Api-Key header is given more than once');
  }
  if (key !== undefined && key.length > TOKEN_LENGTH_MAX) {
    throw new ContractError('INVALID_API_KEY', 'the API key is unknown or revoked');
  }
  if (key) return key;
  if (headerValues(request.raw, 'authorization').length > 0) return bearerTokenOf(request);
  throw new ContractError('MISSING_API_KEY', 'send the API key as X-Api-Key');
}

/** As core/http/header-checks.ts, told in the headers that these clients read. */
function requireRate(rateLimits: RateLimits, kind: RateKind): onRequestAsyncHookHandler {
  return async (request, reply) => {
    let least = Number.POSITIVE_INFINITY;
    for await (const rate of takeRates(rateLimits, callerOf(request), kind)) {
      const { allowed, limit, remaining, resetS } = rate;
      // One rate can be told: the one that refuses first.
      if (!allowed || remaining < least) {
        reply.headers({
          'x-ratelimit-limit': String(limit),
          'x-ratelimit-remaining': String(remaining),
          'x-ratelimit-reset': String(Math.ceil(Date.now() / 1000) + resetS),
        });
      }
      least = Math.min(least, remaining);
      requireAllowed(rate);
    }
  };
}
