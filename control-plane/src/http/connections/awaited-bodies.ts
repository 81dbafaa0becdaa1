/**
 * Requests whose bodies are on their way, for the room of their port: from the end of what their
 * headers are judged by until the body is whole or the answer is written, whether a handler reads
 * the body or what was refused is read away. Only a submission with an API key is none of them: it
 * holds a place of its account's (connections.ts).
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { networkOf } from '#program/network-of.ts';
import type { PortRoom } from '#program/ports/port-room.ts';

export interface Senders {
  /** Whose request it is; undefined: a stranger's. Nobody is known where absent. */
  readonly accountOf?: (request: FastifyRequest) => string | undefined;
  /** Whether it came with an API key. */
  readonly hasKey?: (request: FastifyRequest) => boolean;
}

/** To be called before any route is added. */
export function awaitBodies(
  app: FastifyInstance,
  room: PortRoom,
  { accountOf, hasKey }: Senders = {},
): void {
  const note = (request: FastifyRequest, reply: FastifyReply) => {
    // Undefined where a test injects a request without a socket.
    if (request.raw.complete !== false || !hasBody(request)) return;
    const account = accountOf?.(request);
    const owner = account === undefined ? { network: networkOf(request.ip) } : { account };
    room.awaitBody(request.raw, reply.raw, owner);
  };
  // After all checks of headers, whatever they had to ask the database.
  app.addHook('preParsing', (request, reply, _payload, done) => {
    if (hasKey?.(request) !== true) note(request, reply);
    done(null);
  });
  app.addHook('onSend', (request, reply, payload, done) => {
    note(request, reply);
    done(null, payload);
  });
}

function hasBody({ headers }: FastifyRequest): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}
