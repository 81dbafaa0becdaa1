import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { hasBody } from './request-headers.ts';

const DRAIN_BYTES_MAX = 1024 * 1024;
/** For callers that are slow, or silent without closing. */
const DRAIN_MS_MAX = 2000;

const awaitingContinue = new WeakSet<IncomingMessage>();

/** Answers `Expect: 100-continue` when a route wants the body. */
export function deferContinue(server: Server): void {
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    awaitingContinue.add(request);
    server.emit('request', request, response);
  });
  // RFC 9110 section 10.1.1 lets a server ignore an unknown expectation.
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    server.emit('request', request, response);
  });
}

/**
 * Pauses a body's connection, which would otherwise buffer up to two reads of 64 KiB.
 * @returns resumes it
 */
export function holdBody({ socket }: IncomingMessage): () => void {
  // A stream makes its connection flow a tick later, which would undo an earlier pause. So pause
  // again after each resume.
  const stay = () => socket.pause();
  socket.on('resume', stay);
  // An injected test request's socket lacks both methods.
  socket.pause?.();
  socket.resume?.();
  return () => {
    socket.off('resume', stay);
    socket.resume?.();
  };
}

/** Call it before you read a body. */
export function wantBody(request: FastifyRequest, reply: FastifyReply): void {
  if (awaitingContinue.delete(request.raw)) reply.raw.writeContinue();
}

/**
 * A caller whose body is not read to its end still needs the answer. The rest of a small body is
 * read. Of a large body at most DRAIN_BYTES_MAX are read after the answer, then the connection is
 * closed: with unread bytes the system would send a reset, which may overtake the answer.
 */
export function finishUnreadBody(
  request: FastifyRequest,
  reply: FastifyReply,
  payload: unknown,
  done: (error: Error | null, payload?: unknown) => void,
): void {
  const body = request.raw;
  const { headers } = request;
  const declaredBytes = Number(headers['content-length'] ?? 0);
  // undefined: a test injected the request without a socket.
  if (!hasBody(body) || body.complete !== false || body.destroyed) {
    done(null, payload);
    return;
  }
  if (headers['transfer-encoding'] === undefined && declaredBytes <= DRAIN_BYTES_MAX) {
    body.resume();
    done(null, payload);
    return;
  }
  reply.header('connection', 'close');
  if (typeof payload !== 'string' && !Buffer.isBuffer(payload)) {
    done(null, payload);
    return;
  }
  const answer = Buffer.from(payload);
  // With the length the caller has the whole answer before the stream ends.
  reply.header('content-length', answer.length);
  done(null, Readable.from(answerThenDrain(answer, body), { objectMode: false }));
}

async function* answerThenDrain(answer: Buffer, body: IncomingMessage): AsyncGenerator<Buffer> {
  yield answer;
  await drain(body);
}

function drain(body: IncomingMessage): Promise<void> {
  return new Promise(resolve => {
    let drainedBytes = 0;
    const stop = () => {
      clearTimeout(timer);
      body.off('data', count);
      body.pause();
      resolve();
    };
    const count = (chunk: Buffer) => {
      drainedBytes += chunk.length;
      if (drainedBytes >= DRAIN_BYTES_MAX) stop();
    };
    const timer = setTimeout(stop, DRAIN_MS_MAX);
    body.once('end', stop).once('close', stop).once('error', stop);
    body.on('data', count);
    if (body.destroyed || body.readableEnded) stop();
  });
}
