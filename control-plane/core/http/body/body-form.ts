/**
 * What a request's headers say of its body: one of the forms of a submission, no content coding, a
 * length within bounds. The last check that needs no body byte; a body it refuses stays unread.
 */
import type { IncomingMessage } from 'node:http';
import type { onRequestHookHandler } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import { IMAGE_BYTES_MAX, REQUEST_BODY_BYTES_MAX } from '#contract/limits.ts';
import { bodyTypeOf } from '../request-headers.ts';
import { boundaryOf } from './part-head.ts';

/** Which picture it is, its bytes say. */
const PICTURE_TYPE = /^(?:image\/.|application\/octet-stream$)/;
/** RFC 9110 section 12.5.1: what a caller may send instead. */
const ACCEPTED = 'application/json, multipart/form-data, image/*, application/octet-stream';

export type BodyForm =
  | { readonly kind: 'json' }
  | { readonly kind: 'multipart'; readonly boundary: string }
  /** The file itself; its fields are in the query. */
  | { readonly kind: 'picture' };

/** The onRequest hook. @throws ContractError as bodyFormOf; UNSUPPORTED_MEDIA_TYPE, IMAGE_TOO_LARGE */
export const requireBodyForm = requireBodyHead({
  accepted: ACCEPTED,
  wanted: 'application/json in UTF-8, multipart/form-data or the picture itself',
  bytesMaxOf: request => {
    const form = bodyFormOf(request);
    return form && bodyBytesMax(form);
  },
});

/**
 * The onRequest hook of an interface: what its submissions' headers say of the body.
 * @param of.bytesMaxOf undefined: a type that it does not take
 */
export function requireBodyHead(of: {
  readonly accepted: string;
  readonly wanted: string;
  readonly bytesMaxOf: (request: IncomingMessage) => number | undefined;
}): onRequestHookHandler {
  return ({ raw, headers }, reply, done) => {
    if (headers['content-encoding'] !== undefined) {
      reply.header('accept-encoding', 'identity');
      const detail = 'the body must be sent without a Content-Encoding';
      throw new ContractError('UNSUPPORTED_MEDIA_TYPE', detail);
    }
    const bytesMax = of.bytesMaxOf(raw);
    if (bytesMax === undefined) {
      reply.header('accept', of.accepted);
      throw new ContractError('UNSUPPORTED_MEDIA_TYPE', `the body must be ${of.wanted}`);
    }
    if (Number(headers['content-length']) > bytesMax) throw bodyTooLarge(bytesMax);
    done();
  };
}

/** Undefined: none that is supported. @throws ContractError INVALID_REQUEST: no usable boundary */
export function bodyFormOf(request: IncomingMessage): BodyForm | undefined {
  const type = bodyTypeOf(request);
  if (type === 'none' || type?.type === 'application/json') return { kind: 'json' };
  if (type === undefined) return undefined;
  if (type.type === 'multipart/form-data') return { kind: 'multipart', boundary: boundaryOf(type) };
  return PICTURE_TYPE.test(type.type) ? { kind: 'picture' } : undefined;
}

export function bodyBytesMax({ kind }: BodyForm): number {
  return kind === 'picture' ? IMAGE_BYTES_MAX : REQUEST_BODY_BYTES_MAX;
}

export function bodyTooLarge(bytesMax: number): ContractError {
  return new ContractError('IMAGE_TOO_LARGE', `the request body is over ${bytesMax} bytes`);
}
