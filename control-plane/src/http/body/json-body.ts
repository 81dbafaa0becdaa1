/**
 * What a request's headers say of its body: a media type, no content coding, a length within
 * bounds. The last check that needs no body byte; a body it refuses stays unread.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import { REQUEST_BODY_BYTES_MAX } from '#contract/limits.ts';
import { headerValues } from '../headers/raw-headers.ts';

const JSON_TYPE = /^application\/json\s*(?:;|$)/i;
/** RFC 8259 has no charset parameter; one that names another encoding than UTF-8 is refused. */
const CHARSET = /;\s*charset\s*=\s*"?([^\s;"]*)/i;

/** The onRequest hook. @throws ContractError UNSUPPORTED_MEDIA_TYPE, IMAGE_TOO_LARGE */
export function requireJsonBody(
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
  // Each of them: Node keeps the first, something before us may have gone by another.
  const types = headerValues(request.raw, 'content-type');
  if (types.length === 0 ? hasBody(request) : !types.every(isJson)) {
    reply.header('accept', 'application/json');
    const detail = 'the body must be application/json in UTF-8';
    done(new ContractError('UNSUPPORTED_MEDIA_TYPE', detail));
    return;
  }
  if (Number(headers['content-length']) > REQUEST_BODY_BYTES_MAX) {
    done(bodyTooLarge());
    return;
  }
  done();
}

export function bodyTooLarge(): ContractError {
  const detail = `the request body is over ${REQUEST_BODY_BYTES_MAX} bytes`;
  return new ContractError('IMAGE_TOO_LARGE', detail);
}

function isJson(type: string): boolean {
  const charset = CHARSET.exec(type)?.[1] ?? 'utf-8';
  return JSON_TYPE.test(type) && charset.toLowerCase() === 'utf-8';
}

function hasBody({ headers }: FastifyRequest): boolean {
  if (headers['transfer-encoding'] !== undefined) return true;
  return headers['content-length'] !== undefined && headers['content-length'] !== '0';
}
