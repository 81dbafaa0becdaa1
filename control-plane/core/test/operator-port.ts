import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect } from 'node:net';
import { Registry } from '@prometheus-io/client';
import type { FastifyBaseLogger, FastifyInstance } from 'fastify';
import type { OperatorServices } from '../http/app-services.ts';
import { buildOperatorApp } from '../http/operator-app.ts';
import { OperateAccounts } from '../operator/operate-accounts.ts';
import { OperateCredits } from '../operator/operate-credits.ts';
import { OperateJobs, ReadQueue } from '../operator/operate-jobs.ts';
import { OperateNodes } from '../operator/operate-nodes.ts';
import { OperateWebhooks } from '../operator/operate-webhooks.ts';
import type { Stores } from '../stores.ts';

export const KEY = 'an-operator-key-that-only-a-test-knows';

interface NodeProxyBounds {
  readonly silenceMsMax: number;
  readonly answerMsMax: number;
}

type OperatorPages = (
  services: OperatorServices,
  options: { readonly baseUrl: string; readonly operatorKey: string | undefined },
) => (app: FastifyInstance) => void;

export function appOn(
  stores: Stores,
  changes: {
    operatorKey?: string | undefined;
    nodeProxy?: NodeProxyBounds;
    logger?: FastifyBaseLogger;
    pages?: OperatorPages;
  } = {},
) {
  const services = {
    operateAccounts: new OperateAccounts(stores),
    operateCredits: new OperateCredits(stores),
    operateJobs: new OperateJobs(stores),
    operateNodes: new OperateNodes(stores),
    operateWebhooks: new OperateWebhooks(stores),
    readQueue: new ReadQueue(stores, 50_000),
  };
  const { pages, ...given } = changes;
  const options = {
    baseUrl: 'http://links.example',
    host: 'metrics.example',
    operatorKey: KEY,
    ...given,
  };
  return buildOperatorApp(services, {
    ...{ ...options, metrics: new Registry() },
    pages: pages?.(services, options),
  });
}

export const AUTHORIZED = { authorization: `Bearer ${KEY}` };

export function ask(app: FastifyInstance, url: string, method: 'GET' | 'HEAD' | 'POST' = 'GET') {
  return app.inject({ method, url, headers: { ...AUTHORIZED, host: 'operator' } });
}

export function codeOf(answer: Awaited<ReturnType<typeof ask>>): string {
  assert.match(String(answer.headers['content-type']), /^application\/problem\+json/);
  const problem = answer.json();
  assert.equal(problem.status, answer.statusCode);
  assert.equal(problem.request_id, answer.headers['x-request-id']);
  return problem.code;
}
export async function register(
  stores: Stores,
  nodeId: string,
  httpAddress: string,
): Promise<string> {
  const bootId = randomUUID();
  const node = { nodeId, bootId, address: '10.0.0.7:50051', httpAddress, version: 'test' };
  await stores.nodes.register(node, 60_000);
  return bootId;
}

export async function listen(app: FastifyInstance): Promise<number> {
  await app.listen({ host: '127.0.0.1', port: 0 });
  return (app.server.address() as AddressInfo).port;
}

export async function raw(port: number, bytes: string): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  let text = '';
  socket.setEncoding('latin1').on('data', part => {
    text += part;
    if (text.includes('\r\n\r\n')) socket.end();
  });
  socket.write(bytes);
  await once(socket, 'close');
  return text;
}
