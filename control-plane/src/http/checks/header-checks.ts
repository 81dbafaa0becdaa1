/**
 * The checks made from headers alone, before a body byte is read, in the contract's order:
 * Authorization, Idempotency-Key, the account's rate, and for submissions what the headers say of
 * the body and whether the account has a place for one more.
 */
import type { FastifyRequest, onRequestAsyncHookHandler, onRequestHookHandler } from 'fastify';
import type { Authenticator } from '../../services/account.ts';
import type { RateLimits } from '../../services/rate-limits.ts';
import { requireBodyForm } from '../body/body-form.ts';
import type { Connections } from '../connections/connections.ts';
import { requireIdempotencyKey } from '../headers/idempotency-key.ts';
import { callerOf, requireApiKey } from './authentication.ts';
import { requireRate } from './rate-limit.ts';

type Check = onRequestHookHandler | onRequestAsyncHookHandler;

export interface HeaderCheckServices {
  readonly authenticator: Authenticator;
  readonly rateLimits: Pick<RateLimits, 'take'>;
}

export type SubmissionPlaces = Pick<Connections, 'enterSubmission' | 'leaveSubmission'>;

export interface HeaderChecks {
  readonly submission: Check[];
  readonly read: Check[];
  /** For the time after the body was read: whether the API key of its headers is still valid. */
  readonly apiKey: (request: FastifyRequest) => Promise<void>;
}

export function createHeaderChecks(
  { authenticator, rateLimits }: HeaderCheckServices,
  places: SubmissionPlaces,
  options: { readonly readsRequireIdempotencyKey: boolean },
): HeaderChecks {
  const apiKey = requireApiKey(authenticator);
  const readKey = requireIdempotencyKey({ optional: !options.readsRequireIdempotencyKey });
  return {
    submission: [
      apiKey,
      requireIdempotencyKey({ optional: false }),
      requireRate(rateLimits, 'submissions'),
      requireBodyForm,
      holdPlace(places),
    ],
    read: [apiKey, readKey, requireRate(rateLimits, 'reads')],
    apiKey,
  };
}

/** Holds a place until the answer is sent or the caller is gone. */
export function holdPlace(places: SubmissionPlaces): onRequestHookHandler {
  return (request, reply, done) => {
    const { accountId } = callerOf(request);
    // If the caller hung up during authentication, 'close' was already emitted.
    if (!reply.raw.closed) {
      places.enterSubmission(accountId);
      reply.raw.once('close', () => places.leaveSubmission(accountId));
    }
    done();
  };
}
