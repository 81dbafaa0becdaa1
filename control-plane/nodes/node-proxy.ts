/**
 * The only way to the nodes' HTTP endpoints from outside of their network.
 *
 * | of the request                   | what the node gets                                          |
 * |----------------------------------|-------------------------------------------------------------|
 * | the node's id                    | the target: its address in the membership table, no other   |
 * | the path                         | one of NODE_ENDPOINTS, by the matching route                |
 * | query, body, upgrade             | nothing                                                     |
 * | headers                          | only `accept`: no key, no cookie, nothing hop-by-hop        |
 *
 * The answer is passed back completely or not at all, within ANSWER_BYTES_MAX and ANSWER_MS_MAX;
 * otherwise NODE_UNREACHABLE. Nothing is retried.
 */
import type { Readable } from 'node:stream';
import httpProxy, { type FastifyHttpProxyOptions } from '@fastify/http-proxy';
import { wholeBody } from '@matting/program/whole-body.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';

const NODE_ENDPOINTS = ['/livez', '/readyz', '/info', '/metrics'] as const;

const ANSWER_BYTES_MAX = 8 * 1024 * 1024;
/** While connecting, and between two pieces of the answer. */
const SILENCE_MS_MAX = 3000;
const ANSWER_MS_MAX = 10_000;
const CONNECTIONS_MAX = 8;

export interface NodeProxyOptions {
  readonly httpAddressOf: (nodeId: string) => Promise<string>;
  readonly silenceMsMax?: number;
  readonly answerMsMax?: number;
}

interface NodeAnswer {
  readonly statusCode: number;
  readonly stream: Readable;
}

export async function registerNodeProxy(
  app: FastifyInstance,
  options: NodeProxyOptions,
): Promise<void> {
  const { silenceMsMax = SILENCE_MS_MAX, answerMsMax = ANSWER_MS_MAX } = options;
  const upstreams = new WeakMap<FastifyRequest, string>();
  const timeoutOf = { timeout: silenceMsMax };
  await app.register(httpProxy, {
    prefix: '/operator/nodes/:node',
    routes: [...NODE_ENDPOINTS],
    httpMethods: ['GET', 'HEAD'],
    upstream: '',
    proxyPayloads: false,
    disableRequestLogging: true,
    // A cache would be keyed by addresses, which change as nodes come and go.
    disableCache: true,
    destroyAgent: true,
    http: {
      agentOptions: { keepAlive: false, maxSockets: CONNECTIONS_MAX },
      requestOptions: timeoutOf,
    },
    preHandler: (request, _reply, done) => {
      const { node } = request.params as { node: string };
      options.httpAddressOf(node).then(address => {
        upstreams.set(request, `http://${address}`);
        done();
      }, done);
    },
    // Sends the path of the route, never the path in the request.
    handler: (request, reply, _destination, proxying) =>
      reply.from(endpointOf(request), { ...proxying, ...timeoutOf }),
    replyOptions: {
      getUpstream: request => requireUpstream(upstreams, request as FastifyRequest),
      queryString: () => '',
      rewriteRequestHeaders: (_request, { host, accept }) =>
        accept === undefined ? { host } : { host, accept },
      rewriteHeaders: ({ 'content-type': type }) =>
        type === undefined ? {} : { 'content-type': type },
      // Otherwise the proxy retries a 503 ten times, and a draining node answers 503.
      retryDelay: () => null,
      onResponse: (_request, reply, answer) => {
        void relay(reply as FastifyReply, answer as unknown as NodeAnswer, answerMsMax);
      },
      onError: (reply, { error }) => {
        (reply as FastifyReply).send(unreachable('it does not answer', error));
      },
    },
  } satisfies FastifyHttpProxyOptions);
}

function endpointOf(request: FastifyRequest): string {
  const { url } = request.routeOptions;
  const endpoint = NODE_ENDPOINTS.find(known => url?.endsWith(known));
  if (endpoint === undefined) throw new Error(`no endpoint of a node: ${url}`);
  return endpoint;
}

function requireUpstream(upstreams: WeakMap<FastifyRequest, string>, request: FastifyRequest) {
  const upstream = upstreams.get(request);
  if (upstream === undefined) throw new Error('no address was found for the node of this request');
  return upstream;
}

async function relay(reply: FastifyReply, { stream }: NodeAnswer, answerMsMax: number) {
  const late = setTimeout(() => stream.destroy(new Error('it answers too slowly')), answerMsMax);
  try {
    reply.send(await wholeBody(stream, ANSWER_BYTES_MAX, tooLong));
  } catch (error) {
    // The problem must not have the status and type of an incomplete answer.
    reply.removeHeader('content-type').send(unreachable('its answer broke off', error));
  } finally {
    clearTimeout(late);
  }
}

function tooLong(): Error {
  return new Error(`it answers with over ${ANSWER_BYTES_MAX} bytes`);
}

function unreachable(what: string, cause: unknown): ContractError {
  return new ContractError('NODE_UNREACHABLE', `The node is registered, but ${what}.`, { cause });
}
