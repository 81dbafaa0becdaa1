/** The one key of the operator's port: the first check of everything below /operator. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { FastifyRequest, onRequestHookHandler } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import { headerValues } from '../../http/request-headers.ts';

const BEARER = /^Bearer +([\x21-\x7e]{1,256})$/i;

/**
 * The onRequest hook.
 * @param key undefined: the operator's interface is off.
 * @throws ContractError NOT_FOUND where it is off, INVALID_OPERATOR_KEY
 */
export function requireOperatorKey(key: string | undefined): onRequestHookHandler {
  const expected = key === undefined ? undefined : digest(key);
  return (request, _reply, done) => {
    if (expected === undefined) {
      const detail =
        'the operator interface is off: set MATTING_OPERATOR_KEY on this control plane';
      throw new ContractError('NOT_FOUND', detail);
    }
    const given = bearerOf(request);
    // Digests have one length, so the comparison reveals nothing about the key's length.
    if (given === undefined || !timingSafeEqual(digest(given), expected)) {
      const detail = 'send the operator key once, as Authorization: Bearer <key>';
      throw new ContractError('INVALID_OPERATOR_KEY', detail);
    }
    done();
  };
}

/** Compares in constant time. */
export function isOperatorKey(key: string, given: string): boolean {
  return timingSafeEqual(digest(given), digest(key));
}

function bearerOf(request: FastifyRequest): string | undefined {
  const [value, ...more] = headerValues(request.raw, 'authorization');
  return value === undefined || more.length > 0 ? undefined : BEARER.exec(value.trim())?.[1];
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
