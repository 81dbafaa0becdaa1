/**
 * The HTTP application of the operator's port: /metrics for a scraper, without a key, and /operator
 * behind the operator key, as JSON, and as pages where it is given them. It never shares a port
 * with callers, so that a proxy in front of the public port cannot expose any of its paths.
 */
import fastify, { type FastifyBaseLogger, type FastifyInstance, LogController } from 'fastify';
import { guardHttpServer } from '#program/ports/http-guard.ts';
import { checkRequests, setAnswerHeaders } from '../../http/answer-headers.ts';
import { onAnswerEnd } from '../../http/answer-log.ts';
import { createClientErrorHandler, watchConnections } from '../../http/client-errors.ts';
import { awaitBodies, operatorConnectionsMax } from '../../http/connections.ts';
import { answeredCodeOf, createErrorHandler } from '../../http/error-handler.ts';
import { requestIdOf } from '../../http/request-headers.ts';
import { finishUnreadBody } from '../../http/unread-body.ts';
import { type NodeProxyOptions, registerNodeProxy } from '../nodes/node-proxy.ts';
import type { OperatorServices } from './app-services.ts';
import { requireOperatorKey } from './operator-key.ts';
import { registerOperatorRoutes } from './operator-routes.ts';

/** No request here has a body but small forms, which have FORM_MS_MAX of their own. */
const REQUEST_TIMEOUT_MS = 10_000;
/** How late a slow caller is noticed. */
const CONNECTIONS_CHECKING_INTERVAL_MS = 2000;
/** A quarter of the connections is kept free of those that wait; as many may await a body. */
const SPARE_SHARE = 0.25;
const BODIES_SHARE = 0.25;
const UNREAD_ANSWERS_MAX = 32;
const HEADER_BYTES_MAX = 16 * 1024;

export interface OperatorAppOptions {
  readonly baseUrl: string;
  /** Undefined: /operator is off. */
  readonly operatorKey: string | undefined;
  readonly metrics: { readonly contentType: string; metrics(): Promise<string> };
  readonly logger?: FastifyBaseLogger | undefined;
  /** Adds the operator's pages; absent: there are none. */
  readonly pages?: ((app: FastifyInstance) => void) | undefined;
  /** Other bounds of the proxy to the nodes, for tests. */
  readonly nodeProxy?: Pick<NodeProxyOptions, 'silenceMsMax' | 'answerMsMax'>;
}

export function buildOperatorApp(
  services: OperatorServices,
  options: OperatorAppOptions,
): FastifyInstance {
  const { baseUrl, logger, metrics } = options;
  const app = createServer(options);
  watchConnections(app.server, { baseUrl, log: logger, onAnswered: undefined });
  boundConnections(app);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, done) => done(null));

  onAnswerEnd(app, (request, _reply, end) => {
    const { url: route } = request.routeOptions;
    const answered = { route, code: answeredCodeOf(request), ...end };
    // A scrape every few seconds is not worth a line, but one that gives up is.
    if (route !== '/metrics' || end.left) request.log.info(answered, 'answered the operator');
  });
  checkRequests(app);
  app.addHook('onSend', finishUnreadBody);
  app.setErrorHandler(createErrorHandler(baseUrl, { shown: ['public', 'operator'] }));

  app.get('/metrics', async (_request, reply) =>
    reply.type(metrics.contentType).send(await metrics.metrics()),
  );
  options.pages?.(app);
  app.register(async operator => {
    operator.addHook('onRequest', requireOperatorKey(options.operatorKey));
    registerOperatorRoutes(operator, services);
    const httpAddressOf = (nodeId: string) => services.operateNodes.requireHttpAddress(nodeId);
    await registerNodeProxy(operator, { httpAddressOf, ...options.nodeProxy });
  });
  return app;
}

function createServer({ baseUrl, logger }: OperatorAppOptions): FastifyInstance {
  const handleError = createErrorHandler(baseUrl, { shown: ['public', 'operator'] });
  const app = fastify({
    ...(logger && { loggerInstance: logger }),
    logController: new LogController({ disableRequestLogging: true }),
    genReqId: requestIdOf,
    requestTimeout: REQUEST_TIMEOUT_MS,
    forceCloseConnections: true,
    clientErrorHandler: createClientErrorHandler({ baseUrl, log: logger, onAnswered: undefined }),
    frameworkErrors: (error, request, reply) => {
      setAnswerHeaders(request, reply);
      handleError(error, request, reply);
    },
    http: {
      maxHeaderSize: HEADER_BYTES_MAX,
      connectionsCheckingInterval: CONNECTIONS_CHECKING_INTERVAL_MS,
      requireHostHeader: false,
    },
  });
  app.server.maxConnections = operatorConnectionsMax();
  return app;
}

/** Nobody has a key before a form or a header is read: all are strangers here. */
function boundConnections(app: FastifyInstance): void {
  const room = guardHttpServer(app.server, {
    spareShare: SPARE_SHARE,
    bodiesShare: BODIES_SHARE,
    unreadStrangersMax: UNREAD_ANSWERS_MAX,
  });
  awaitBodies(app, room);
}
