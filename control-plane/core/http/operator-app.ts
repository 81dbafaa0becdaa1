/** This port is separate, so that a proxy of the public port cannot expose it. */
import { onAnswerEnd } from '@matting/http/answer-end.ts';
import { awaitBodies, createPort, operatorConnectionsMax } from '@matting/http/connections.ts';
import { answeredCodeOf } from '@matting/http/error-handler.ts';
import { checkRequests } from '@matting/http/request-checks.ts';
import { headerValues } from '@matting/http/request-headers.ts';
import { finishUnreadBody } from '@matting/http/unread-bodies.ts';
import { type NodeProxyOptions, registerNodeProxy } from '@matting/nodes/node-proxy.ts';
import { hostOf } from '@matting/program/ports/addresses.ts';
import { guardHttpServer } from '@matting/program/ports/http-guard.ts';
import { isOwnHost, isSentByService } from '@matting/program/ports/keyless.ts';
import { isSameToken } from '@matting/program/tokens.ts';
import { ContractError, type FieldError } from '@matting/proto/contract/errors.ts';
import type {
  FastifyBaseLogger,
  FastifyInstance,
  FastifyRequest,
  onRequestHookHandler,
} from 'fastify';
import {
  ENDED_WITHIN_HOURS_DEFAULT,
  ENDED_WITHIN_HOURS_MAX,
  JOB_GROUPS,
  JOBS_LISTED_DEFAULT,
  JOBS_LISTED_MAX,
  type JobGroup,
  type JobQuestion,
} from '../operator/operate-jobs.ts';
import type { OperatorServices } from './app-services.ts';

/** Bodies are small forms, with a limit of their own: FORM_MS_MAX. */
const REQUEST_TIMEOUT_MS = 10_000;
const CONNECTIONS_CHECKING_INTERVAL_MS = 2000;
/**
 * The share of connections that waiting ones leave free, and the share that may wait for bodies.
 */
const SPARE_SHARE = 0.25;
const BODIES_SHARE = 0.25;
const UNREAD_ANSWERS_MAX = 32;

interface OperatorAppOptions {
  readonly baseUrl: string;
  /** The listening address. Requests may name it as their host. */
  readonly host: string;
  /** Undefined: /operator is off. */
  readonly operatorKey: string | undefined;
  readonly metrics: { readonly contentType: string; metrics(): Promise<string> };
  readonly logger?: FastifyBaseLogger | undefined;
  readonly pages?: ((app: FastifyInstance) => void) | undefined;
  readonly nodeProxy?: Pick<NodeProxyOptions, 'silenceMsMax' | 'answerMsMax'>;
}

export function buildOperatorApp(
  services: OperatorServices,
  options: OperatorAppOptions,
): FastifyInstance {
  const { baseUrl, logger, metrics } = options;
  const app = createPort({
    baseUrl,
    logger,
    connectionsMax: operatorConnectionsMax(),
    shown: ['public', 'operator'],
    bounds: {
      requestTimeout: REQUEST_TIMEOUT_MS,
      forceCloseConnections: true,
      http: { connectionsCheckingInterval: CONNECTIONS_CHECKING_INTERVAL_MS },
    },
  });
  // Every connection is treated as unknown, since keys come in forms and headers.
  const room = guardHttpServer(app.server, {
    spareShare: SPARE_SHARE,
    bodiesShare: BODIES_SHARE,
    unreadStrangersMax: UNREAD_ANSWERS_MAX,
  });
  awaitBodies(app, room);
  onAnswerEnd(app, (request, _reply, end) => {
    const { url: route } = request.routeOptions;
    const answered = { route, code: answeredCodeOf(request), ...end };
    if (route !== '/metrics' || end.left) request.log.info(answered, 'answered the operator');
  });
  checkRequests(app);
  app.addHook('onSend', finishUnreadBody);

  app.get('/metrics', { onRequest: requireMetricsAccess(options) }, async (_request, reply) =>
    reply.type(metrics.contentType).send(await metrics.metrics()),
  );
  options.pages?.(app);
  app.register(async operator => {
    operator.addHook('onRequest', requireOperatorKey(options.operatorKey));
    registerOperatorRoutes(operator, services);
    // The hook answers that the interface is off.
    if (options.operatorKey === undefined) operator.get('/operator', () => undefined);
    const httpAddressOf = (nodeId: string) => services.operateNodes.requireHttpAddress(nodeId);
    await registerNodeProxy(operator, { httpAddressOf, ...options.nodeProxy });
  });
  return app;
}

/**
 * /metrics needs a key if this service itself sent the request or the host name is foreign: against
 * SSRF and DNS rebinding.
 * @throws ContractError INVALID_OPERATOR_KEY
 */
function requireMetricsAccess({
  baseUrl,
  host,
  operatorKey,
}: OperatorAppOptions): onRequestHookHandler {
  const own = [hostOf(new URL(baseUrl)), host.toLowerCase()];
  return (request, _reply, done) => {
    const { headers } = request.raw;
    if (isSentByService(headers) || !isOwnHost(headers.host ?? '', own)) {
      requireKey(request, operatorKey, METRICS_KEY);
    }
    done();
  };
}

