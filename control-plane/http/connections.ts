/**
 * A server that closes at once resets connections whose request is still on its way. So shutdown
 * first stops accepting, then gives open connections LINGER_MS_MAX for a request, which is answered
 * with `Connection: close`, and then closes idle connections.
 *
 * A connection belongs to a stranger until a request on it shows a valid API key. On a nearly full
 * port, connections that wait for their client make room (port-room.ts), strangers' first. A
 * submission may hold its connection for minutes, so accounts share those connections.
 */
import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http';
import net from 'node:net';
import type { Duplex } from 'node:stream';
import { setImmediate as afterPolling } from 'node:timers/promises';
import { noteConnection } from '@matting/program/event-loop.ts';
import { networkOf } from '@matting/program/ports/addresses.ts';
import { GatheringMessage } from '@matting/program/ports/chunked-bodies.ts';
import { type EndedCause, guardHttpServer } from '@matting/program/ports/http-guard.ts';
import { connectionsWithin } from '@matting/program/ports/listening.ts';
import type { PortRoom } from '@matting/program/ports/port-room.ts';
import { type PaceOptions, UNREAD_STRANGERS_MAX } from '@matting/program/ports/reader-pace.ts';
import { serveRequest } from '@matting/program/request-owner.ts';
import { type Release, Semaphore } from '@matting/program/semaphore.ts';
import { settledWithin } from '@matting/program/waiting.ts';
import { ContractError, unavailable } from '@matting/proto/contract/errors.ts';
import fastify, {
  type FastifyBaseLogger,
  type FastifyHttpOptions,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  LogController,
} from 'fastify';
import { ANSWER_HEADERS, setAnswerHeaders } from './answer-headers.ts';
import type { Answered } from './answer-log.ts';
import { createErrorHandler, type ErrorHandlerOptions } from './error-handler.ts';
import { PROBLEM_TYPE, problemOf } from './problems.ts';
import { createRequestId, hasBody, readForwardedFor, requestIdOf } from './request-headers.ts';

/** A trip around the world takes half of it. */
const LINGER_MS_MAX = 500;
/** Node accepts one connection a tick; more wait in the backlog. */
const BACKLOG_MS_MAX = 500;
/** Fraction that waiting clients must leave free. */
const SPARE_SHARE = 0.1;
/** Fraction whose bodies we wait for: once for strangers, once for accounts. */
export const BODIES_SHARE = 0.1;
/** Fraction with a submission in progress, including its body and wait. */
const SUBMISSIONS_SHARE = 0.8;
const SUBMISSIONS_RETRY_AFTER_S = 5;
/** Fraction of keyless connections whose answer waits to be read. */
const UNREAD_STRANGERS_SHARE = 0.25;

/** Each may hold a few hundred KiB of buffers and a file for its picture. */
export const PUBLIC_MAX = 10_000;
const PUBLIC_SHARE = 0.5;
const OPERATOR_MAX = 128;
const OPERATOR_SHARE = 1 / 16;

const HEADER_BYTES_MAX = 16 * 1024;

interface PortOptions extends ErrorHandlerOptions {
  readonly baseUrl: string;
  readonly logger?: FastifyBaseLogger | undefined;
  readonly connectionsMax: number;
  readonly negotiated?: string;
  readonly onAnswered?: ((answered: Answered) => void) | undefined;
  readonly bounds: FastifyHttpOptions<Server>;
}

/** Every answer is ours, even to bytes that are not HTTP. Routes read the bodies. */
export function createPort(options: PortOptions): FastifyInstance {
  const { baseUrl, logger, negotiated, onAnswered, bounds } = options;
  const errors = { baseUrl, log: logger, onAnswered };
  const handleError = createErrorHandler(baseUrl, options);
  const app = fastify({
    ...bounds,
    ...(logger && { loggerInstance: logger }),
    // addAnswerLog writes the lines, without URLs: a result's link is a secret.
    logController: new LogController({ disableRequestLogging: true }),
    genReqId: requestIdOf,
    clientErrorHandler: createClientErrorHandler(errors),
    frameworkErrors: (error, request, reply) => {
      setAnswerHeaders(request, reply, negotiated);
      handleError(error, request, reply);
    },
    http: {
      ...bounds.http,
      IncomingMessage: GatheringMessage,
      maxHeaderSize: HEADER_BYTES_MAX,
      // Node's own refusal would lack our headers. requireHost refuses instead.
      requireHostHeader: false,
    },
  });
  app.server.maxConnections = options.connectionsMax;
  watchConnections(app.server, errors);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, done) => done(null));
  app.setErrorHandler(handleError);
  return app;
}

export function publicConnectionsMax(filesMax?: number): number {
  return connectionsWithin(PUBLIC_MAX, PUBLIC_SHARE, filesMax);
}

