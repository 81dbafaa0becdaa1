/**
 * What a request's headers say of its body: one of the forms of a submission, no content coding, a
 * length within bounds. The last check that needs no body byte; a body it refuses stays unread.
 */
import type { IncomingMessage } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import { IMAGE_BYTES_MAX, REQUEST_BODY_BYTES_MAX } from '#contract/limits.ts';
import { bodyTypeOf } from '../headers/content-type.ts';
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
export function requireBodyForm(
  request: FastifyRequest,
  reply: FastifyReply,
  done: (error?: Error) => void,
): void {
  const { headers } = request;
  if (headers['content-encoding'] !== undefined) {
    reply.header('accept-encoding', 'identity');
    const detail = 'the body must be sent without a Content-Encoding';
    done(new ContractError('UNSUPPORTED_MEDIA_TYPE', detail));
    return;
  }
  const form = bodyFormOf(request.raw);
  if (form === undefined) {
    reply.header('accept', ACCEPTED);
    const detail =
      'the body must be application/json in UTF-8, multipart/form-data or the picture itself';
    done(new ContractError('UNSUPPORTED_MEDIA_TYPE', detail));
    return;
  }
  const bytesMax = bodyBytesMax(form);
  if (Number(headers['content-length']) > bytesMax) {
    done(bodyTooLarge(bytesMax));
    return;
  }
  done();
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
