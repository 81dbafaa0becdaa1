/**
 * The HTTP application: every route, hook and limit of the public port, in the order they apply. It
 * does not listen by itself and owns none of the services it is given.
 */
import fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyRequest,
  LogController,
} from 'fastify';
import { serveRequest } from '#program/request-owner.ts';
import type { Tracing } from '#program/tracing/active-span.ts';
import {
  type Answered,
  addAnswerLog,
  addRequestSpans,
  checkRequests,
  createErrorHandler,
  type ErrorHandler,
  pathOf,
  setAnswerHeaders,
} from '../../http/answers.ts';
import { deferContinue, finishUnreadBody } from '../../http/bodies.ts';
import {
  awaitBodies,
  type ClientErrorOptions,
  Connections,
  type ConnectionsOptions,
  createClientErrorHandler,
  publicConnectionsMax,
  watchConnections,
} from '../../http/connections.ts';
import { readForwardedFor, requestIdOf } from '../../http/request-headers.ts';
import { registerAccountRoutes } from '../accounts/account-routes.ts';
import { registerResultRoutes } from '../results/result-routes.ts';
import { registerMattingRoutes } from '../submission/matting-routes.ts';
import type { AppServices } from './app-services.ts';
import { registerDocumentRoutes } from './document-routes.ts';
import { createHeaderChecks, knownAccountOf, knownCallerOf } from './header-checks.ts';
import { registerHealthRoutes } from './health-routes.ts';
import type { HttpInterface } from './http-interface.ts';

/** A body of 72 MiB arrives in time over 5 Mbit/s. */
const REQUEST_TIMEOUT_MS = 120_000;
const HEADERS_TIMEOUT_MS = 15_000;
/** How late a slow caller is noticed. */
const CONNECTIONS_CHECKING_INTERVAL_MS = 5000;
/** Longer than the usual 60 s of a load balancer, so that it is the one to close. */
const KEEP_ALIVE_TIMEOUT_MS = 75_000;
/** Beyond the longest wait: a connection on which nothing moves is given up. */
const IDLE_TIMEOUT_MARGIN_MS = 30_000;
const HEADER_BYTES_MAX = 16 * 1024;
/** Parameters are judged by their routes, whose errors are the contract's. */
const PARAM_LENGTH_MAX = HEADER_BYTES_MAX;
/** Where Accept decides between JSON and a picture. */
const NEGOTIATED_PATH = '/v1/matting';

export interface AppOptions extends ConnectionsOptions {
  readonly baseUrl: string;
  readonly syncWaitMs: number;
  readonly readsRequireIdempotencyKey: boolean;
  /** Of packages, in the order in which they are asked whose a request's errors are. */
  readonly interfaces: readonly HttpInterface[];
  /** Networks of proxies whose X-Forwarded-For is believed. */
  readonly trustedProxies: readonly string[];
  /** Version of this program, for the OpenAPI document. */
  readonly version: string;
  /** The text of docs/errors.md. */
  readonly errorsPage: string;
  readonly logger?: FastifyBaseLogger | undefined;
  /** Absent: there are no traces. */
  readonly tracing?: Tracing | undefined;
  /** There is a route, by its pattern; called for each of its methods, before any request. */
  readonly onRoute?: ((route: string, method: string) => void) | undefined;
  readonly onAnswered?: ((answered: Answered) => void) | undefined;
}

export interface App {
  readonly app: FastifyInstance;
  readonly connections: { readonly open: number };
}

