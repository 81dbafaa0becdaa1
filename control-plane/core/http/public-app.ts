import { type Answered, addAnswerLog } from '@matting/http/answer-log.ts';
import { AnswerShares, HEAVY, LIGHT } from '@matting/http/answer-shares.ts';
import {
  Connections,
  type ConnectionsOptions,
  createPort,
  publicConnectionsMax,
} from '@matting/http/connections.ts';
import type { ErrorWriter } from '@matting/http/error-handler.ts';
import { checkRequests } from '@matting/http/request-checks.ts';
import { pathOf } from '@matting/http/request-path.ts';
import { addRequestSpans } from '@matting/http/request-spans.ts';
import { deferContinue, finishUnreadBody } from '@matting/http/unread-bodies.ts';
import type { Tracing } from '@matting/program/tracing/active-span.ts';
import { unavailable } from '@matting/proto/contract/errors.ts';
import type { FastifyBaseLogger, FastifyInstance, FastifyRequest, RouteOptions } from 'fastify';
import type { AccountPage } from './account-pages.ts';
import type { AppServices } from './app-services.ts';
import {
  type DocumentPages,
  type OpenApiPart,
  registerDocumentRoutes,
  type ServedDocument,
  servedDocument,
} from './document-routes.ts';
import {
  callerOf,
  createHeaderChecks,
  type HeaderChecks,
  hasKnownKey,
  knownAccountOf,
} from './header-checks.ts';
import { registerJobRoutes } from './job-routes.ts';
import { registerMattingRoutes } from './matting-routes.ts';
import { addPathPrefix, pathPrefixOf } from './path-prefix.ts';
import type { Readiness, ReadinessCause } from './readiness.ts';
import { registerResultRoutes } from './result-routes.ts';

/** The largest body, 72 MiB, needs about 5 Mbit/s. */
const REQUEST_TIMEOUT_MS = 120_000;
const HEADERS_TIMEOUT_MS = 15_000;
/** Longest delay until the server notices a slow caller. */
const CONNECTIONS_CHECKING_INTERVAL_MS = 5000;
/** Longer than a load balancer's usual 60 s, so that the balancer closes first. */
const KEEP_ALIVE_TIMEOUT_MS = 75_000;
/** An idle connection closes this long after the longest time before an answer. */
const IDLE_TIMEOUT_MARGIN_MS = 30_000;
/** Large, so that the routes check parameters and answer the contract's errors. */
const PARAM_LENGTH_MAX = 16 * 1024;
const NEGOTIATED_PATH = '/v1/matting';

export interface HttpInterface {
  /** Called once, after the core's routes of jobs and accounts. */
  register(app: FastifyInstance, context: HttpContext): void;
  readonly errorWriterOf?: (request: FastifyRequest, path: string) => ErrorWriter | undefined;
  /** Longest time before the answer of one of its routes begins. */
  readonly longestWaitMs?: number;
  /** If absent, the documents are served as they are, for programs. */
  readonly documentPages?: DocumentPages;
  readonly openApi?: OpenApiPart;
  /** Pages that a package with an account area shows. */
  readonly accountPages?: readonly AccountPage[];
}

export interface HttpContext {
  readonly connections: Connections;
  readonly checks: HeaderChecks;
  readonly document: ServedDocument;
  readonly answers: Pick<AnswerShares, 'enter'>;
  readonly refuseUnknownPath: ReturnType<typeof checkRequests>;
  readonly accountPages: readonly AccountPage[];
}

interface AppOptions extends ConnectionsOptions {
  readonly baseUrl: string;
  readonly syncWaitMs: number;
  readonly readsRequireIdempotencyKey: boolean;
  /** The first that has an error writer for a request writes the errors. */
  readonly interfaces: readonly HttpInterface[];
  readonly trustedProxies: readonly string[];
  readonly version: string;
  readonly errorsPage: string;
  readonly logger?: FastifyBaseLogger | undefined;
  readonly tracing?: Tracing | undefined;
  /** Called with each route's pattern and method, before any request. */
  readonly onRoute?: ((route: string, method: string, options: RouteOptions) => void) | undefined;
  readonly onAnswered?: ((answered: Answered) => void) | undefined;
}

export interface App {
  readonly app: FastifyInstance;
  readonly connections: { readonly open: number };
}

