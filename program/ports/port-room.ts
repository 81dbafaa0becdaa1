import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { networkOf } from './addresses.ts';

export interface RoomOptions {
  /** Fraction of `maxConnections` that waiting connections must leave free. */
  readonly spareShare: number;
  /** Fraction that may have an incomplete body: once for strangers, and once for accounts. */
  readonly bodiesShare?: number;
  /** The account of the last key on the connection. undefined: none. */
  readonly ownerOf?: (socket: Socket) => string | undefined;
  readonly onEnded?: ((cause: 'crowded') => void) | undefined;
}

type WaitingOwner = { readonly account: string } | { readonly network: string };

/**
 * Room on an HTTP port. A connection waits while it is idle (silent, between requests, with
 * incomplete headers) and while its request's body is incomplete. No client can fill the port by
 * waiting:
 *
 * | at the bound of           | is closed                                                       |
 * |---------------------------|-----------------------------------------------------------------|
 * | free connections          | the oldest of the network with most waiting strangers; without  |
 * |                           | strangers, of the account with most                             |
 * | strangers' bodies         | the oldest of the network with most of them                     |
 * | accounts' bodies          | the oldest of the account with most of them                     |
 *
 * A new connection is never closed for itself, so a client that sends its request at once succeeds.
 */
export class PortRoom {
  readonly #server: Server;
  readonly #options: RoomOptions;
  readonly #strangers = new WaitingSockets();
  readonly #accounts = new WaitingSockets();
  /** Connections with incomplete bodies. */
  readonly #bodies = { strangers: new WaitingSockets(), accounts: new WaitingSockets() };
  readonly #awaited = new WeakMap<Socket, IncomingMessage>();
  #open = 0;

  constructor(server: Server, options: RoomOptions) {
    this.#server = server;
    this.#options = options;
    const ownerOf = (socket: Socket): WaitingOwner => {
      const account = options.ownerOf?.(socket);
      return account === undefined
        ? { network: networkOf(socket.remoteAddress ?? '') }
        : { account };
    };
    const busy = new WeakMap<Socket, number>();
    server.on('connection', (socket: Socket) => {
      this.#open += 1;
      if (this.#open > server.maxConnections * (1 - options.spareShare)) this.#makeRoom();
      // The newcomer is added after the check, so that it is not closed.
      this.#wait(socket, ownerOf(socket));
      socket.once('close', () => {
        this.#open -= 1;
        this.#stopWaiting(socket);
      });
    });
    // This listener must precede the handler, which may wait for a body at once.
    server.prependListener('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
      this.#stopWaiting(socket);
      busy.set(socket, (busy.get(socket) ?? 0) + 1);
      response.once('close', () => {
        const left = (busy.get(socket) ?? 1) - 1;
        busy.set(socket, left);
        if (left === 0 && !socket.destroyed) this.#wait(socket, ownerOf(socket));
      });
    });
  }

  get awaitedBodies(): number {
    return this.#bodies.strangers.size + this.#bodies.accounts.size;
  }

  /**
   * The connection waits until the body is complete or the answer written. A second call does
   * nothing.
   */
  awaitBody(request: IncomingMessage, response: ServerResponse, owner: WaitingOwner): void {
    const { socket } = request;
    if (request.complete || socket.destroyed || this.#awaited.get(socket) === request) return;
    this.#awaited.set(socket, request);
    const { strangers, accounts } = this.#bodies;
    if ('account' in owner) accounts.add(socket, owner.account);
    else strangers.add(socket, owner.network);
    this.#wait(socket, owner);
    const stopWaiting = () => {
      if (this.#awaited.get(socket) === request) this.#stopWaiting(socket);
    };
    request.once('end', stopWaiting).once('close', stopWaiting);
    // This must precede the listener that marks the connection as idle.
    response.prependOnceListener('close', stopWaiting);
    const { bodiesShare = 1 } = this.#options;
    const max = Math.max(1, Math.floor(this.#server.maxConnections * bodiesShare));
    for (const bodies of [strangers, accounts]) {
      if (bodies.size > max) this.#end(this.#least(bodies));
    }
  }

  #makeRoom(): void {
    this.#end(this.#least(this.#strangers) ?? this.#least(this.#accounts));
  }

  #end(socket: Socket | undefined): void {
    if (socket === undefined) return;
    this.#stopWaiting(socket);
    this.#options.onEnded?.('crowded');
    socket.destroy();
  }

  #least(waiting: WaitingSockets): Socket | undefined {
    for (;;) {
      const least = waiting.least();
      // A connection whose body is complete does not wait, even if the body is unread.
      if (least === undefined || this.#awaited.get(least)?.complete !== true) return least;
      this.#stopWaiting(least);
    }
  }

  #wait(socket: Socket, owner: WaitingOwner): void {
    if ('account' in owner) this.#accounts.add(socket, owner.account);
    else this.#strangers.add(socket, owner.network);
  }

  #stopWaiting(socket: Socket): void {
    this.#awaited.delete(socket);
    const { strangers, accounts } = this.#bodies;
    for (const waiting of [this.#strangers, this.#accounts, strangers, accounts]) {
      waiting.remove(socket);
    }
  }
}

class WaitingSockets {
  readonly #byOwner = new Map<string, Set<Socket>>();
  readonly #owners = new Map<Socket, string>();
  /** Owners by their number of sockets, in the order in which they reached it. */
  readonly #bySize = new Map<number, Set<string>>();
  #most = 0;

  get size(): number {
    return this.#owners.size;
  }

  add(socket: Socket, owner: string): void {
    const same = this.#byOwner.get(owner) ?? new Set();
    this.#owners.set(socket, owner);
    this.#byOwner.set(owner, same.add(socket));
    this.#moved(owner, same.size - 1, same.size);
  }

  remove(socket: Socket): void {
    const owner = this.#owners.get(socket);
    if (owner === undefined) return;
    this.#owners.delete(socket);
    const same = this.#byOwner.get(owner);
    if (!same?.delete(socket)) return;
    if (same.size === 0) this.#byOwner.delete(owner);
    this.#moved(owner, same.size + 1, same.size);
  }

  /** @returns the oldest socket of the owner that has the most */
  least(): Socket | undefined {
    const [owner] = this.#bySize.get(this.#most) ?? [];
    const [longest] = (owner !== undefined && this.#byOwner.get(owner)) || [];
    return longest;
  }

  #moved(owner: string, from: number, to: number): void {
    this.#bySize.get(from)?.delete(owner);
    if (to > 0) this.#bySize.set(to, (this.#bySize.get(to) ?? new Set()).add(owner));
    if (to > this.#most) this.#most = to;
    while (this.#most > 0 && !this.#bySize.get(this.#most)?.size) this.#most -= 1;
  }
}
