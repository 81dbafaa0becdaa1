import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { boundChunks } from './chunked-bodies.ts';
import { PortRoom, type RoomOptions } from './port-room.ts';
import { type PaceOptions, requireReadingPace } from './reader-pace.ts';

export const ENDED_CAUSES = ['slow_reader', 'crowded', 'pipelined', 'small_chunks'] as const;
export type EndedCause = (typeof ENDED_CAUSES)[number];

interface HttpGuardOptions extends RoomOptions, PaceOptions {
  readonly onEnded?: ((cause: EndedCause) => void) | undefined;
}

/** Wraps the request listeners that exist now. @param server must use GatheringMessage */
export function guardHttpServer(server: Server, options: HttpGuardOptions): PortRoom {
  const room = new PortRoom(server, options);
  requireReadingPace(server, options);
  boundPipelining(server, options.onEnded);
  boundChunks(server, options.onEnded);
  return room;
}

/** Concurrent requests on a connection. Browsers and current clients send one. */
const PIPELINED_MAX = 16;

type RequestListener = (request: IncomingMessage, response: ServerResponse) => void;

/**
 * Closes connections that pipeline too many requests (RFC 9112 section 9.3.2). Node emits all
 * requests of a 64 KiB chunk, some 2000, and slow answers such as metrics would all be computed at
 * once.
 */
function boundPipelining(server: Server, onEnded?: (cause: 'pipelined') => void): void {
  const listeners = server.listeners('request') as RequestListener[];
  const underWay = new WeakMap<Socket, number>();
  server.removeAllListeners('request');
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request;
    // After we destroyed the socket, Node still emits the other requests of the chunk.
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