/** `app.close` refuses new connections and still answers callers already connected. */
export function buildApp(services: AppServices, options: AppOptions): App {
  const { interfaces, onRoute, tracing } = options;
  const { readiness } = services;
  const app = createServer(options);
  deferContinue(app.server);
  const connections = new Connections(app.server, options);
  connections.serve(app, { accountOf: knownAccountOf, hasKey: hasKnownKey, readiness });
  if (tracing !== undefined) addRequestSpans(app, tracing);
  app.addHook('onRoute', options => {
    for (const one of [options.method].flat()) onRoute?.(options.url, one, options);
  });
  const refuseUnknownPath = checkRequests(app, NEGOTIATED_PATH);
  app.addHook('onSend', finishUnreadBody);
  addPathPrefix(app, options.baseUrl);
  addAnswerLog(app, { accountOf: knownAccountOf, onAnswered: options.onAnswered });
  const answers = new AnswerShares(knownAccountOf);
  answers.serve(app);

  const checks = createHeaderChecks(services, connections, options);
  registerMattingRoutes(app, services, checks, options);
  registerJobRoutes(app, services, checks);
  registerResultRoutes(app, services);
  registerCallerRoutes(app, services, checks);
  const openApi = interfaces.map(one => one.openApi).filter(part => part !== undefined);
  const document = servedDocument(app, { ...options, openApi });
  const accountPages = interfaces.flatMap(one => one.accountPages ?? []);
  const context = { connections, checks, document, answers, refuseUnknownPath, accountPages };
  for (const one of interfaces) one.register(app, context);
  const pages = interfaces.find(one => one.documentPages)?.documentPages;
  const pathPrefix = pathPrefixOf(options.baseUrl);
  registerDocumentRoutes(app, { errorsPage: options.errorsPage, document, pages, pathPrefix });
  registerHealthRoutes(app, readiness);
  return { app, connections };
}

function registerCallerRoutes(
  app: FastifyInstance,
  { models, readAccount }: AppServices,
  checks: HeaderChecks,
): void {
  const light = { config: { weight: LIGHT } };
  app.get('/v1/models', { ...light, onRequest: checks.models }, async request =>
    models.list(callerOf(request).policy),
  );
  const account = { onRequest: checks.account };
  app.get('/v1/account', { ...light, ...account }, request => readAccount.view(callerOf(request)));
  const keys = { ...account, config: { weight: HEAVY } };
  app.get('/v1/account/keys', keys, request => readAccount.keys(callerOf(request)));
}

function createServer({ interfaces, ...options }: AppOptions): FastifyInstance {
  const waits = interfaces.map(({ longestWaitMs = 0 }) => longestWaitMs);
  return createPort({
    ...options,
    negotiated: NEGOTIATED_PATH,
    connectionsMax: publicConnectionsMax(),
    writerOf: request => {
      const path = pathOf(request);
      for (const { errorWriterOf } of interfaces) {
        const writer = errorWriterOf?.(request, path);
        if (writer !== undefined) return writer;
      }
      return undefined;
    },
    bounds: {
      ...(options.trustedProxies.length > 0 && { trustProxy: [...options.trustedProxies] }),
      requestTimeout: REQUEST_TIMEOUT_MS,
      keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
      connectionTimeout: Math.max(options.syncWaitMs, ...waits) + IDLE_TIMEOUT_MARGIN_MS,
      routerOptions: { maxParamLength: PARAM_LENGTH_MAX },
      return503OnClosing: false,
      http: {
        headersTimeout: HEADERS_TIMEOUT_MS,
        connectionsCheckingInterval: CONNECTIONS_CHECKING_INTERVAL_MS,
      },
    },
  });
}

const CAUSES: Readonly<Record<ReadinessCause, string>> = {
  draining: 'This replica is shutting down.',
  database: 'The database does not answer, or takes no writes.',
  storage: 'The storage does not answer.',
  'storage-full': 'The storage is full.',
  'no-node-yet': 'No inference node has been available since this replica started.',
};
const NOT_READY_RETRY_AFTER_S = 1;

function registerHealthRoutes(
  app: FastifyInstance,
  readiness: { check(): Promise<Readiness> },
): void {
  app.get('/livez', async () => ({ status: 'alive' }));
  app.get('/readyz', async () => {
    const state = await readiness.check();
    if (state.ready) return { status: 'ready' };
    const detail = state.causes.map(cause => CAUSES[cause]).join('; ');
    throw unavailable(detail, NOT_READY_RETRY_AFTER_S);
  });
}
