/**
 * Checks before a body byte is read, in the contract's order: Authorization, Idempotency-Key, rates
 * of key and account; for submissions the body's headers and the account's open submissions.
 */

import type { Caller } from '@matting/accounts/keys/caller.ts';
import type { KeyScope } from '@matting/accounts/keys/key-policy.ts';
import { refusalOfKey } from '@matting/accounts/keys/key-policy.ts';
import type { RateLimits, RateState } from '@matting/accounts/rates/rate-limits.ts';
import type { RateKind } from '@matting/accounts/rates/rate-windows.ts';
import type { Connections } from '@matting/http/connections.ts';
import { headerValues, requireIdempotencyKey } from '@matting/http/request-headers.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type {
  FastifyReply,
  FastifyRequest,
  onRequestAsyncHookHandler,
  onRequestHookHandler,
} from 'fastify';
import type { AppServices } from './app-services.ts';
import { requireBodyForm } from './read-matting-body.ts';

/** RFC 6750 section 2.1, with any number of spaces after the scheme. */
const BEARER = /^Bearer +([A-Za-z0-9._~+/-]+=*)$/i;
const TOKEN_LENGTH_MAX = 512;

const callers = new WeakMap<FastifyRequest, Caller>();
const UNKNOWN_KEY =
  'The API key is unknown or revoked. Send a key of this service, which begins with mk_.';

/** For requests with a session of the account area. */
const accounts = new WeakMap<FastifyRequest, string>();

interface KeyServices {
  readonly authenticator: AppServices['authenticator'];
  readonly keyUses: Pick<AppServices['keyUses'], 'note'>;
}

/**
 * Runs again after the body, so that a key that was revoked meanwhile creates no job.
 * @throws ContractError MISSING_API_KEY, INVALID_API_KEY, KEY_NOT_ALLOWED
 */
export function requireApiKey(
  { authenticator, keyUses }: KeyServices,
  /** Undefined: a key of any scope. */
  scope: KeyScope | undefined,
  tokenOf = bearerTokenOf,
): (request: FastifyRequest) => Promise<void> {
  return async request => {
    const caller = await authenticator.authenticate(tokenOf(request));
    if (caller === 'malformed' || caller === 'unknown') {
      throw new ContractError('INVALID_API_KEY', UNKNOWN_KEY);
    }
    if ('kind' in caller) {
      const at = new Date(caller.atMs).toISOString();
      const detail =
        caller.kind === 'expired'
          ? `The API key expired at ${at}. Use another key, or set a later expiry in the account area.`
          : `This secret of the API key was replaced and expired at ${at}. Send the new secret.`;
      throw new ContractError('INVALID_API_KEY', detail);
    }
    callers.set(request, caller);
    if (caller.policy !== undefined) {
      const refusal = refusalOfKey(caller.policy, scope, request.ip);
      if (refusal !== undefined) throw new ContractError('KEY_NOT_ALLOWED', refusal);
    }
    keyUses.note(caller);
  };
}

/** @throws as `requireKey` */
export function callerRecheck(
  requireKey: ReturnType<typeof requireApiKey>,
): (request: FastifyRequest) => Promise<Caller> {
  return async request => {
    await requireKey(request);
    return callerOf(request);
  };
}

/** True even if the key may not make this request. */
export function hasKnownKey(request: FastifyRequest): boolean {
  return callers.has(request);
}

export function noteKnownAccount(request: FastifyRequest, accountId: string): void {
  accounts.set(request, accountId);
}

/** Undefined: neither a key nor a session. */
export function knownAccountOf(request: FastifyRequest): string | undefined {
  return callers.get(request)?.accountId ?? accounts.get(request);
}

export function callerOf(request: FastifyRequest): Caller {
  const caller = callers.get(request);
  if (caller === undefined) throw new Error('a route without requireApiKey asked for its caller');
  return caller;
}

function bearerTokenOf(request: FastifyRequest): string {
  const values = headerValues(request.raw, 'authorization');
  if (values.length > 1) {
    const detail = 'The Authorization header is given more than once. Send it once.';
    throw new ContractError('INVALID_API_KEY', detail);
  }
  const value = values[0]?.trim() ?? '';
  if (value === '') {
    const isOther = headerValues(request.raw, 'x-api-key').length > 0;
    const missing = isOther
      ? 'This path does not read X-Api-Key.'
      : 'The Authorization header is missing.';
    const detail = `${missing} Send Authorization: Bearer <API_KEY>.`;
    throw new ContractError('MISSING_API_KEY', detail);
  }
  if (/^bearer$/i.test(value)) {
    const detail = 'The API key is empty. Set the variable that your request takes it from.';
    throw new ContractError('INVALID_API_KEY', detail);
  }
  const token = BEARER.exec(value)?.[1];
  if (token === undefined || token.length > TOKEN_LENGTH_MAX) {
    const detail = 'The Authorization header is not valid. Send Authorization: Bearer <API_KEY>.';
    throw new ContractError('INVALID_API_KEY', detail);
  }
  return token;
}

