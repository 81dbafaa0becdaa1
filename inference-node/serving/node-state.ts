/**
 * Stores only why the node drains, and derives the rest from the engines, so that nothing goes
 * stale. A node is starting while some model has no engine ready, also after all of them died. The
 * first that applies counts: a failed pool, a drain, a start.
 */

import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { GatheringMessage } from '@matting/program/ports/chunked-bodies.ts';
import { guardHttpServer } from '@matting/program/ports/http-guard.ts';
import { isOwnHost, isSentByService } from '@matting/program/ports/keyless.ts';
import { listening } from '@matting/program/ports/listening.ts';
import type { Registry } from '@prometheus-io/client';
import type { EnginePool } from './engine/pool/engine-pool.ts';
import type { PicturePool } from './picture/pool/picture-pool.ts';

export const NODE_STATES = ['starting', 'serving', 'draining', 'failed'] as const;
export type NodeState = (typeof NODE_STATES)[number];

/** A control plane can take `command` back; `shutdown` stays. */
type DrainCause = 'command' | 'shutdown';

export class NodeStatus {
  readonly #engines: EnginePool[] = [];
  #pictures: PicturePool | undefined;
  readonly #drainCauses = new Set<DrainCause>();
  readonly #listeners = new Set<(state: NodeState) => void>();
  #announced: NodeState = 'starting';

  get state(): NodeState {
    const snapshots = this.#engines.map(engines => engines.snapshot());
    const failed = snapshots.some(({ state }) => state === 'failed');
    if (failed || this.#pictures?.snapshot().state === 'failed') return 'failed';
    if (this.#drainCauses.size > 0) return 'draining';
    const ready = snapshots.length > 0 && snapshots.every(({ enginesReady }) => enginesReady > 0);
    return ready ? 'serving' : 'starting';
  }

  get failure(): string | undefined {
    const snapshots = [...this.#engines, this.#pictures].map(pool => pool?.snapshot());
    return snapshots.find(snapshot => snapshot?.state === 'failed')?.failure;
  }

  attach(engines: readonly EnginePool[], pictures: PicturePool): void {
    this.#engines.push(...engines);
    this.#pictures = pictures;
    for (const pool of [...engines, pictures]) pool.onChange(() => this.#announce());
    this.#announce();
  }

  drain(cause: DrainCause): void {
    this.#drainCauses.add(cause);
    this.#announce();
  }

  undrain(): void {
    this.#drainCauses.delete('command');
    this.#announce();
  }

  onChange(listener: (state: NodeState) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #announce(): void {
    const state = this.state;
    if (state === this.#announced) return;
    this.#announced = state;
    for (const listener of [...this.#listeners]) listener(state);
  }
}

/* HTTP endpoints for probes, Prometheus and operators. They show no image and no secret. */

interface HttpEndpointsOptions {
  readonly host: string;
  readonly port: number;
  readonly status: NodeStatus;
  readonly registry: Registry;
  readonly info: () => object | undefined;
  /** Hosts of the operator's choice, by which requests may name the node. */
  readonly ownHosts: readonly string[];
}

const CONNECTIONS_MAX = 64;
const REQUEST_TIMEOUT_MS = 10_000;
const CONNECTIONS_CHECKING_INTERVAL_MS = 2000;
const HEADER_BYTES_MAX = 8 * 1024;
const SPARE_SHARE = 0.25;
const UNREAD_ANSWERS_MAX = 16;

interface Answer {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

export async function openHttpEndpoints(options: HttpEndpointsOptions) {
  const limits = {
    requestTimeout: REQUEST_TIMEOUT_MS,
    connectionsCheckingInterval: CONNECTIONS_CHECKING_INTERVAL_MS,
    maxHeaderSize: HEADER_BYTES_MAX,
    IncomingMessage: GatheringMessage,
  };
  const server = createServer(limits, (request, response) => {
    answer(request, options).then(
      found => send(response, found, request.method === 'HEAD'),
      (error: unknown) => response.destroy(error instanceof Error ? error : undefined),
    );
  });
  server.maxConnections = CONNECTIONS_MAX;
  // No body is awaited: every request is answered at once.
  guardHttpServer(server, { spareShare: SPARE_SHARE, unreadStrangersMax: UNREAD_ANSWERS_MAX });
  const { host, port: wantedPort } = options;
  await listening({ variable: 'MATTING_NODE_HTTP_PORT', host, port: wantedPort }, () => {
    server.listen(wantedPort, host);
    return once(server, 'listening');
  });
  const { port } = server.address() as AddressInfo;
  return { port, close: () => close(server) };
}

async function answer(request: IncomingMessage, options: HttpEndpointsOptions): Promise<Answer> {
  if (request.method !== 'GET' && request.method !== 'HEAD') return text(405, 'GET or HEAD only');
  const { status, registry, info, ownHosts } = options;
  const { headers } = request;
  const isChosen = !isSentByService(headers) && isOwnHost(headers.host ?? '', ownHosts);
  switch (request.url?.split('?', 1)[0]) {
    case '/livez':
      return text(200, 'ok');
    case '/readyz': {
      const { state } = status;
      return text(state === 'serving' ? 200 : 503, state);
    }
    case '/info': {
      if (!isChosen) return text(403, NOT_CHOSEN);
      const body = JSON.stringify({ state: status.state, ...info() }, null, 2);
      return { status: 200, type: 'application/json', body: `${body}\n` };
    }
    case '/metrics':
      if (!isChosen) return text(403, NOT_CHOSEN);
      return { status: 200, type: registry.contentType, body: await registry.metrics() };
    default:
      return text(404, 'there is /livez, /readyz, /info and /metrics');
  }
}

const NOT_CHOSEN =
  'a service like this one asks, or under a Host that is neither an address nor a private name nor ' +
  'that of MATTING_NODE_ADVERTISE_ADDRESS or MATTING_HOST: ask by an address';

function text(status: number, line: string): Answer {
  return { status, type: 'text/plain; charset=utf-8', body: `${line}\n` };
}

function send(response: ServerResponse, { status, type, body }: Answer, headOnly: boolean): void {
  response.writeHead(status, {
    'content-type': type,
    'content-length': Buffer.byteLength(body),
    'cache-control': 'no-store',
  });
  response.end(headOnly ? undefined : body);
}

function close(server: Server): Promise<void> {
  return new Promise(resolve => {
    server.close(() => resolve());
    // Scrapers keep their connections open.
    server.closeAllConnections();
  });
}
