/**
 * What a request's headers say of its body: one of the forms of a submission, no content coding, a
 * length within bounds. The last check that needs no body byte; a body it refuses stays unread.
 */
import type { IncomingMessage } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import { IMAGE_BYTES_MAX, REQUEST_BODY_BYTES_MAX } from '#contract/limits.ts';
import { headerValues } from '../headers/raw-headers.ts';
import { boundaryOf } from './part-head.ts';

const JSON_TYPE = /^application\/json\s*(?:;|$)/i;
/** RFC 8259 has no charset parameter; one that names another encoding than UTF-8 is refused. */
const CHARSET = /;\s*charset\s*=\s*"?([^\s;"]*)/i;
const MULTIPART_TYPE = /^multipart\/form-data\s*(?:;|$)/i;
/** Which picture it is, its bytes say. */
const PICTURE_TYPE = /^(?:image\/[!#$%&'*+\-.^_`|~0-9a-z]+|application\/octet-stream)\s*(?:;|$)/i;
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

/**
 * Undefined: none that is supported. Each Content-Type counts: Node keeps the first, something
 * before us may have gone by another. @throws ContractError INVALID_REQUEST: no usable boundary
 */
export function bodyFormOf(request: IncomingMessage): BodyForm | undefined {
  const [type, ...more] = headerValues(request, 'content-type');
  if (type === undefined) return hasBody(request) ? undefined : { kind: 'json' };
  if ([type, ...more].every(isJson)) return { kind: 'json' };
  if (more.length > 0) return undefined;
  if (MULTIPART_TYPE.test(type)) return { kind: 'multipart', boundary: boundaryOf(type) };
  return PICTURE_TYPE.test(type) ? { kind: 'picture' } : undefined;
}

export function bodyBytesMax({ kind }: BodyForm): number {
  return kind === 'picture' ? IMAGE_BYTES_MAX : REQUEST_BODY_BYTES_MAX;
}

export function bodyTooLarge(bytesMax: number): ContractError {
  return new ContractError('IMAGE_TOO_LARGE', `the request body is over ${bytesMax} bytes`);
}

function isJson(type: string): boolean {
  const charset = CHARSET.exec(type)?.[1] ?? 'utf-8';
  return JSON_TYPE.test(type) && charset.toLowerCase() === 'utf-8';
}

function hasBody({ headers }: IncomingMessage): boolean {
  if (headers['transfer-encoding'] !== undefined) return true;
  return headers['content-length'] !== undefined && headers['content-length'] !== '0';
}
