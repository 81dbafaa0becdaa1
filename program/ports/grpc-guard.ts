/**
 * Bounds what strangers cost a gRPC port, on the http2 servers below grpc-js. A connection belongs
 * to a stranger until one of its calls shows a known token or certificate.
 *
 * | bound                  | bounds               | at the bound                                   |
 * |------------------------|----------------------|------------------------------------------------|
 * | strangersMax           | all strangers        | the network with most of them loses its oldest |
 * | tokenWaitMaxMs         | a stranger           | it is closed                                   |
 * | probeAgeMaxMs          | a probing stranger   | it is closed                                   |
 * | STRANGER_WINDOW_BYTES  | a stranger's call    | the rest waits for the token                   |
 * | strangerBytesMax       | a stranger           | it is closed: a flood                          |
 * | strangerCallsMax       | a stranger           | it is asked to reconnect                       |
 * | STRANGER_STREAMS_MAX   | a stranger           | a further call waits for another's end         |
 * | knownMax, directMax,   | known callers        | the new call is refused, its connection closed |
 * | directEachMax          |                      |                                                |
 * | HEADER_LIST_BYTES_MAX  | metadata of a call   | the call is reset                              |
 * | MESSAGE_BYTES_SMALL    | messages, except of  | the call is refused by the announced length;   |
 * |                        | large methods        | also if a stranger compressed it               |
 * | HEADER_BYTES_MAX       | a large method's     | the same                                       |
 * |                        | first message, the   |                                                |
 * |                        | header               |                                                |
 * | HEADERS_BYTES_MAX      | a direct caller's    | the call is refused                            |
 * |                        | incomplete headers   |                                                |
 * | firstMessageWaitMaxMs  | the first message,   | the call is refused                            |
 * |                        | not of large methods |                                                |
 * | afterEndMaxMs          | an answered call     | it is closed, although its caller continues    |
 *
 * The newest stranger is never closed first, so a caller with a token has time to show it: with 512
 * connections, attackers in its network must connect 5,000 times a second to displace a caller that
 * needs 100 ms. nghttp2 bounds floods of PING, SETTINGS, RST_STREAM and CONTINUATION.
 *
 * Known callers get a wide receive window. grpc-js servers ignore `grpc-node.flow_control_window`
 * and advertise 64 KiB: 40 MB over a link of 2 ms take 2.3 s (4 MiB: 0.08 to 0.23 s; Node 24). So
 * this uses a private method of grpc-js, which a test checks.
 */
