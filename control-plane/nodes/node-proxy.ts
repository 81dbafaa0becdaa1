/**
 * A proxy to the nodes' own HTTP endpoints, the only way to them from outside of their network: GET
 * and HEAD of four paths, forwarded by @fastify/http-proxy.
 *
 * | of the request                   | what the node gets                                          |
 * |----------------------------------|-------------------------------------------------------------|
 * | the node's id                    | the target: its address in the membership table, no other   |
 * | the path                         | one of NODE_ENDPOINTS, by the route that took it            |
 * | query, body, upgrade             | nothing                                                     |
 * | headers                          | `accept` alone: no key, no cookie, nothing hop-by-hop       |
 *
 * The answer's status, media type and body are passed back, complete or not at all: at most
 * ANSWER_BYTES_MAX within ANSWER_MS_MAX, otherwise NODE_UNREACHABLE. Nothing is retried.
 */
import type { Readable } from 'node:stream';
import httpProxy, { type FastifyHttpProxyOptions } from '@fastify/http-proxy';
import { wholeBody } from '@matting/program/whole-body.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';

const NODE_ENDPOINTS = ['/livez', '/readyz', '/info', '/metrics'] as const;

/** A node's metrics are some 30 KB. */
const ANSWER_BYTES_MAX = 8 * 1024 * 1024;
/** Longest time without a byte: while connecting, and between two pieces of the answer. */
const SILENCE_MS_MAX = 3000;
const ANSWER_MS_MAX = 10_000;
/** Connections to one node at a time; further requests wait. */
const CONNECTIONS_MAX = 8;

export interface NodeProxyOptions {
  readonly httpAddressOf: (nodeId: string) => Promise<string>;
  readonly silenceMsMax?: number;
  readonly answerMsMax?: number;
}

/** Fields that reply-from's own types leave out. */
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
  // Awaited, so that the routes are known when the server listens.
  await app.register(httpProxy, {
    prefix: '/operator/nodes/:node',
    routes: [...NODE_ENDPOINTS],
    httpMethods: ['GET', 'HEAD'],
    // The target is chosen for each request, below.
    upstream: '',
    proxyPayloads: false,
    disableRequestLogging: true,
    // The cache's keys would be addresses, and those change as nodes come and go.
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
    // The path is the route's own, not what the request's bytes make of it.
    handler: (request, reply, _destination, proxying) =>
      reply.from(endpointOf(request), { ...proxying, ...timeoutOf }),
    replyOptions: {
      getUpstream: request => requireUpstream(upstreams, request as FastifyRequest),
      queryString: () => '',
      rewriteRequestHeaders: (_request, { host, accept }) =>
        accept === undefined ? { host } : { host, accept },
      rewriteHeaders: ({ 'content-type': type }) =>
        type === undefined ? {} : { 'content-type': type },
      // Without this the proxy retries a 503 ten times, and a draining node answers 503.
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

/** Never rejects. */
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