/** Closed by `app.close`: no new connection is accepted, callers already connected are answered. */
export function buildApp(services: AppServices, options: AppOptions): App {
  const app = createServer(options);
  deferContinue(app.server);
  watchConnections(app.server, clientErrorOptions(options));
  const connections = new Connections(app.server, options);
  const hasKey = (request: FastifyRequest) => knownCallerOf(request) !== undefined;
  awaitBodies(app, connections.room, { accountOf: knownAccountOf, hasKey });
  app.addHook('preClose', () => connections.linger());
  app.addHook('onRequest', connections.hold);
  // Also without trusted proxies: then nobody reads the header.
  app.addHook('onRequest', readForwardedFor);
  app.addHook('onRequest', (request, _reply, done) => serveRequest({ shows: request.ip }, done));
  if (options.tracing !== undefined) addRequestSpans(app, options.tracing);
  // Bodies are read by the routes that want them, as they arrive.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, done) => done(null));

  app.addHook('onRoute', ({ url, method }) => {
    for (const one of [method].flat()) options.onRoute?.(url, one);
  });
  checkRequests(app, NEGOTIATED_PATH);
  app.addHook('onSend', finishUnreadBody);
  app.addHook('onSend', (_request, reply, payload, done) => {
    // The caller's next request must go to another replica, not to this one on this connection.
    if (services.readiness.draining) reply.header('connection', 'close');
    done(null, payload);
  });
  addAnswerLog(app, { accountOf: knownAccountOf, onAnswered: options.onAnswered });
  app.addHook('onSend', (request, _reply, payload, done) => {
    const accountId = knownAccountOf(request);
    if (accountId !== undefined) connections.noteKnown(request.raw.socket, accountId);
    done(null, payload);
  });
  app.setErrorHandler(errorHandlerOf(options));

  const checks = createHeaderChecks(services, connections, options);
  registerMattingRoutes(app, services, checks, options);
  registerResultRoutes(app, services);
  registerAccountRoutes(app, services, checks);
  for (const one of options.interfaces) one.register(app, { connections, checks });
  registerDocumentRoutes(app, options);
  registerHealthRoutes(app, services.readiness);
  return { app, connections };
}

function createServer(options: AppOptions): FastifyInstance {
  const handleError = errorHandlerOf(options);
  const waits = options.interfaces.map(({ longestWaitMs = 0 }) => longestWaitMs);
  const app = fastify({
    ...(options.logger && { loggerInstance: options.logger }),
    // addAnswerLog writes one line a request, without URLs: a result's link is a secret.
    logController: new LogController({ disableRequestLogging: true }),
    genReqId: requestIdOf,
    ...(options.trustedProxies.length > 0 && { trustProxy: [...options.trustedProxies] }),
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    connectionTimeout: Math.max(options.syncWaitMs, ...waits) + IDLE_TIMEOUT_MARGIN_MS,
    routerOptions: { maxParamLength: PARAM_LENGTH_MAX },
    // While closing, requests of open connections are answered by their routes, not by the
    // framework.
    return503OnClosing: false,
    clientErrorHandler: createClientErrorHandler(clientErrorOptions(options)),
    frameworkErrors: (error, request, reply) => {
      setAnswerHeaders(request, reply, NEGOTIATED_PATH);
      handleError(error, request, reply);
    },
    http: {
      headersTimeout: HEADERS_TIMEOUT_MS,
      connectionsCheckingInterval: CONNECTIONS_CHECKING_INTERVAL_MS,
      maxHeaderSize: HEADER_BYTES_MAX,
      // Node's own refusal would go out without our headers; requireHost refuses instead.
      requireHostHeader: false,
    },
  });
  app.server.maxConnections = publicConnectionsMax();
  return app;
}

/** What another interface says is its own has the errors that its clients read. */
function errorHandlerOf({ baseUrl, interfaces }: AppOptions): ErrorHandler {
  return createErrorHandler(baseUrl, {
    writerOf: request => {
      const path = pathOf(request);
      for (const { errorWriterOf } of interfaces) {
        const writer = errorWriterOf?.(request, path);
        if (writer !== undefined) return writer;
      }
      return undefined;
    },
  });
}

function clientErrorOptions({ baseUrl, logger, onAnswered }: AppOptions): ClientErrorOptions {
  return { baseUrl, log: logger, onAnswered };
}
