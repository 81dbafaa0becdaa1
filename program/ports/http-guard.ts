/**
 * Bounds what a client can cost an HTTP port of either program: by connections that stay
 * (PortRoom), by reading slowly (requireReadingPace), by requests sent ahead (boundPipelining), by
 * bodies in tiny chunks (chunked-bodies.ts).
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { networkOf } from './addresses.ts';
import { boundChunks } from './chunked-bodies.ts';

/** Why a connection was ended; a label of metrics. */
export const ENDED_CAUSES = ['slow_reader', 'crowded', 'pipelined', 'small_chunks'] as const;
export type EndedCause = (typeof ENDED_CAUSES)[number];

export interface HttpGuardOptions {
  /** Connections of the server's `maxConnections` that are kept free of those that wait. */
  readonly spareShare: number;
  /** The same that may have a body on its way; strangers and accounts each as many. */
  readonly bodiesShare?: number;
  /** The account whose key a connection showed last. undefined: it showed none, as if absent. */
  readonly ownerOf?: (socket: Socket) => string | undefined;
  /** A connection that waited had to make room, or one was cut off at another bound. */
  readonly onEnded?: ((cause: EndedCause) => void) | undefined;
  /** PACE_DEBT_MS_MAX where absent. */
  readonly debtMsMax?: number;
  /** UNREAD_STRANGERS_MAX where absent. */
  readonly unreadStrangersMax?: number;
  /** UNREAD_BYTES_MAX where absent. */
  readonly unreadBytesMax?: number;
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
  readonly #options: HttpGuardOptions;
  /** Strangers' connections that wait, by network. */
  readonly #strangers = new WaitingSockets();
  /** Accounts' connections that wait, by account. */
  readonly #accounts = new WaitingSockets();
  /** The connections of both whose bodies are on their way, by network and by account. */
  readonly #bodies = { strangers: new WaitingSockets(), accounts: new WaitingSockets() };
  /** The request of a connection whose body is on its way. */
  readonly #awaited = new WeakMap<Socket, IncomingMessage>();
  #open = 0;

  constructor(server: Server, options: HttpGuardOptions) {
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

/** Half of what a throttled mobile plan has (64 kbit/s). */
export const PACE_BYTES_PER_SECOND_MIN = 4096;
export const PACE_DEBT_MS_MAX = 30_000;
/** Connections without a key whose answer waits to be read; beyond it the slowest are cut off. */
export const UNREAD_STRANGERS_MAX = 2048;
/**
 * Bytes of answers that wait in the process for their readers, of all connections. Beyond it the
 * account that holds most loses its slowest; connections without a key count as one account. As
 * many readers of results as there may be (result-download.ts of the control plane) hold as much.
 */
export const UNREAD_BYTES_MAX = 128 * 1024 * 1024;
const SAMPLE_INTERVAL_MS = 1000;
/** The next look comes earlier after so many more connections. */
const SAMPLE_CONNECTIONS_MAX = 256;

interface Reader {
  /** Answers under way: a caller may ask again before it has read. */
  readonly answers: Set<ServerResponse>;
  takenBytes: number;
  debtMs: number;
}

/** A connection whose answers wait to be read. */
interface SlowReader {
  readonly socket: Socket;
  /** The account; undefined: a stranger. */
  readonly owner: string | undefined;
  readonly debtMs: number;
  readonly bytes: number;
}

/**
 * A minimum pace for readers of answers. A reader that takes nothing, or very little, would keep
 * an answer's buffers and its connection for as long as a byte moves. Only time counts in which
 * bytes wait for the reader, so work that takes long costs a reader nothing.
 *
 * A reader may fall PACE_DEBT_MS_MAX behind PACE_BYTES_PER_SECOND_MIN: a phone in a tunnel for
 * 30 s is waited for, one whose plan is throttled to 64 kbit/s gets its file, and a reader that is
 * slower for long is cut off; `Range` goes on from there. Within one write it is unknown how far the
 * system is: large answers are to be written in pieces of some 64 KiB.
 */
export function requireReadingPace(server: Server, options: Partial<HttpGuardOptions>): void {
  const { debtMsMax = PACE_DEBT_MS_MAX } = options;
  const intervalMs = Math.min(SAMPLE_INTERVAL_MS, debtMsMax / 4);
  const readers = new Map<Socket, Reader>();
  let timer: NodeJS.Timeout | undefined;
  let sampledAtMs = 0;
  let sampleAtSize = SAMPLE_CONNECTIONS_MAX;
  const sample = () => {
    const nowMs = performance.now();
    // A process that stood still cannot tell whether its readers did.
    const elapsedMs = Math.min(nowMs - sampledAtMs, 2 * intervalMs);
    sampledAtMs = nowMs;
    const slow: SlowReader[] = [];
    for (const [socket, reader] of readers) {
      const waits = grade(socket, reader, elapsedMs);
      const { debtMs, answers } = reader;
      if (debtMs > debtMsMax) cut(socket, 'slow_reader');
      else if (waits) {
        const owner = options.ownerOf?.(socket);
        slow.push({ socket, owner, debtMs, bytes: bytesOf(answers) });
      }
    }
    for (const { socket } of tooMany(slow, options)) cut(socket, 'crowded');
    sampleAtSize = readers.size + SAMPLE_CONNECTIONS_MAX;
  };
  const cut = (socket: Socket, cause: EndedCause) => {
    readers.delete(socket);
    options.onEnded?.(cause);
    socket.destroy();
  };
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const { socket } = request;
    const reader = readers.get(socket) ?? newReader(socket);
    reader.answers.add(response);
    readers.set(socket, reader);
    response.once('close', () => {
      reader.answers.delete(response);
      if (reader.answers.size === 0 && readers.get(socket) === reader) readers.delete(socket);
      if (readers.size > 0) return;
      clearInterval(timer);
      timer = undefined;
    });
    if (timer === undefined) {
      sampledAtMs = performance.now();
      timer = setInterval(sample, intervalMs).unref();
    } else if (readers.size >= sampleAtSize) sample();
  });
}

