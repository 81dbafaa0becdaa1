/**
 * The checks made from headers alone, before a body byte is read, in the contract's order:
 * Authorization, Idempotency-Key, the account's rate, and for submissions what the headers say of
 * the body.
 */
import type { FastifyRequest, onRequestAsyncHookHandler, onRequestHookHandler } from 'fastify';
import type { Authenticator } from '../services/account.ts';
import type { RateLimits } from '../services/rate-limits.ts';
import { requireApiKey } from './authentication.ts';
import { requireIdempotencyKey } from './idempotency-key.ts';
import { requireJsonBody } from './json-body.ts';
import { requireRate } from './rate-limit.ts';

type Check = onRequestHookHandler | onRequestAsyncHookHandler;

export interface HeaderCheckServices {
  readonly authenticator: Authenticator;
  readonly rateLimits: Pick<RateLimits, 'take'>;
}

export interface HeaderChecks {
  readonly submission: Check[];
  readonly read: Check[];
  /** Once a body has been read: whether the API key of its headers still stands. */
  readonly apiKey: (request: FastifyRequest) => Promise<void>;
}

export function createHeaderChecks(
  { authenticator, rateLimits }: HeaderCheckServices,
  options: { readonly readsRequireIdempotencyKey: boolean },
): HeaderChecks {
  const apiKey = requireApiKey(authenticator);
  const readKey = requireIdempotencyKey({ optional: !options.readsRequireIdempotencyKey });
  return {
    submission: [
      apiKey,
      requireIdempotencyKey({ optional: false }),
      requireRate(rateLimits, 'submissions'),
      requireJsonBody,
    ],
    read: [apiKey, readKey, requireRate(rateLimits, 'reads')],
    apiKey,
  };
}
