/**
 * The Idempotency-Key header: the second check, after the API key and before a body byte is read.
 */
import type { FastifyRequest, onRequestHookHandler } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import { IDEMPOTENCY_KEY_LENGTH_MAX } from '#contract/limits.ts';
import { headerValues } from './raw-headers.ts';

const KEY = new RegExp(`^[\\x20-\\x7e]{1,${IDEMPOTENCY_KEY_LENGTH_MAX}}$`);

const keys = new WeakMap<FastifyRequest, string>();

/**
 * The onRequest hook. A key that is given must be valid even where it may be absent.
 * @throws ContractError INVALID_IDEMPOTENCY_KEY
 */
export function requireIdempotencyKey(options: { optional: boolean }): onRequestHookHandler {
  return (request, _reply, done) => {
    const values = headerValues(request.raw, 'idempotency-key');
    if (values.length > 0 || !options.optional) keys.set(request, keyIn(values));
    done();
  };
}

/** Only for routes with requireIdempotencyKey without `optional`. */
export function idempotencyKeyOf(request: FastifyRequest): string {
  const key = keys.get(request);
  if (key === undefined) throw new Error('a route without requireIdempotencyKey asked for its key');
  return key;
}

/** @throws ContractError INVALID_IDEMPOTENCY_KEY */
function keyIn([key, ...more]: readonly string[]): string {
  if (key === undefined) throw invalid('the Idempotency-Key header is missing');
  if (more.length > 0) throw invalid('the Idempotency-Key header is given more than once');
  if (key.length === 0) throw invalid('the Idempotency-Key header is empty');
  if (key.length > IDEMPOTENCY_KEY_LENGTH_MAX) {
    throw invalid(`the Idempotency-Key is longer than ${IDEMPOTENCY_KEY_LENGTH_MAX} characters`);
  }
  if (!KEY.test(key)) throw invalid('the Idempotency-Key must be printable ASCII');
  return key;
}

function invalid(detail: string): ContractError {
  return new ContractError('INVALID_IDEMPOTENCY_KEY', detail);
}