function newReader(socket: Socket): Reader {
  return { answers: new Set(), takenBytes: takenBytes(socket), debtMs: 0 };
}

/** The bytes that wait in the process: of the current answer, and of those behind it. */
function bytesOf(answers: Iterable<ServerResponse>): number {
  let bytes = 0;
  for (const { writableLength } of answers) bytes += writableLength;
  return bytes;
}

/** The slowest where more wait than may: by their number without a key, and by their bytes. */
function tooMany(
  slow: readonly SlowReader[],
  {
    unreadStrangersMax = UNREAD_STRANGERS_MAX,
    unreadBytesMax = UNREAD_BYTES_MAX,
  }: Partial<HttpGuardOptions>,
): SlowReader[] {
  const byOwner = Map.groupBy(slow, ({ owner }) => owner);
  const held = [...byOwner].map(([owner, own]) => {
    const slowestLast = own.toSorted((one, other) => one.debtMs - other.debtMs);
    return { owner, slowestLast, bytes: own.reduce((sum, { bytes }) => sum + bytes, 0) };
  });
  const strangers = held.find(({ owner }) => owner === undefined);
  const gone = strangers?.slowestLast.splice(unreadStrangersMax) ?? [];
  if (strangers) for (const { bytes } of gone) strangers.bytes -= bytes;
  let leftBytes = held.reduce((sum, { bytes }) => sum + bytes, 0);
  while (leftBytes > unreadBytesMax) {
    const most = held.reduce((one, other) => (other.bytes > one.bytes ? other : one));
    const slowest = most.slowestLast.pop();
    if (slowest === undefined) break;
    gone.push(slowest);
    most.bytes -= slowest.bytes;
    leftBytes -= slowest.bytes;
  }
  return gone;
}

/** Whether something waits for it that it has not taken. */
function grade(socket: Socket, reader: Reader, elapsedMs: number): boolean {
  const taken = takenBytes(socket);
  const earnedMs = ((taken - reader.takenBytes) / PACE_BYTES_PER_SECOND_MIN) * 1000;
  reader.takenBytes = taken;
  const waits = socket.writableLength > 0;
  reader.debtMs = Math.max(0, reader.debtMs + (waits ? elapsedMs : 0) - earnedMs);
  return waits;
}

/** Bytes that the system took from us: `bytesWritten` alone counts those that wait as well. */
function takenBytes(socket: Socket): number {
  return socket.bytesWritten - socket.writableLength;
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
function boundPipelining(server: Server, onEnded?: HttpGuardOptions['onEnded']): void {
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