import {
  constants,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { Metadata, type Server, type ServerInterceptingCall } from '@grpc/grpc-js';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { MESSAGE_BYTES_SMALL } from '@matting/proto/contract/limits.ts';
import { networkOf } from './addresses.ts';
import { boundMessages, MESSAGE_FAULTS } from './bounded-messages.ts';
import { connectionsMaxOf, type GuardBounds } from './guard-bounds.ts';
import { refuseStream } from './refused-stream.ts';

const STREAM_WINDOW_BYTES = 1024 * 1024;
const CONNECTION_WINDOW_BYTES = 4 * 1024 * 1024;
const STRANGER_STREAMS_MAX = 8;
/**
 * A call gets this many bytes through before its token is checked. gRPC's clients read the server's
 * settings before their first call, so a client that streams a file at once sends only this much
 * before its refusal.
 */
const STRANGER_WINDOW_BYTES = 2 * MESSAGE_BYTES_SMALL;
const HEADER_LIST_BYTES_MAX = 16 * 1024;
const LAST_STREAM_ID_MAX = 2 ** 31 - 1;

export type ConnectionOwner =
  | { readonly kind: 'fleet' }
  | { readonly kind: 'direct'; readonly name: string };

export const GUARD_CAUSES = [
  'no_token',
  'crowded',
  'flood',
  ...MESSAGE_FAULTS,
  'after_end',
] as const;
export type GuardCause = (typeof GUARD_CAUSES)[number];

type AuthContext = ReturnType<ServerInterceptingCall['getAuthContext']>;

interface GrpcGuardOptions {
  /** @returns undefined: the caller is unknown */
  readonly identify: (metadata: Metadata, auth: AuthContext) => ConnectionOwner | undefined;
  /** The error for unknown callers, before a handler runs. Absent: handlers decide. */
  readonly unknown?: ContractError;
  /** Concurrent calls of a known connection. */
  readonly streamsMax: number;
  /** Methods open to all, which keep a connection longer. */
  readonly isOpenPath?: (path: string) => boolean;
  /** Methods with large messages. The guard bounds only the first. */
  readonly isLargePath?: (path: string) => boolean;
  /** Resets a call of that path after this silence in both directions. undefined: never. */
  readonly silenceMaxMsOf?: (path: string) => number | undefined;
  /** At this age ±10 % a direct connection is asked to reconnect. Absent: never. */
  readonly askedAgeMs?: number | undefined;
  readonly onEnded?: ((cause: GuardCause) => void) | undefined;
  readonly bounds: GuardBounds;
}

type StreamListener = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void;
type PingAnswer = (error: null, ms: number, payload: Buffer) => void;
type CreateHttp2Server = (...args: unknown[]) => Http2Server;

/** Call it before the server is bound. @throws Error: grpc-js has changed its internals */
export function guardGrpcServer(server: Server, options: GrpcGuardOptions): GrpcGuard {
  // grpc-js gives no access to its http2 servers. bindAsync of 1.14 creates each by this private
  // method.
  const internals = server as unknown as { createHttp2Server?: CreateHttp2Server };
  const create = internals.createHttp2Server;
  if (typeof create !== 'function') {
    throw new Error(
      'grpc-js has no Server.createHttp2Server any more: see whether it has options for the ' +
        "server's receive window and for strangers now, and mend program/ports/grpc-guard.ts",
    );
  }
  const guard = new GrpcGuard(options);
  internals.createHttp2Server = (...args) => guard.watch(create.apply(server, args));
  return guard;
}

const SWEEP_INTERVAL_MS = 200;
const END_GRACE_MS = 1000;

interface Connection {
  readonly socket: Socket;
  readonly network: string;
  readonly openedAtMs: number;
  session: ServerHttp2Session | undefined;
  owner: ConnectionOwner | undefined;
  probed: boolean;
  calls: number;
  readonly headers: { bytes: number };
  ending: boolean;
}

export class GrpcGuard {
  readonly #options: GrpcGuardOptions;
  readonly #bounds: GuardBounds;
  /**
   * Connections in the order of arrival, by the peer's address and port: with TLS the session has
   * another socket object than the connection.
   */
  readonly #connections = new Map<string, Connection>();
  readonly #bySession = new WeakMap<ServerHttp2Session, Connection>();
  #strangers = 0;
  #known = 0;
  #sweeping: NodeJS.Timeout | undefined;

  constructor(options: GrpcGuardOptions) {
    this.#options = options;
    this.#bounds = options.bounds;
  }

  get strangers(): number {
    return this.#strangers;
  }

  get known(): number {
    return this.#known;
  }

  watch(http2Server: Http2Server): Http2Server {
    http2Server.updateSettings({
      initialWindowSize: STRANGER_WINDOW_BYTES,
      maxConcurrentStreams: STRANGER_STREAMS_MAX,
      maxHeaderListSize: HEADER_LIST_BYTES_MAX,
    });
    http2Server.maxConnections = connectionsMaxOf(this.#bounds);
    // This listener must precede http2's own, which creates a plain text session at once.
    http2Server.prependListener('connection', (socket: Socket) => this.#opened(socket));
    http2Server.on('session', (session: ServerHttp2Session) => {
      const connection = this.#connections.get(peerOf(session.socket));
      if (connection === undefined) return;
      connection.session = session;
      this.#bySession.set(session, connection);
      this.#askAtAge(connection, session);
      pingWhileClosing(session);
    });
    const inner = http2Server.listeners('stream') as StreamListener[];
    http2Server.removeAllListeners('stream');
    http2Server.on('stream', (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
      // A stream without a handler needs a listener too: an unheard failure would end the process.
      stream.on('error', () => undefined);
      const session = stream.session as ServerHttp2Session | undefined;
      // The connection may have ended before its headers were processed.
      const connection = session && this.#bySession.get(session);
      if (connection === undefined || stream.destroyed) return;
      this.#stream(stream, headers, { connection, inner });
    });
    return http2Server;
  }

  /**
   * Replaces grpc.max_connection_age_ms, which also asks control planes. Their calls are long, and
   * would end at the next keepalive (grpc/grpc-node#3068).
   */
  #askAtAge(connection: Connection, session: ServerHttp2Session): void {
    const { askedAgeMs } = this.#options;
    if (askedAgeMs === undefined) return;
    const askToReconnect = () => {
      if (connection.owner?.kind === 'fleet' || session.closed) return;
      session.goaway(constants.NGHTTP2_NO_ERROR, LAST_STREAM_ID_MAX);
      session.close();
    };
    const timer = setTimeout(askToReconnect, askedAgeMs * (0.9 + Math.random() / 5)).unref();
    session.once('close', () => clearTimeout(timer));
  }

  #stream(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    { connection, inner }: { connection: Connection; inner: readonly StreamListener[] },
  ): void {
    const { identify, unknown, isOpenPath, isLargePath, silenceMaxMsOf } = this.#options;
    const owner = identify(Metadata.fromHttp2Headers(headers), authContextOf(stream.session!));
    if (owner === undefined ? !this.#mayCall(connection) : !this.#mayEnter(connection, owner)) {
      if (owner !== undefined) refuseStream(stream, OVER_LIMIT);
      return;
    }
    const path = String(headers[constants.HTTP2_HEADER_PATH]);
    const isOpen = isOpenPath?.(path) ?? false;
    if (owner === undefined && !isOpen && unknown !== undefined) {
      refuseStream(stream, unknown);
      return;
    }
    for (const listener of inner) listener(stream, headers);
    // This must follow grpc-js' own listeners, which start the flow of the stream.
    this.#endAfterEnd(stream);
    const silenceMaxMs = silenceMaxMsOf?.(path);
    if (silenceMaxMs !== undefined) {
      stream.setTimeout(silenceMaxMs, () => stream.close(constants.NGHTTP2_CANCEL));
    }
    const isKnown = owner !== undefined;
    const isLarge = isKnown && (isLargePath?.(path) ?? false);
    boundMessages(stream, {
      isKnown,
      isLarge,
      // A control plane's headers are unbounded: it may begin as many calls as the node takes.
      headers: owner?.kind === 'direct' ? connection.headers : undefined,
      firstMessageWaitMaxMs: this.#bounds.firstMessageWaitMaxMs,
      onFirst: () => {
        if (isOpen) connection.probed = true;
      },
      onFault: fault => this.#options.onEnded?.(fault),
    });
    // Bounds all bytes of the socket: a kept frame keeps alive those that arrived with it.
    if (!isKnown) stream.prependListener('data', () => void this.#mayContinue(connection));
  }

  #opened(socket: Socket): void {
    const peer = peerOf(socket);
    const connection: Connection = {
      socket,
      network: networkOf(socket.remoteAddress ?? ''),
      openedAtMs: performance.now(),
      session: undefined,
      owner: undefined,
      probed: false,
      calls: 0,
      headers: { bytes: 0 },
      ending: false,
    };
    this.#connections.set(peer, connection);
    this.#strangers += 1;
    socket.once('close', () => {
      // Another connection may have the address by now.
      if (this.#connections.get(peer) === connection) this.#connections.delete(peer);
      if (connection.owner === undefined) this.#strangerGone();
      else this.#known -= 1;
    });
    if (this.#strangers > this.#bounds.strangersMax) this.#makeRoom();
    const intervalMs = Math.min(SWEEP_INTERVAL_MS, this.#bounds.tokenWaitMaxMs / 4);
    this.#sweeping ??= setInterval(() => this.#sweep(), intervalMs).unref();
  }

  /** @returns false: there is no room for known callers, so the connection ends */
  #mayEnter(connection: Connection, owner: ConnectionOwner): boolean {
    if (connection.owner !== undefined) return true;
    if (connection.ending) return false;
    if (!this.#hasRoomFor(owner)) {
      this.#end(connection, 'over_limit');
      return false;
    }
    connection.owner = owner;
    this.#strangerGone();
    this.#known += 1;
    const { session } = connection;
    session?.settings({
      initialWindowSize: STREAM_WINDOW_BYTES,
      maxConcurrentStreams: this.#options.streamsMax,
    });
    session?.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
    return true;
  }

  #strangerGone(): void {
    this.#strangers -= 1;
    if (this.#strangers > 0) return;
    clearInterval(this.#sweeping);
    this.#sweeping = undefined;
  }

  #hasRoomFor(owner: ConnectionOwner): boolean {
    const { knownMax, directMax, directEachMax } = this.#bounds;
    if (this.#known >= knownMax) return false;
    if (owner.kind === 'fleet') return true;
    const direct = [...this.#connections.values()].flatMap(({ owner: other }) =>
      other?.kind === 'direct' ? [other.name] : [],
    );
    const own = direct.filter(name => name === owner.name);
    return direct.length < directMax && own.length < directEachMax;
  }

  /**
   * Call it for a call without a token.
   * @returns false: its connection has ended
   */
  #mayCall(connection: Connection): boolean {
    if (connection.owner !== undefined) return true;
    connection.calls += 1;
    // The server still answers this call. A frequent probe must then reconnect.
    if (connection.calls === this.#bounds.strangerCallsMax) this.#end(connection, 'no_token');
    return this.#mayContinue(connection);
  }

  /** @returns false: the stranger sent too many bytes, so its connection ends */
  #mayContinue(connection: Connection): boolean {
    if (connection.owner !== undefined) return true;
    if (connection.socket.bytesRead <= this.#bounds.strangerBytesMax) return true;
    this.#end(connection, 'flood');
    return false;
  }

  /** Closes the oldest stranger of the network that has the most. */
  #makeRoom(): void {
    const open = [...this.#connections.values()].filter(({ owner, ending }) => !owner && !ending);
    if (open.length <= this.#bounds.strangersMax) return;
    const byNetwork = Map.groupBy(open, ({ network }) => network);
    let most: readonly Connection[] = [];
    for (const same of byNetwork.values()) if (same.length > most.length) most = same;
    const [oldest] = most;
    if (oldest !== undefined) this.#end(oldest, 'crowded');
  }

  #sweep(): void {
    const { tokenWaitMaxMs, probeAgeMaxMs } = this.#bounds;
    const nowMs = performance.now();
    for (const connection of this.#connections.values()) {
      if (connection.owner !== undefined || !this.#mayContinue(connection)) continue;
      const ageMaxMs = connection.probed ? probeAgeMaxMs : tokenWaitMaxMs;
      if (nowMs - connection.openedAtMs > ageMaxMs) this.#end(connection, 'no_token');
    }
  }

  #end(connection: Connection, cause: GuardCause): void {
    if (connection.ending) return;
    connection.ending = true;
    this.#options.onEnded?.(cause);
    const { socket, session } = connection;
    const end = () => socket.destroy();
    if (session === undefined || session.destroyed || cause === 'crowded') end();
    else if (cause === 'flood') {
      // Destroys the socket and not the session: a session destroyed with a code during a flood
      // never emits its close, so the server could not close either (Node 24.21).
      session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM);
      setImmediate(end);
    } else {
      session.close();
      setTimeout(end, END_GRACE_MS).unref();
    }
  }

  #endAfterEnd(stream: ServerHttp2Stream): void {
    let timer: NodeJS.Timeout | undefined;
    stream.once('finish', () => {
      if (stream.closed) return;
      timer = setTimeout(() => {
        this.#options.onEnded?.('after_end');
        stream.close(constants.NGHTTP2_NO_ERROR);
      }, this.#bounds.afterEndMaxMs);
    });
    stream.once('close', () => clearTimeout(timer));
  }
}

const OVER_LIMIT = new ContractError(
  'CALLER_OVER_LIMIT',
  'the caller has as many connections to this port as it may',
);

/**
 * Answers the pings of grpc-js while a session closes, which itself sends none: grpc-js would take
 * the peer for dead and end running calls. The silence of each call stays bounded.
 */
function pingWhileClosing(session: ServerHttp2Session): void {
  const ping = session.ping.bind(session) as (...args: unknown[]) => boolean;
  session.ping = (...args: unknown[]) => {
    if (!session.closed || session.destroyed) return ping(...args);
    const answer = args.at(-1) as PingAnswer;
    setImmediate(answer, null, 0, Buffer.alloc(0));
    return true;
  };
}

/** Equals the AuthContext that grpc-js gives to handlers. */
function authContextOf({ socket }: NonNullable<ServerHttp2Stream['session']>): AuthContext {
  if (!(socket instanceof TLSSocket) || !socket.authorized) return {};
  const certificate = socket.getPeerCertificate();
  return {
    transportSecurityType: 'ssl',
    ...(certificate.raw ? { sslPeerCertificate: certificate } : {}),
  };
}

function peerOf({ remoteAddress, remotePort }: Pick<Socket, 'remoteAddress' | 'remotePort'>) {
  return `${remoteAddress} ${remotePort}`;
}
