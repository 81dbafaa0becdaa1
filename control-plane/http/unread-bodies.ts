/** Bodies that wait to be read, and what is left of one when its answer is sent. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { hasBody } from './request-headers.ts';

const DRAIN_BYTES_MAX = 1024 * 1024;
/** The bound for callers that send slowly, or neither send nor close. */
const DRAIN_MS_MAX = 2000;

const awaitingContinue = new WeakSet<IncomingMessage>();

/** `Expect: 100-continue` is answered when the body is wanted, not when the headers have come. */
export function deferContinue(server: Server): void {
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    awaitingContinue.add(request);
    server.emit('request', request, response);
  });
  // RFC 9110 section 10.1.1 lets a server ignore an expectation it does not know.
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    server.emit('request', request, response);
  });
}

/**
 * Stops reading from the connection of a body, which would otherwise keep up to two reads of 64 KiB
 * of what the caller sends meanwhile.
 * @returns what reads on
 */
export function holdBody({ socket }: IncomingMessage): () => void {
  // A stream asks its connection to flow by itself, which takes effect a tick later. A pause before
  // that would be undone, so each one follows a resume.
  const stay = () => socket.pause();
  socket.on('resume', stay);
  // A request that a test injects has a socket without these two.
  socket.pause?.();
  socket.resume?.();
  return () => {
    socket.off('resume', stay);
    socket.resume?.();
  };
}

/** Called before a body is read. */
export function wantBody(request: FastifyRequest, reply: FastifyReply): void {
  if (awaitingContinue.delete(request.raw)) reply.raw.writeContinue();
}

/**
 * The onSend hook: a request whose body is not read to its end still needs its answer to arrive.
 * What is left of a small body is read away and the connection lives on; of a large one at most
 * DRAIN_BYTES_MAX are read after the answer was written, then the connection is closed: closing
 * with bytes unread would make the system send a reset, which may overtake the answer.
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
  // Undefined where a test injects a request without a socket.
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
  // A caller that knows the length has the whole answer before the stream below ends.
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