/**
 * Reads X-Api-Key, otherwise Authorization: Bearer. If both are sent, Authorization may be a
 * proxy's.
 * @throws ContractError MISSING_API_KEY, INVALID_API_KEY
 */
export function apiKeyOf(request: FastifyRequest): string {
  const [key, ...more] = headerValues(request.raw, 'x-api-key').map(value => value.trim());
  if (more.length > 0) {
    throw new ContractError(
      'INVALID_API_KEY',
      'The X-Api-Key header is given more than once. Send it once.',
    );
  }
  if (key !== undefined && key.length > TOKEN_LENGTH_MAX) {
    throw new ContractError('INVALID_API_KEY', UNKNOWN_KEY);
  }
  if (key) return key;
  const bearer = headerValues(request.raw, 'authorization').join('').trim();
  if (bearer !== '') return bearerTokenOf(request);
  throw new ContractError(
    'MISSING_API_KEY',
    'The API key is missing. Send it as X-Api-Key, or as Authorization: Bearer <API_KEY>.',
  );
}

export interface NamedRate extends RateState {
  readonly name: RateKind | 'key-submissions';
}

/**
 * The key's own rate comes first: a request that it refuses costs the account nothing.
 * @param setHeaders gets every rate counted so far, the last first
 * @throws ContractError RATE_LIMITED
 */
export function requireRate(
  rateLimits: RateLimits,
  kind: RateKind,
  setHeaders: (rates: readonly NamedRate[], reply: FastifyReply) => void = setRateHeaders,
): onRequestAsyncHookHandler {
  return async (request, reply) => {
    const { accountId, apiKeyId, policy } = callerOf(request);
    const taken: NamedRate[] = [];
    const take = (rate: NamedRate) => {
      taken.unshift(rate);
      setHeaders(taken, reply);
      requireAllowed(rate);
    };
    const ofKey = kind === 'submissions' ? policy?.submissionsPerMinute : undefined;
    if (ofKey !== undefined) {
      take({ name: 'key-submissions', ...(await rateLimits.takeOfKey(apiKeyId, ofKey)) });
    }
    take({ name: kind, ...(await rateLimits.take(accountId, kind)) });
  };
}

/** draft-ietf-httpapi-ratelimit-headers-11 (structured fields, RFC 9651). */
function setRateHeaders(rates: readonly NamedRate[], reply: FastifyReply): void {
  reply.headers({
    'ratelimit-policy': rates
      .map(({ name, limit, windowS }) => `"${name}";q=${limit};w=${windowS}`)
      .join(', '),
    ratelimit: rates
      .map(({ name, remaining, resetS }) => `"${name}";r=${remaining};t=${resetS}`)
      .join(', '),
  });
}

function requireAllowed({ name, allowed, limit, windowS, resetS }: NamedRate): void {
  if (allowed) return;
  const [who, what] =
    name === 'key-submissions' ? ['The API key', 'submissions'] : ['The account', name];
  const detail = `${who} is over its limit of ${limit} ${what} in ${windowS} seconds. Wait for Retry-After.`;
  throw new ContractError('RATE_LIMITED', detail, { retryAfterS: resetS });
}

export type Check = onRequestHookHandler | onRequestAsyncHookHandler;

export type HeaderChecks = ReturnType<typeof createHeaderChecks>;

export function createHeaderChecks(
  services: AppServices,
  connections: Connections,
  options: { readonly readsRequireIdempotencyKey: boolean },
) {
  const { rateLimits } = services;
  const apiKey = requireApiKey(services, 'submit');
  const reads = requireRate(rateLimits, 'reads');
  const readKey = requireIdempotencyKey({ optional: !options.readsRequireIdempotencyKey });
  const submissionOf = (requireBody: onRequestHookHandler): Check[] => [
    apiKey,
    requireIdempotencyKey({ optional: false }),
    requireRate(rateLimits, 'submissions'),
    requireBody,
    holdSlot(connections),
  ];
  return {
    submission: submissionOf(requireBodyForm),
    submissionOf,
    read: [requireApiKey(services, 'read'), readKey, reads] satisfies Check[],
    /** Counts as a read, since it costs no more. */
    deletion: [apiKey, readKey, reads] satisfies Check[],
    account: [requireApiKey(services, 'account'), readKey, reads] satisfies Check[],
    models: [requireApiKey(services, undefined), readKey, reads] satisfies Check[],
    recheckCaller: callerRecheck(apiKey),
  };
}

export function holdSlot(connections: Connections): onRequestHookHandler {
  return (request, reply, done) => {
    const { accountId } = callerOf(request);
    // If the caller hung up during authentication, 'close' was already emitted.
    if (!reply.raw.closed) {
      reply.raw.once('close', connections.enterSubmission(accountId));
    }
    done();
  };
}
