/**
 * Room on an HTTP port. A connection waits for its client while it is idle (silent, between two
 * requests, with headers that are not whole) and while the body of its request is on its way. So no
 * client can fill the port by staying:
 *
 * | where                     | who makes room for the one that comes                           |
 * |---------------------------|-----------------------------------------------------------------|
 * | few places are left       | the stranger's that has waited for longest, whatever it waits   |
 * |                           | for; without one the account with most of them loses its oldest |
 * | many bodies of strangers  | the network with most of them loses its oldest                  |
 * | many bodies of accounts   | the account with most of them loses its oldest                  |
 *
 * The one that comes is never the one to go: who sends its request at once gets it through.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

export interface PortRoomOptions {
  /** Connections of the server's `maxConnections` that are kept free of those that wait. */
  readonly spareShare: number;
  /** The same that may have a body on its way; strangers and accounts each as many. */
  readonly bodiesShare?: number;
  /** Whose key a connection has shown last; undefined: none. Nobody's where absent. */
  readonly ownerOf?: (socket: Socket) => string | undefined;
  /** A connection that waited had to make room. */
  readonly onCrowded?: () => void;
}

/** Whose body is awaited: an account's, or that of a stranger from a network. */
export type BodyOwner = { readonly account: string } | { readonly network: string };

/** A line in which nobody is told from anybody. */
const ALL = '';

/** Watches from now on. `maxConnections` is read with each connection. */
export class PortRoom {
  readonly #server: Server;
  readonly #options: PortRoomOptions;
  /** Strangers' connections that wait, all in one line. */
  readonly #strangers = new WaitingSockets();
  /** By account. */
  readonly #accounts = new WaitingSockets();
  /** Those of both whose bodies are on their way, by network and by account. */
  readonly #bodies = { strangers: new WaitingSockets(), accounts: new WaitingSockets() };
  /** The request of a connection whose body is on its way. */
  readonly #awaited = new WeakMap<Socket, IncomingMessage>();
  #open = 0;

  constructor(server: Server, options: PortRoomOptions) {
    this.#server = server;
    this.#options = options;
    /** Requests under way. */
    const busy = new WeakMap<Socket, number>();
    server.on('connection', (socket: Socket) => {
      this.#open += 1;
      if (this.#open > server.maxConnections * (1 - options.spareShare)) this.#makeRoom();
      // After the check: the newcomer is not the one to close.
      this.#strangers.add(socket, ALL);
      socket.once('close', () => {
        this.#open -= 1;
        this.#goOn(socket);
      });
    });
    // Before the handler, which may await a body at once.
    server.prependListener('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
      this.#goOn(socket);
      busy.set(socket, (busy.get(socket) ?? 0) + 1);
      response.once('close', () => {
        const left = (busy.get(socket) ?? 1) - 1;
        busy.set(socket, left);
        if (left === 0 && !socket.destroyed) this.#wait(socket, options.ownerOf?.(socket));
      });
    });
  }

  /** Requests whose bodies are awaited. */
  get awaitedBodies(): number {
    return this.#bodies.strangers.size + this.#bodies.accounts.size;
  }

  /** From now until the body is whole or the answer is written. A second call changes nothing. */
  awaitBody(request: IncomingMessage, response: ServerResponse, owner: BodyOwner): void {
    const { socket } = request;
    if (request.complete || socket.destroyed || this.#awaited.get(socket) === request) return;
    this.#awaited.set(socket, request);
    const { strangers, accounts } = this.#bodies;
    if ('account' in owner) accounts.add(socket, owner.account);
    else strangers.add(socket, owner.network);
    this.#wait(socket, 'account' in owner ? owner.account : undefined);
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
    this.#options.onCrowded?.();
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

  #wait(socket: Socket, account: string | undefined): void {
    if (account === undefined) this.#strangers.add(socket, ALL);
    else this.#accounts.add(socket, account);
  }

  /** It waits no longer. */
  #goOn(socket: Socket): void {
    this.#awaited.delete(socket);
    const { strangers, accounts } = this.#bodies;
    for (const waiting of [this.#strangers, this.#accounts, strangers, accounts]) {
      waiting.remove(socket);
    }
  }
}

/** By owner, each in the order in which they began to wait. */
class WaitingSockets {
  readonly #byOwner = new Map<string, Set<Socket>>();
  readonly #owners = new Map<Socket, string>();

  get size(): number {
    return this.#owners.size;
  }

  add(socket: Socket, owner: string): void {
    this.#owners.set(socket, owner);
    const same = this.#byOwner.get(owner);
    if (same === undefined) this.#byOwner.set(owner, new Set([socket]));
    else same.add(socket);
  }

  remove(socket: Socket): void {
    const owner = this.#owners.get(socket);
    if (owner === undefined) return;
    this.#owners.delete(socket);
    const same = this.#byOwner.get(owner);
    if (same?.delete(socket) && same.size === 0) this.#byOwner.delete(owner);
  }

  /** Whose place is taken next: of owners with as many, the one that came first. */
  least(): Socket | undefined {
    let most: Set<Socket> | undefined;
    for (const sockets of this.#byOwner.values()) {
      if (most === undefined || sockets.size > most.size) most = sockets;
    }
    const [longest] = most ?? [];
    return longest;
  }
}
