/**
 * The checks made from headers alone, before a body byte is read, in the contract's order:
 * Authorization, Idempotency-Key, and for submissions what the headers say of the body. A rate
 * limit belongs between the second and the third.
 */
import type { onRequestAsyncHookHandler, onRequestHookHandler } from 'fastify';
import type { Authenticator } from '../services/account.ts';
import { requireApiKey } from './authentication.ts';
import { requireIdempotencyKey } from './idempotency-key.ts';
import { requireJsonBody } from './json-body.ts';

type Check = onRequestHookHandler | onRequestAsyncHookHandler;

export interface HeaderChecks {
  readonly submission: Check[];
  readonly read: Check[];
}

export function createHeaderChecks(
  authenticator: Authenticator,
  options: { readonly readsRequireIdempotencyKey: boolean },
): HeaderChecks {
  const apiKey = requireApiKey(authenticator);
  const readKey = requireIdempotencyKey({ optional: !options.readsRequireIdempotencyKey });
  return {
    submission: [apiKey, requireIdempotencyKey({ optional: false }), requireJsonBody],
    read: [apiKey, readKey],
  };
}
