import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Under way on one connection; browsers and the clients of today send one. */
const PIPELINED_MAX = 16;

type RequestListener = (request: IncomingMessage, response: ServerResponse) => void;

/**
 * Requests that a caller sends ahead on one HTTP/1.1 connection, before their answers (RFC 9112,
 * 9.3.2). Node hands on all that a chunk of 64 KiB holds, some 2000, and stops to read only when
 * answers wait to be taken: those that are made later than their requests are read, as metrics are,
 * would all be made at once. Who sends more ahead loses the connection, as the standard allows.
 */
export function boundPipelining(server: Server, onEnded?: (cause: 'pipelined') => void): void {
  const listeners = server.listeners('request') as RequestListener[];
  const underWay = new WeakMap<Socket, number>();
  server.removeAllListeners('request');
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request;
    // Node still hands on the rest of its chunk.
    if (socket.destroyed) return;
    const count = (underWay.get(socket) ?? 0) + 1;
    if (count > PIPELINED_MAX) {
      onEnded?.('pipelined');
      socket.destroy();
      return;
    }
    underWay.set(socket, count);
    response.once('close', () => underWay.set(socket, (underWay.get(socket) ?? 1) - 1));
    for (const listener of listeners) listener.call(server, request, response);
  });
}
