import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { networkOf } from './addresses.ts';

export interface RoomOptions {
  /** Connections of the server's `maxConnections` that are kept free of those that wait. */
  readonly spareShare: number;
  /** The same that may have a body on its way; strangers and accounts each as many. */
  readonly bodiesShare?: number;
  /** The account whose key a connection showed last. undefined: it showed none, as if absent. */
  readonly ownerOf?: (socket: Socket) => string | undefined;
  readonly onEnded?: ((cause: 'crowded') => void) | undefined;
}

/** The owner of a connection that waits: an account, or a stranger from a network. */
type WaitingOwner = { readonly account: string } | { readonly network: string };

/**
 * Room on an HTTP port. A connection waits for its client while it is idle (silent, between two
 * requests, with headers that are not whole) and while the body of its request is on its way. So no
 * client can fill the port by staying:
 *
 * | where                     | who makes room for the one that comes                           |
 * |---------------------------|-----------------------------------------------------------------|
 * | few places are left       | of strangers the network with most that wait, whatever for,     |
 * |                           | loses its oldest; without one the account with most of them     |
 * | many bodies of strangers  | the network with most of them loses its oldest                  |
 * | many bodies of accounts   | the account with most of them loses its oldest                  |
 *
 * The one that comes is never the one to go: who sends its request at once gets it through.
 * `maxConnections` is read with each connection.
 */
export class PortRoom {
  readonly #server: Server;
  readonly #options: RoomOptions;
  /** Connections that wait: of strangers by network, of accounts by account. */
  readonly #strangers = new WaitingSockets();
  readonly #accounts = new WaitingSockets();
  /** The connections of both whose bodies are on their way, by network and by account. */
  readonly #bodies = { strangers: new WaitingSockets(), accounts: new WaitingSockets() };
  /** The request of a connection whose body is on its way. */
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
    /** Requests under way. */
    const busy = new WeakMap<Socket, number>();
    server.on('connection', (socket: Socket) => {
      this.#open += 1;
      if (this.#open > server.maxConnections * (1 - options.spareShare)) this.#makeRoom();
      // The newcomer waits only after the check, so that it is not the one to close.
      this.#wait(socket, ownerOf(socket));
      socket.once('close', () => {
        this.#open -= 1;
        this.#goOn(socket);
      });
    });
    // Before the handler, which can await a body at once.
    server.prependListener('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
      this.#goOn(socket);
      busy.set(socket, (busy.get(socket) ?? 0) + 1);
      response.once('close', () => {
        const left = (busy.get(socket) ?? 1) - 1;
        busy.set(socket, left);
        if (left === 0 && !socket.destroyed) this.#wait(socket, ownerOf(socket));
      });
    });
  }

  /** Requests whose bodies are awaited. */
  get awaitedBodies(): number {
    return this.#bodies.strangers.size + this.#bodies.accounts.size;
  }

  /** Counts a body until it is whole or the answer is written. A second call changes nothing. */
  awaitBody(request: IncomingMessage, response: ServerResponse, owner: WaitingOwner): void {
    const { socket } = request;
    if (request.complete || socket.destroyed || this.#awaited.get(socket) === request) return;
    this.#awaited.set(socket, request);
    const { strangers, accounts } = this.#bodies;
    if ('account' in owner) accounts.add(socket, owner.account);
    else strangers.add(socket, owner.network);
    this.#wait(socket, owner);
    const goOn = () => {
      if (this.#awaited.get(socket) === request) this.#goOn(socket);
    };
    request.once('end', goOn).once('close', goOn);
    // Ahead of the listener by which the connection is idle then.
    response.prependOnceListener('close', goOn);
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
    this.#goOn(socket);
    this.#options.onEnded?.('crowded');
    socket.destroy();
  }

  #least(waiting: WaitingSockets): Socket | undefined {
    for (;;) {
      const least = waiting.least();
      // A body that is whole is no longer waited for, though it may not have been read yet.
      if (least === undefined || this.#awaited.get(least)?.complete !== true) return least;
      this.#goOn(least);
    }
  }

  #wait(socket: Socket, owner: WaitingOwner): void {
    if ('account' in owner) this.#accounts.add(socket, owner.account);
    else this.#strangers.add(socket, owner.network);
  }

  /** The connection waits no longer. */
  #goOn(socket: Socket): void {
    this.#awaited.delete(socket);
    const { strangers, accounts } = this.#bodies;
    for (const waiting of [this.#strangers, this.#accounts, strangers, accounts]) {
      waiting.remove(socket);
    }
  }
}

/** Sockets by owner, in the order in which they began to wait. Each call takes constant time. */
class WaitingSockets {
  readonly #byOwner = new Map<string, Set<Socket>>();
  readonly #owners = new Map<Socket, string>();
  /** Owners of as many sockets, in the order in which they came to have them. */
  readonly #bySize = new Map<number, Set<string>>();
  /** The most sockets of one owner. */
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

  /** The socket to close next. Among owners with as many sockets, it is of the first. */
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
