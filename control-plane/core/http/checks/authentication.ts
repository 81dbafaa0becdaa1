/**
 * Authentication: the first check of every call that needs a key, made from headers alone, before a
 * body byte is read. `callerOf(request)` is then the caller.
 */
import type { FastifyRequest } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import type { Caller } from '../../accounts/account.ts';
import { refusalOfKey } from '../../keys/key-access.ts';
import type { KeyScope } from '../../keys/key-policy.ts';
import type { AppServices } from '../app-services.ts';
import { headerValues } from '../headers/raw-headers.ts';

/** RFC 6750 section 2.1, with any number of spaces after the scheme. */
const BEARER = /^Bearer +([A-Za-z0-9._~+/-]+=*)$/i;
/** Far above any key this service makes. */
export const TOKEN_LENGTH_MAX = 512;

const callers = new WeakMap<FastifyRequest, Caller>();
/** Of requests that are known otherwise: by a session of the account area. */
const accounts = new WeakMap<FastifyRequest, string>();

/**
 * The onRequest hook; and the same check again once a body has arrived: headers sent before a
 * revocation must not create a job after it.
 * @param scope what the route is part of
 * @param tokenOf where the key is; in Authorization unless given
 * @throws ContractError MISSING_API_KEY, INVALID_API_KEY, KEY_NOT_ALLOWED
 */
export function requireApiKey(
  { authenticator, keyUses }: AppServices,
  scope: KeyScope,
  tokenOf = bearerTokenOf,
): (request: FastifyRequest) => Promise<void> {
  return async request => {
    const caller = await authenticator.authenticate(tokenOf(request));
    if (caller === 'malformed' || caller === 'unknown') {
      throw new ContractError('INVALID_API_KEY', 'the API key is unknown or revoked');
    }
    if ('kind' in caller) {
      const at = new Date(caller.atMs).toISOString();
      const detail =
        caller.kind === 'expired'
          ? `the API key expired at ${at}`
          : `this secret of the API key was replaced, and ended at ${at}`;
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

/** Who the caller is now, for the time after something was waited for. @throws as `requireKey` */
export function askingAgain(
  requireKey: ReturnType<typeof requireApiKey>,
): (request: FastifyRequest) => Promise<Caller> {
  return async request => {
    await requireKey(request);
    return callerOf(request);
  };
}

/** Undefined where no key was required, or the key is none; one that may not is its caller's. */
export function knownCallerOf(request: FastifyRequest): Caller | undefined {
  return callers.get(request);
}

export function noteKnownAccount(request: FastifyRequest, accountId: string): void {
  accounts.set(request, accountId);
}

/** Whose request it is, by its API key or its session; undefined: a stranger's. */
export function knownAccountOf(request: FastifyRequest): string | undefined {
  return callers.get(request)?.accountId ?? accounts.get(request);
}

/** Only for routes with requireApiKey. */
export function callerOf(request: FastifyRequest): Caller {
  const caller = knownCallerOf(request);
  if (caller === undefined) throw new Error('a route without requireApiKey asked for its caller');
  return caller;
}

/** The key of the Authorization header. @throws ContractError MISSING_API_KEY, INVALID_API_KEY */
export function bearerTokenOf(request: FastifyRequest): string {
  const values = headerValues(request.raw, 'authorization');
  if (values.length > 1) {
    throw new ContractError('INVALID_API_KEY', 'the Authorization header is given more than once');
  }
  const value = values[0]?.trim() ?? '';
  if (value === '') {
    const detail = 'the Authorization header is missing: send Authorization: Bearer <API_KEY>';
    throw new ContractError('MISSING_API_KEY', detail);
  }
  const token = BEARER.exec(value)?.[1];
  if (token === undefined || token.length > TOKEN_LENGTH_MAX) {
    const detail = 'the Authorization header must have the form Bearer <API_KEY>';
    throw new ContractError('INVALID_API_KEY', detail);
  }
  return token;
}
