/**
 * Room on an HTTP port: where few places are left, each newcomer takes that of an idle connection.
 * Those that have shown no key go first, the one that has been idle for longest before the others;
 * then those of the address with most idle ones. So no client can fill the port by staying. A
 * connection is idle without a request under way: silent ones, those between two requests, and
 * those whose headers are not whole.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

export interface IdleConnectionsOptions {
  /** Connections of the server's `maxConnections` that are kept free of idle ones. */
  readonly spareShare: number;
  /** Whose key a connection has shown last; undefined: none. Nobody's where absent. */
  readonly ownerOf?: (socket: Socket) => string | undefined;
  /** An idle connection had to make room. */
  readonly onCrowded?: () => void;
}

/** Watches from now on. `maxConnections` is read with each connection. */
export function makeRoomOfIdle(server: Server, options: IdleConnectionsOptions): void {
  const { spareShare, ownerOf = () => undefined, onCrowded } = options;
  const idle = new IdleSockets();
  /** Requests under way. */
  const busy = new WeakMap<Socket, number>();
  let open = 0;
  server.on('connection', (socket: Socket) => {
    open += 1;
    if (open > server.maxConnections * (1 - spareShare)) {
      const least = idle.least();
      if (least !== undefined) {
        idle.remove(least);
        onCrowded?.();
        least.destroy();
      }
    }
    // After the check: the newcomer is not the one to close.
    idle.add(socket, undefined);
    socket.once('close', () => {
      open -= 1;
      idle.remove(socket);
    });
  });
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    idle.remove(socket);
    busy.set(socket, (busy.get(socket) ?? 0) + 1);
    response.once('close', () => {
      const left = (busy.get(socket) ?? 1) - 1;
      busy.set(socket, left);
      if (left === 0 && !socket.destroyed) idle.add(socket, ownerOf(socket));
    });
  });
}

/** By owner, each in the order in which they became idle. */
class IdleSockets {
  readonly #byOwner = new Map<string | undefined, Set<Socket>>();
  readonly #owners = new WeakMap<Socket, string | undefined>();

  add(socket: Socket, owner: string | undefined): void {
    this.#owners.set(socket, owner);
    const same = this.#byOwner.get(owner);
    if (same === undefined) this.#byOwner.set(owner, new Set([socket]));
    else same.add(socket);
  }

  remove(socket: Socket): void {
    const owner = this.#owners.get(socket);
    const same = this.#byOwner.get(owner);
    if (same?.delete(socket) && same.size === 0) this.#byOwner.delete(owner);
  }

  /** Whose place is taken next. */
  least(): Socket | undefined {
    let most = this.#byOwner.get(undefined);
    if (most === undefined) {
      for (const sockets of this.#byOwner.values()) {
        if (most === undefined || sockets.size > most.size) most = sockets;
      }
    }
    const [longest] = most ?? [];
    return longest;
  }
}