const SEND_KEY = 'Send it once, as Authorization: Bearer <key>.';

const METRICS_KEY =
  '/metrics needs the operator key if a service like this one asks, or if Host is neither an ' +
  'address, a private name nor the host of MATTING_BASE_URL or MATTING_METRICS_HOST. ' +
  `Ask by an address, or send the key. ${SEND_KEY}`;

const BEARER = /^Bearer +([\x21-\x7e]{1,256})$/i;

/** @throws ContractError NOT_FOUND: the operator's interface is off; INVALID_OPERATOR_KEY */
function requireOperatorKey(key: string | undefined): onRequestHookHandler {
  return (request, _reply, done) => {
    if (key === undefined) {
      const detail =
        'The operator interface is off. Set MATTING_OPERATOR_KEY on this control plane.';
      throw new ContractError('NOT_FOUND', detail);
    }
    requireKey(request, key, `The operator key is missing or not valid. ${SEND_KEY}`);
    done();
  };
}

function requireKey(request: FastifyRequest, key: string | undefined, detail: string): void {
  const given = bearerOf(request);
  if (key !== undefined && given !== undefined && isSameToken(given, key)) return;
  throw new ContractError('INVALID_OPERATOR_KEY', detail);
}

function bearerOf(request: FastifyRequest): string | undefined {
  const [value, ...more] = headerValues(request.raw, 'authorization');
  return value === undefined || more.length > 0 ? undefined : BEARER.exec(value.trim())?.[1];
}

function registerOperatorRoutes(
  app: FastifyInstance,
  { operateJobs, operateNodes }: OperatorServices,
): void {
  app.get('/operator/nodes', async () => ({ nodes: await operateNodes.list() }));
  app.get<{ Params: { node: string } }>('/operator/nodes/:node', request =>
    operateNodes.show(request.params.node),
  );
  for (const command of ['drain', 'undrain'] as const) {
    app.post<{ Params: { node: string } }>(`/operator/nodes/:node/${command}`, async request => {
      const changed = await operateNodes.setDraining(request.params.node, command === 'drain');
      request.log.info({ command, nodeId: changed.node_id }, 'operator');
      return changed;
    });
  }
  app.get('/operator/jobs', async request => {
    const question = questionOf(request);
    const jobs = await operateJobs.list(question);
    const next = jobs.length < question.limit ? null : (jobs.at(-1)?.cursor ?? null);
    return { jobs, next };
  });
  app.get<{ Params: { job: string } }>('/operator/jobs/:job', request =>
    operateJobs.show(request.params.job),
  );
  app.post<{ Params: { job: string } }>('/operator/jobs/:job/retry', async request => {
    const retried = await operateJobs.retry(request.params.job);
    request.log.info({ command: 'retry', jobId: retried.job_id }, 'operator');
    return retried;
  });
}

const ACCOUNT_LENGTH_MAX = 64;

function questionOf(request: FastifyRequest): JobQuestion {
  const query = request.query as Record<string, string | string[] | undefined>;
  const errors: FieldError[] = [];
  const given = (field: string): string | undefined => {
    const value = query[field];
    if (!Array.isArray(value)) return value;
    errors.push({ field, detail: 'is given more than once' });
    return undefined;
  };
  const whole = (field: string, max: number, absent: number): number => {
    const text = given(field);
    const value = text === undefined ? absent : Number(/^\d{1,9}$/.exec(text)?.[0] ?? 0);
    if (value >= 1 && value <= max) return value;
    errors.push({ field, detail: `must be a whole number from 1 to ${max}` });
    return absent;
  };
  const state = given('state') ?? 'open';
  const group = JOB_GROUPS.find(known => known === state);
  if (group === undefined)
    errors.push({ field: 'state', detail: `must be one of ${JOB_GROUPS.join(', ')}` });
  const account = given('account');
  if (account !== undefined && (account === '' || account.length > ACCOUNT_LENGTH_MAX)) {
    errors.push({ field: 'account', detail: 'must be the name or id of an account' });
  }
  const endedWithinHours = whole('since_hours', ENDED_WITHIN_HOURS_MAX, ENDED_WITHIN_HOURS_DEFAULT);
  const limit = whole('limit', JOBS_LISTED_MAX, JOBS_LISTED_DEFAULT);
  const after = given('after');
  const known = ['state', 'account', 'since_hours', 'limit', 'after'];
  for (const field of Object.keys(query)) {
    if (!known.includes(field)) errors.push({ field, detail: 'is unknown' });
  }
  if (errors.length > 0) {
    const detail = `The query is not valid. Correct ${errors.map(one => one.field).join(', ')}.`;
    throw new ContractError('INVALID_REQUEST', detail, { fieldErrors: errors });
  }
  return { group: group as JobGroup, account, endedWithinHours, limit, after };
}
