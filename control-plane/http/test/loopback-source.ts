import { createServer, type RequestListener, type Server } from 'node:http';
import {
  type AddressInfo,
  connect,
  createServer as createTcpServer,
  type Socket,
  type Server as TcpServer,
} from 'node:net';
import type { CreateConnector } from '../outgoing/outgoing-guard.ts';
import type { ResolveHost } from '../outgoing/resolve-host.ts';

export interface LoopbackSource extends AsyncDisposable {
  readonly port: number;
  readonly requests: string[];
  readonly url: string;
}

function listen(server: Server | TcpServer): Promise<number> {
  return new Promise(resolve => {
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
  });
}

export async function openSource(handler: RequestListener): Promise<LoopbackSource> {
  const requests: string[] = [];
  const server = createServer((request, response) => {
    requests.push(`${request.headers.host} ${request.url}`);
    handler(request, response);
  });
  const port = await listen(server);
  return {
    port,
    requests,
    url: `http://127.0.0.1:${port}`,
    async [Symbol.asyncDispose]() {
      const closed = new Promise(resolve => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
  };
}

export async function openRawSource(serve: (socket: Socket) => void): Promise<LoopbackSource> {
  const sockets = new Set<Socket>();
  const server = createTcpServer(socket => {
    sockets.add(socket);
    // Tests abort connections on purpose.
    socket.on('error', () => socket.destroy());
    socket.once('data', () => serve(socket));
  });
  const port = await listen(server);
  return {
    port,
    requests: [],
    url: `http://127.0.0.1:${port}`,
    async [Symbol.asyncDispose]() {
      const closed = new Promise(resolve => server.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

export interface RecordingConnector {
  readonly dialled: string[];
  readonly createConnector: CreateConnector;
}

/** Records the addresses and connects to 127.0.0.1 without TLS. */
export function recordingConnector(): RecordingConnector {
  const dialled: string[] = [];
  return {
    dialled,
    createConnector: addresses => (options, callback) => {
      dialled.push(...addresses);
      const socket = connect(Number(options.port), '127.0.0.1');
      socket.once('error', error => callback(error, null));
      socket.once('connect', () => callback(null, socket));
    },
  };
}

/** Answers with a name's next list, and repeats the last. Unknown names have no address. */
export function scriptedResolver(answers: Record<string, readonly (readonly string[])[]>): {
  readonly lookedUp: string[];
  readonly resolveHost: ResolveHost;
} {
  const lookedUp: string[] = [];
  return {
    lookedUp,
    resolveHost: async host => {
      const lists = answers[host] ?? [[]];
      const earlierCalls = lookedUp.filter(name => name === host).length;
      lookedUp.push(host);
      return lists[Math.min(earlierCalls, lists.length - 1)] ?? [];
    },
  };
}
