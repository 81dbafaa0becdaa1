/**
 * The connections of the public port, and their end. A server that closes while callers are on
 * their way resets them: those whose request has left and not arrived get no answer, though nothing
 * is wrong with it. So first nobody new is let in, then those inside have time to ask, and are
 * answered with `Connection: close`; what is idle after it is closed.
 *
 * A connection is a stranger's until one of its requests has shown a good API key. Where strangers
 * leave little room, each newcomer takes the place of the stranger that has been idle for longest:
 * so they cannot fill the port by being there.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import net from 'node:net';
import { setImmediate as afterPolling } from 'node:timers/promises';
import { settledWithin } from '#contract/settled-within.ts';

/** For a request that was sent when the listener closed: a way round the world takes half of it. */
const LINGER_MS_MAX = 500;
/** Node takes one connection a turn of its loop: those that the system holds for it wait behind. */
const BACKLOG_MS_MAX = 500;
/** Of all connections: kept free of strangers that are idle. */
const SPARE_SHARE = 0.1;

/** Why a connection was ended; a label of metrics. */
export type EndedCause = 'slow_reader' | 'crowded';

export class Connections {
  readonly #server: Server;
  readonly #onCrowded: () => void;
  #open = 0;
  #taken = 0;
  readonly #known = new WeakSet<net.Socket>();
  /** Requests under way. */
  readonly #busy = new WeakMap<net.Socket, number>();
  /** In the order in which they became idle. */
  readonly #idleStrangers = new Set<net.Socket>();
  /** Without a request so far: to Node neither idle nor busy, so it would wait for them for long. */
  readonly #unused = new Set<net.Socket>();
  #onLast: () => void = () => undefined;
  #takingBacklog: Promise<void> | undefined;

  /**
   * @param onDropped hears of a connection closed unread because `maxConnections` were open.
   * @param onCrowded hears of an idle stranger's that had to make room.
   */
  constructor(server: Server, onDropped: () => void, onCrowded: () => void) {
    this.#server = server;
    this.#onCrowded = onCrowded;
    server.on('connection', (socket: net.Socket) => {
      this.#open += 1;
      this.#taken += 1;
      this.#unused.add(socket);
      this.#idleStrangers.add(socket);
      this.#makeRoom();
      socket.once('close', () => {
        this.#open -= 1;
        this.#unused.delete(socket);
        this.#idleStrangers.delete(socket);
        if (this.#open === 0) this.#onLast();
      });
    });
    server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
      this.#unused.delete(socket);
      this.#idleStrangers.delete(socket);
      this.#busy.set(socket, (this.#busy.get(socket) ?? 0) + 1);
      response.once('close', () => this.#answered(socket));
    });
    server.on('drop', onDropped);
  }

  /** A request of it has shown a good key. */
  noteKnown(socket: net.Socket): void {
    this.#known.add(socket);
  }

  readonly isKnown = (socket: net.Socket): boolean => this.#known.has(socket);

  #answered(socket: net.Socket): void {
    const busy = (this.#busy.get(socket) ?? 1) - 1;
    this.#busy.set(socket, busy);
    if (busy > 0 || socket.destroyed || this.#known.has(socket)) return;
    this.#idleStrangers.add(socket);
  }

  #makeRoom(): void {
    const { maxConnections } = this.#server;
    if (this.#open <= maxConnections * (1 - SPARE_SHARE)) return;
    const [longest] = this.#idleStrangers;
    if (longest === undefined) return;
    this.#idleStrangers.delete(longest);
    this.#onCrowded();
    longest.destroy();
  }

  get open(): number {
    return this.#open;
  }

  /**
   * To be called before a request is looked at. Who is answered at once comes back at once: while
   * the backlog is taken, requests wait, so that callers cannot fill it as fast as it empties.
   */
  readonly hold = (_request: unknown, _reply: unknown, done: () => void): void => {
    if (this.#takingBacklog === undefined) done();
    else void this.#takingBacklog.then(done);
  };

  /** Resolves when none is open, or when those that are have had their time. */
  async linger(): Promise<void> {
    if (!this.#server.listening) return;
    this.#takingBacklog = this.#takeBacklog();
    await this.#takingBacklog;
    // Of node:http it would end idle connections too, and one whose request is on its way is idle.
    net.Server.prototype.close.call(this.#server);
    if (this.#open === 0) return;
    const left = new Promise<void>(resolve => {
      this.#onLast = resolve;
    });
    await settledWithin(left, LINGER_MS_MAX);
    for (const socket of this.#unused) socket.destroy();
  }

  /** Whoever the system has accepted and Node has not taken is reset when the listener closes. */
  async #takeBacklog(): Promise<void> {
    const until = performance.now() + BACKLOG_MS_MAX;
    let takenBefore: number;
    do {
      takenBefore = this.#taken;
      // The first ends the turn that we are in; one that asked the system lies before the second.
      await afterPolling();
      await afterPolling();
    } while (this.#taken > takenBefore && performance.now() < until);
  }
}
