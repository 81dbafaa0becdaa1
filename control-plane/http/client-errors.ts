/**
 * Connections whose bytes are not a valid request, or not a complete one in time: answered without
 * a route where an answer can still be written.
 */
import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import type { FastifyBaseLogger } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import { ANSWER_HEADERS } from './answer-headers.ts';
import type { Answered } from './answer-log.ts';
import { PROBLEM_TYPE, problemOf } from './error-handler.ts';
import { createRequestId, requestIdOf } from './request-headers.ts';

const DETAILS: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: 'the request headers are too large',
  ERR_HTTP_REQUEST_TIMEOUT: 'the request did not arrive in time',
  ERR_TRANSFER_CODING: 'Transfer-Encoding may be chunked, on HTTP/1.1, and nothing else',
};

/** The latest response of a connection: nothing may be put between its bytes. */
const responses = new WeakMap<Duplex, ServerResponse>();

type RequestListener = (request: IncomingMessage, response: ServerResponse) => void;

export interface ClientErrorOptions {
  readonly baseUrl: string;
  readonly log: Pick<FastifyBaseLogger, 'info'> | undefined;
  readonly onAnswered: ((answered: Answered) => void) | undefined;
}

/**
 * Stands before the listeners for requests that are there when it is called. What Node takes for
 * chunked though it is not (RFC 9112 section 6.1: in HTTP/1.0, or in another coding besides) is
 * refused like bytes that are no request: something before us may see another end of the body, so
 * nothing behind it on its connection is a request. Also answers CONNECT, whose connection Node
 * would close without an answer.
 */
export function watchConnections(server: Server, options: ClientErrorOptions): void {
  const listeners = server.listeners('request') as RequestListener[];
  const refused = new WeakSet<Duplex>();
  server.removeAllListeners('request');
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request;
    // What is left of its chunk is still handed on.
    if (refused.has(socket)) return;
    if (isFramedOtherwise(request)) {
      refused.add(socket);
      const error = Object.assign(new Error('transfer coding'), { code: 'ERR_TRANSFER_CODING' });
      server.emit('clientError', error, socket);
      return;
    }
    responses.set(socket, response);
    for (const listener of listeners) listener.call(server, request, response);
  });
  server.on('connect', (request: IncomingMessage, socket: Duplex) => {
    const error = new ContractError('METHOD_NOT_ALLOWED', 'this server is not a proxy');
    // Node has removed its own error listener.
    socket.once('error', () => socket.destroy());
    endWith(socket, error, requestIdOf(request), options);
  });
}

function isFramedOtherwise({ headers, httpVersion }: IncomingMessage): boolean {
  const coding = headers['transfer-encoding'];
  if (coding === undefined) return false;
  return httpVersion === '1.0' || coding.trim().toLowerCase() !== 'chunked';
}

export function createClientErrorHandler(options: ClientErrorOptions) {
  /** Connections that failed before: their further errors are ignored. */
  const failed = new WeakSet<Duplex>();
  return (error: NodeJS.ErrnoException, socket: Duplex & { bytesRead: number }): void => {
    if (failed.has(socket)) return;
    failed.add(socket);
    // A connection that was opened and never used, as browsers do, expects no answer.
    if (!socket.writable || socket.bytesRead === 0 || error.code === 'ECONNRESET') {
      socket.destroy();
      return;
    }
    const detail = DETAILS[error.code ?? ''] ?? 'the bytes sent are not a valid HTTP request';
    const refusal = new ContractError('INVALID_REQUEST', detail, { cause: error });
    const response = responses.get(socket);
    if (response === undefined || response.writableFinished) {
      endWith(socket, refusal, createRequestId(), options);
    } else if (response.req.complete) {
      // The bytes came after a complete request, whose answer must be sent first: the caller would
      // take this one for it.
      response.once('close', () => endWith(socket, refusal, createRequestId(), options));
    } else if (response.headersSent) {
      socket.destroy();
    } else {
      endWith(socket, refusal, requestIdOf(response.req), options);
    }
  };
}

function endWith(
  socket: Duplex,
  error: ContractError,
  requestId: string,
  { baseUrl, log, onAnswered }: ClientErrorOptions,
): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  const { code, spec } = error;
  const cause = (error.cause as NodeJS.ErrnoException | undefined)?.code;
  const status = spec.http;
  log?.info({ reqId: requestId, status, code, cause }, 'answered without a route');
  onAnswered?.({ route: undefined, method: undefined, status, code, seconds: undefined });
  socket.end(answer(error, requestId, baseUrl));
  // Nothing more is read from it.
  socket.once('finish', () => socket.destroy());
}

function answer(error: ContractError, requestId: string, baseUrl: string): string {
  const problem = problemOf(error, { baseUrl, requestId });
  const body = JSON.stringify(problem);
  return [
    `HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status]}`,
    `Content-Type: ${PROBLEM_TYPE}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-ID: ${requestId}`,
    ...(problem.status === 405 ? ['Allow: GET, HEAD, POST'] : []),
    ...Object.entries(ANSWER_HEADERS).map(([name, value]) => `${name}: ${value}`),
    'Connection: close',
    '',
    body,
  ].join('\r\n');
}
