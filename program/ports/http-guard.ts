/** Bounds what a client can cost an HTTP port of either program. */
import type { Server } from 'node:http';
import { boundChunks } from './chunked-bodies.ts';
import { boundPipelining } from './pipelining.ts';
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
