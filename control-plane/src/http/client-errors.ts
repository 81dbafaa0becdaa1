/**
 * Connections whose bytes are no request, or no whole one in time: answered without a route, as far
 * as an answer can still be written.
 */
import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { ContractError } from '#contract/errors.ts';
import { PROBLEM_TYPE, problemOf } from './problem.ts';
import { createRequestId } from './request-id.ts';

const DETAILS: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: 'the request headers are too large',
  ERR_HTTP_REQUEST_TIMEOUT: 'the request did not arrive in time',
};

/** The response that is being written on a connection: nothing may be put between its bytes. */
const responses = new WeakMap<Socket, ServerResponse>();

export function trackResponses(server: Server): void {
  const track = (request: IncomingMessage, response: ServerResponse) => {
    responses.set(request.socket, response);
  };
  server.prependListener('request', track);
}

export function createClientErrorHandler(baseUrl: string) {
  return (error: NodeJS.ErrnoException, socket: Socket): void => {
    const response = responses.get(socket);
    const answering = response?.headersSent === true && !response.writableFinished;
    // A connection that was opened and never used, as browsers do, expects no answer.
    if (socket.writable && !answering && socket.bytesRead > 0 && error.code !== 'ECONNRESET') {
      socket.end(answer(error, baseUrl));
      // The rest of what it sends is of no use, and nobody reads it.
      socket.once('finish', () => socket.destroy());
    } else {
      socket.destroy();
    }
  };
}

function answer(cause: NodeJS.ErrnoException, baseUrl: string): string {
  const detail = DETAILS[cause.code ?? ''] ?? 'the bytes sent are not a valid HTTP request';
  const requestId = createRequestId();
  const problem = problemOf(new ContractError('INVALID_REQUEST', detail), { baseUrl, requestId });
  const body = JSON.stringify(problem);
  return [
    `HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status]}`,
    `Content-Type: ${PROBLEM_TYPE}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-ID: ${requestId}`,
    'X-Content-Type-Options: nosniff',
    'Cache-Control: no-store',
    'Connection: close',
    '',
    body,
  ].join('\r\n');
}
