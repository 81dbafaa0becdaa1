/** What a request's headers say of its body: the last check that needs no byte of it. */
import type { IncomingMessage } from 'node:http';
import type { onRequestHookHandler } from 'fastify';
import { ContractError } from '#contract/errors.ts';

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

export function bodyTooLarge(bytesMax: number): ContractError {
  return new ContractError('IMAGE_TOO_LARGE', `the request body is over ${bytesMax} bytes`);
}
