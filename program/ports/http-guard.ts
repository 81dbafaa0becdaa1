/** Bounds what a client can cost an HTTP port of either program. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { boundChunks } from './chunked-bodies.ts';
import { PortRoom, type RoomOptions } from './port-room.ts';
import { type PaceOptions, requireReadingPace } from './reader-pace.ts';

/** Why a connection was ended; a label of metrics. */
export const ENDED_CAUSES = ['slow_reader', 'crowded', 'pipelined', 'small_chunks'] as const;
export type EndedCause = (typeof ENDED_CAUSES)[number];

interface HttpGuardOptions extends RoomOptions, PaceOptions {
  readonly onEnded?: ((cause: EndedCause) => void) | undefined;
}

/**
 * Sets all bounds, before the listeners of requests that the server has by now.
 * @param server one whose option `IncomingMessage` is GatheringMessage
 */
export function guardHttpServer(server: Server, options: HttpGuardOptions): PortRoom {
  const room = new PortRoom(server, options);
  requireReadingPace(server, options);
  boundPipelining(server, options.onEnded);
  boundChunks(server, options.onEnded);
  return room;
}

/** Under way on one connection; browsers and the clients of today send one. */
const PIPELINED_MAX = 16;

type RequestListener = (request: IncomingMessage, response: ServerResponse) => void;

/**
 * Requests that a caller sends ahead on one HTTP/1.1 connection, before their answers (RFC 9112,
 * 9.3.2). Node hands on all that a chunk of 64 KiB holds, some 2000, and stops to read only when
 * answers wait to be taken: those that are made later than their requests are read, as metrics are,
 * would all be made at once. Who sends more ahead loses the connection, as the standard allows.
 */
function boundPipelining(server: Server, onEnded?: (cause: 'pipelined') => void): void {
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
