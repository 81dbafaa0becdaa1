/**
 * The checks made from headers alone, before a body byte is read, in the contract's order:
 * Authorization (the key, then where it may be used from and for what), Idempotency-Key, the rates
 * of the key and the account, and for submissions what the headers say of the body and whether the
 * account has a place for one more.
 */
import type { onRequestAsyncHookHandler, onRequestHookHandler } from 'fastify';
import type { AppServices } from '../app-services.ts';
import { requireBodyForm } from '../body/body-form.ts';
import type { Connections } from '../connections/connections.ts';
import { requireIdempotencyKey } from '../headers/idempotency-key.ts';
import { askingAgain, callerOf, requireApiKey } from './authentication.ts';
import { requireRate } from './rate-limit.ts';

type Check = onRequestHookHandler | onRequestAsyncHookHandler;

export interface HeaderChecks {
  readonly submission: Check[];
  /** Of jobs. */
  readonly read: Check[];
  /** Of the account: its credits, keys, packages, figures. */
  readonly account: Check[];
  /** For the time after the body was read: whose key it is, where that of its headers may still. */
  readonly askAgain: ReturnType<typeof askingAgain>;
}

export function createHeaderChecks(
  services: AppServices,
  connections: Connections,
  options: { readonly readsRequireIdempotencyKey: boolean },
): HeaderChecks {
  const { rateLimits } = services;
  const apiKey = requireApiKey(services, 'submit');
  const reads = requireRate(rateLimits, 'reads');
  const readKey = requireIdempotencyKey({ optional: !options.readsRequireIdempotencyKey });
  return {
    submission: [
      apiKey,
      requireIdempotencyKey({ optional: false }),
      requireRate(rateLimits, 'submissions'),
      requireBodyForm,
      holdPlace(connections),
    ],
    read: [requireApiKey(services, 'read'), readKey, reads],
    account: [requireApiKey(services, 'account'), readKey, reads],
    askAgain: askingAgain(apiKey),
  };
}

/** Holds a place until the answer is sent or the caller is gone. */
export function holdPlace(connections: Connections): onRequestHookHandler {
  return (request, reply, done) => {
    const { accountId } = callerOf(request);
    // If the caller hung up during authentication, 'close' was already emitted.
    if (!reply.raw.closed) {
      reply.raw.once('close', connections.enterSubmission(accountId));
    }
    done();
  };
}