export function operatorConnectionsMax(filesMax?: number): number {
  return connectionsWithin(OPERATOR_MAX, OPERATOR_SHARE, filesMax);
}

export interface ConnectionsOptions {
  readonly onDropped?: (() => void) | undefined;
  readonly onEnded?: ((cause: EndedCause) => void) | undefined;
  readonly readingPace?: Omit<PaceOptions, 'ownerOf' | 'onEnded'> | undefined;
}

export class Connections {
  readonly #server: Server;
  #open = 0;
  #taken = 0;
  /** The account of the last key on a connection. */
  readonly #accounts = new WeakMap<net.Socket, string>();
  readonly #submissions: Semaphore;
  /**
   * Without a request yet: Node counts these neither idle nor busy, so its close waits for them.
   */
  readonly #unused = new Set<net.Socket>();
  #onLast: () => void = () => undefined;
  #takingBacklog: Promise<void> | undefined;
  /** Bodies wait in this room, except those of submissions. */
  readonly room: PortRoom;

  constructor(server: Server, { onDropped, onEnded, readingPace }: ConnectionsOptions) {
    this.#server = server;
    this.#submissions = new Semaphore({
      get max() {
        return Math.floor(server.maxConnections * SUBMISSIONS_SHARE);
      },
      waitingMax: 0,
      refusal: () =>
        unavailable(
          'Too many submissions arrive at once. Send the same request again later.',
          SUBMISSIONS_RETRY_AFTER_S,
        ),
    });
    server.on('connection', (socket: net.Socket) => {
      noteConnection();
      this.#open += 1;
      this.#taken += 1;
      this.#unused.add(socket);
      socket.once('close', () => {
        this.#open -= 1;
        this.#unused.delete(socket);
        if (this.#open === 0) this.#onLast();
      });
    });
    server.on('request', ({ socket }: IncomingMessage) => this.#unused.delete(socket));
    const unreadShare = Math.floor(server.maxConnections * UNREAD_STRANGERS_SHARE);
    this.room = guardHttpServer(server, {
      spareShare: SPARE_SHARE,
      bodiesShare: BODIES_SHARE,
      ownerOf: socket => this.#accounts.get(socket),
      onEnded,
      unreadStrangersMax: Math.min(UNREAD_STRANGERS_MAX, unreadShare),
      ...readingPace,
    });
    server.on('drop', () => onDropped?.());
  }

  /** Call it before any route is added, and before hooks that run under the request's owner. */
  serve(app: FastifyInstance, callers: Callers): void {
    const { accountOf, readiness } = callers;
    awaitBodies(app, this.room, callers);
    app.addHook('preClose', () => this.#linger());
    // Requests wait until the backlog is accepted: a caller who is answered would connect again at
    // once and could fill the backlog as fast as it empties.
    app.addHook('onRequest', (_request, _reply, done) => {
      if (this.#takingBacklog === undefined) done();
      else void this.#takingBacklog.then(() => done());
    });
    // Runs without trusted proxies too; then nobody reads the header.
    app.addHook('onRequest', readForwardedFor);
    app.addHook('onRequest', (request, _reply, done) => serveRequest({ shows: request.ip }, done));
    app.addHook('onSend', (request, reply, payload, done) => {
      // The caller's next request must reach another replica.
      if (readiness.draining) reply.header('connection', 'close');
      const accountId = accountOf(request);
      if (accountId !== undefined) this.#accounts.set(request.raw.socket, accountId);
      done(null, payload);
    });
  }

  /** @throws ContractError SERVICE_UNAVAILABLE: the account has its share of the submissions */
  enterSubmission(accountId: string): Release {
    return this.#submissions.takeNow({ key: accountId });
  }

  get open(): number {
    return this.#open;
  }

  async #linger(): Promise<void> {
    if (!this.#server.listening) return;
    this.#takingBacklog = this.#takeBacklog();
    await this.#takingBacklog;
    // node:http's close also ends idle connections, and a connection whose request is on its way is
    // idle. The base class closes only the listener.
    net.Server.prototype.close.call(this.#server);
    if (this.#open === 0) return;
    const left = new Promise<void>(resolve => {
      this.#onLast = resolve;
    });
    await settledWithin(left, LINGER_MS_MAX);
    for (const socket of this.#unused) socket.destroy();
  }

  /** Closing the listener resets connections that the system accepted and Node did not. */
  async #takeBacklog(): Promise<void> {
    const until = performance.now() + BACKLOG_MS_MAX;
    let takenBefore: number;
    do {
      takenBefore = this.#taken;
      // The first ends this tick of the loop; the system is polled before the second.
      await afterPolling();
      await afterPolling();
    } while (this.#taken > takenBefore && performance.now() < until);
  }
}

interface Callers {
  /** undefined: an unauthenticated caller. */
  readonly accountOf: (request: FastifyRequest) => string | undefined;
  readonly hasKey: (request: FastifyRequest) => boolean;
  readonly readiness: { readonly draining: boolean };
}

/**
 * Counts requests whose bodies we wait for, from the last check of their headers until the body is
 * whole or the answer is written. A submission with an API key holds a share of its account
 * instead. Call it before any route is added.
 * @param callers absent: all are unauthenticated
 */
export function awaitBodies(
  app: FastifyInstance,
  room: PortRoom,
  callers?: Pick<Callers, 'accountOf' | 'hasKey'>,
): void {
  const note = (request: FastifyRequest, reply: FastifyReply) => {
    // undefined: a test injected the request without a socket.
    if (request.raw.complete !== false || !hasBody(request.raw)) return;
    const account = callers?.accountOf(request);
    const owner = account === undefined ? { network: networkOf(request.ip) } : { account };
    room.awaitBody(request.raw, reply.raw, owner);
  };
  // Runs after all checks of headers, even those that query the database.
  app.addHook('preParsing', (request, reply, _payload, done) => {
    if (callers?.hasKey(request) !== true) note(request, reply);
    done(null);
  });
  app.addHook('onSend', (request, reply, payload, done) => {
    note(request, reply);
    done(null, payload);
  });
}

const DETAILS: Readonly<Record<string, string>> = {
  HPE_PAUSED_H2_UPGRADE: 'This server speaks HTTP/1.1, not HTTP/2.',
  HPE_HEADER_OVERFLOW: `The request headers are over ${HEADER_BYTES_MAX / 1024} KiB.`,
  ERR_HTTP_REQUEST_TIMEOUT: 'The request did not arrive in time.',
  ERR_TRANSFER_CODING: 'The only Transfer-Encoding is chunked, on HTTP/1.1.',
};

/** Each connection's latest response: an error must not be written between its bytes. */
const responses = new WeakMap<Duplex, ServerResponse>();

type RequestListener = (request: IncomingMessage, response: ServerResponse) => void;

interface ClientErrorOptions {
  readonly baseUrl: string;
  readonly log: Pick<FastifyBaseLogger, 'info'> | undefined;
  readonly onAnswered: ((answered: Answered) => void) | undefined;
}

/**
 * Node takes some messages as chunked that RFC 9112 section 6.1 does not (HTTP/1.0, or another
 * coding too). A proxy in front may see the body end elsewhere (request smuggling), so such a
 * message and all that follows on its connection are refused. Also answers CONNECT, whose
 * connection Node would close without an answer.
 */
function watchConnections(server: Server, options: ClientErrorOptions): void {
  const listeners = server.listeners('request') as RequestListener[];
  const refused = new WeakSet<Duplex>();
  server.removeAllListeners('request');
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request;
    // Node still emits the rest of the chunk as requests.
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
    const error = new ContractError('METHOD_NOT_ALLOWED', 'This server is not a proxy.');
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

function createClientErrorHandler(options: ClientErrorOptions) {
  const failed = new WeakSet<Duplex>();
  return (error: NodeJS.ErrnoException, socket: Duplex & { bytesRead: number }): void => {
    if (failed.has(socket)) return;
    failed.add(socket);
    // Browsers open connections that they never use and expect no answer on them.
    if (!socket.writable || socket.bytesRead === 0 || error.code === 'ECONNRESET') {
      socket.destroy();
      return;
    }
    const detail = DETAILS[error.code ?? ''] ?? 'The bytes sent are not a valid HTTP request.';
    const refusal = new ContractError('INVALID_REQUEST', detail, { cause: error });
    const response = responses.get(socket);
    if (response === undefined || response.writableFinished) {
      endWith(socket, refusal, createRequestId(), options);
    } else if (response.req.complete) {
      // The answer to the complete request goes first, or the caller would take this one for it.
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
  const { http: status } = spec;
  const cause = (error.cause as NodeJS.ErrnoException | undefined)?.code;
  log?.info({ reqId: requestId, status, code, cause }, 'answered without a route');
  onAnswered?.({ route: undefined, method: undefined, status, code, seconds: undefined });
  const body = JSON.stringify(problemOf(error, { baseUrl, requestId }));
  const lines = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    `Content-Type: ${PROBLEM_TYPE}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-ID: ${requestId}`,
    ...(status === 405 ? ['Allow: GET, HEAD, POST'] : []),
    ...Object.entries(ANSWER_HEADERS).map(([name, value]) => `${name}: ${value}`),
    'Connection: close',
    '',
    body,
  ];
  socket.end(lines.join('\r\n'));
  socket.once('finish', () => socket.destroy());
}
