/**
 * Bounds what strangers cost a gRPC port, beyond the options of grpc-js, on the http2 servers
 * beneath it. Until one of its calls has shown a known token or certificate, a connection is a
 * stranger's. Strangers have connections of their own and take none from known callers:
 *
 * | bound                  | of whom              | what happens there                             |
 * |------------------------|----------------------|------------------------------------------------|
 * | strangersMax           | all strangers        | the network with most of them loses its oldest |
 * | tokenWaitMaxMs         | a stranger           | it is closed                                   |
 * | probeAgeMaxMs          | a stranger           | the same, where it made calls open to all      |
 * | STRANGER_WINDOW_BYTES  | a call of a stranger | more of it waits until it has shown a token    |
 * | strangerBytesMax       | a stranger           | it is closed: it floods                        |
 * | strangerCallsMax       | a stranger           | it is asked to connect again                   |
 * | STRANGER_STREAMS_MAX   | a stranger           | a call more waits for another's end            |
 * | knownMax, directMax,   | who is known         | the newcomer's call is refused, its connection |
 * | directEachMax          |                      | closed                                         |
 * | HEADER_LIST_BYTES_MAX  | metadata of a call   | the call is reset                              |
 * | MESSAGE_BYTES_SMALL    | messages, but of     | the call is refused by what it announces; if   |
 * |                        | large methods        | compressed by a stranger, too                  |
 * | HEADER_BYTES_MAX       | the first of a large | the same                                       |
 * |                        | method, who is known |                                                |
 * | HEADERS_BYTES_MAX      | such first ones that | the call is refused                            |
 * |                        | are not whole, of a  |                                                |
 * |                        | direct connection    |                                                |
 * | firstMessageWaitMaxMs  | the first of a call, | the call is refused                            |
 * |                        | but of large methods |                                                |
 * | afterEndMaxMs          | an answered call     | it is closed, though its caller goes on        |
 *
 * The newest stranger is never the one to go, so who has a token gets as far as showing it: with
 * places for 512, others of the same network would have to connect 5,000 times a second to be
 * faster than one that needs 100 ms. Floods of PING, SETTINGS, RST_STREAM and CONTINUATION are
 * bounded by nghttp2 itself for all, by `strangerBytesMax` for strangers.
 *
 * Who is known gets wide receive windows, for which grpc-js is entered at a private method: it
 * reads `grpc-node.flow_control_window` in clients only, so its servers advertise http2's 64 KiB,
 * and 40 MB over a link of 2 ms take 2.3 s (1 MiB: 0.24 to 0.3 s, 4 MiB: 0.08 to 0.23 s; Node 24).
 * A test reads what is advertised, and what stock grpc-js does.
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
 * The bytes that a call can send before its caller has shown a token. gRPC's clients read a
 * server's settings before their first call, so one that streams a file without waiting sends this
 * much of it, and its refusal finds it. It is two messages of the methods for all.
 */
const STRANGER_WINDOW_BYTES = 2 * MESSAGE_BYTES_SMALL;
const HEADER_LIST_BYTES_MAX = 16 * 1024;
const LAST_STREAM_ID_MAX = 2 ** 31 - 1;

/** The owner of a known connection: the fleet, or the direct caller of that name. */
export type ConnectionOwner =
  | { readonly kind: 'fleet' }
  | { readonly kind: 'direct'; readonly name: string };

/** Why something was ended here; a label of metrics. */
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
  /** Names the caller of a call. undefined: the caller is unknown. */
  readonly identify: (metadata: Metadata, auth: AuthContext) => ConnectionOwner | undefined;
  /** The error for unknown callers before a handler sees them. Absent: handlers judge. */
  readonly unknown?: ContractError;
  /** Calls at once of a connection that has shown a token. */
  readonly streamsMax: number;
  /** Paths of methods that are open to all and keep a connection for longer. */
  readonly isOpenPath?: (path: string) => boolean;
  /** Paths of methods whose messages but the first only the server's own options bound. */
  readonly isLargePath?: (path: string) => boolean;
  /** The guard resets a call of that path after such a silence both ways. undefined: never. */
  readonly silenceMaxMsOf?: (path: string) => number | undefined;
  /**
   * At this age, give or take 10 %, a connection that is not the fleet's is asked to make another:
   * its calls finish. Absent: never.
   */
  readonly askedAgeMs?: number | undefined;
  /** An operator should see it: a connection or a stream was ended at a bound. */
  readonly onEnded?: ((cause: GuardCause) => void) | undefined;
  readonly bounds: GuardBounds;
}

type StreamListener = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void;
type PingAnswer = (error: null, ms: number, payload: Buffer) => void;
type CreateHttp2Server = (...args: unknown[]) => Http2Server;

/**
 * Must be called before the server is bound.
 * @throws Error when grpc-js no longer makes its http2 servers in the expected place.
 */
export function guardGrpcServer(server: Server, options: GrpcGuardOptions): GrpcGuard {
  // grpc-js has no option for what is set here, and none that gives a way to its http2 servers. The
  // method is private in the types, and bindAsync of 1.14 makes every http2 server with it.
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

/** Interval at which strangers' ages and bytes are checked; bytes also with each call. */
const SWEEP_INTERVAL_MS = 200;
/** Between asking a connection to end and ending it. */
const END_GRACE_MS = 1000;

interface Connection {
  readonly socket: Socket;
  readonly network: string;
  readonly openedAtMs: number;
  session: ServerHttp2Session | undefined;
  owner: ConnectionOwner | undefined;
  /** Made a call that is open to all. */
  probed: boolean;
  calls: number;
  /** Large headers that are not whole yet. */
  readonly headers: { bytes: number };
  ending: boolean;
}

export class GrpcGuard {
  readonly #options: GrpcGuardOptions;
  readonly #bounds: GuardBounds;
  /**
   * Connections by the peer's address and port, in the order in which they came: with TLS, the
   * session's socket is another object than the connection's.
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

  /** Open connections that have shown no token. */
  get strangers(): number {
    return this.#strangers;
  }

  /** Open connections that have shown one. */
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
    // Before http2's own listener, which makes the session at once in plain text.
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
      // A stream without a handler needs a listener too: it may have failed while its headers were
      // on their way up, and a failure without a listener ends the process.
      stream.on('error', () => undefined);
      const session = stream.session as ServerHttp2Session | undefined;
      // Undefined where its connection ended while the headers were on their way up.
      const connection = session && this.#bySession.get(session);
      if (connection === undefined || stream.destroyed) return;
      this.#stream(stream, headers, { connection, inner });
    });
    return http2Server;
  }

  /**
   * In place of grpc.max_connection_age_ms, which spares nobody: a client of grpc-js that is asked
   * ends its calls at its next keepalive (grpc/grpc-node#3068), and a control plane's are long.
   */
  #askAtAge(connection: Connection, session: ServerHttp2Session): void {
    const { askedAgeMs } = this.#options;
    if (askedAgeMs === undefined) return;
    const ask = () => {
      if (connection.owner?.kind === 'fleet' || session.closed) return;
      session.goaway(constants.NGHTTP2_NO_ERROR, LAST_STREAM_ID_MAX);
      session.close();
    };
    const timer = setTimeout(ask, askedAgeMs * (0.9 + Math.random() / 5)).unref();
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
    // After grpc-js, whose listeners set the stream's pace.
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
      // A control plane may begin as many calls as a node takes.
      headers: owner?.kind === 'direct' ? connection.headers : undefined,
      firstMessageWaitMaxMs: this.#bounds.firstMessageWaitMaxMs,
      onFirst: () => {
        if (isOpen) connection.probed = true;
      },
      onFault: fault => this.#options.onEnded?.(fault),
    });
    // Besides its own bytes a frame keeps those that came with it.
    if (!isKnown) stream.prependListener('data', () => void this.#mayGoOn(connection));
  }

  /** A new connection, before its first byte is read. */
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
      // The next one may have its address.
      if (this.#connections.get(peer) === connection) this.#connections.delete(peer);
      if (connection.owner === undefined) this.#strangerGone();
      else this.#known -= 1;
    });
    if (this.#strangers > this.#bounds.strangersMax) this.#makeRoom();
    const intervalMs = Math.min(SWEEP_INTERVAL_MS, this.#bounds.tokenWaitMaxMs / 4);
    this.#sweeping ??= setInterval(() => this.#sweep(), intervalMs).unref();
  }

  /** A call of who is known; false: they have no place left, and the connection ends. */
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

  /** Sweeps concern strangers alone: without one the process is not woken. */
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

  /** A call without a token; false where its connection ends before it. */
  #mayCall(connection: Connection): boolean {
    if (connection.owner !== undefined) return true;
    connection.calls += 1;
    // The call is answered still: a probe that comes often must connect again.
    if (connection.calls === this.#bounds.strangerCallsMax) this.#end(connection, 'no_token');
    return this.#mayGoOn(connection);
  }

  /** False where a stranger sends too many bytes: its connection ends. */
  #mayGoOn(connection: Connection): boolean {
    if (connection.owner !== undefined) return true;
    if (connection.socket.bytesRead <= this.#bounds.strangerBytesMax) return true;
    this.#end(connection, 'flood');
    return false;
  }

  /** Ends the oldest stranger of the network that has most of them, where there are too many. */
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
      if (connection.owner !== undefined || !this.#mayGoOn(connection)) continue;
      const ageMaxMs = connection.probed ? probeAgeMaxMs : tokenWaitMaxMs;
      if (nowMs - connection.openedAtMs > ageMaxMs) this.#end(connection, 'no_token');
    }
  }

  /** Sends a GOAWAY if the connection speaks HTTP/2, and ends it soon, whatever the peer does. */
  #end(connection: Connection, cause: GuardCause): void {
    if (connection.ending) return;
    connection.ending = true;
    this.#options.onEnded?.(cause);
    const { socket, session } = connection;
    const end = () => socket.destroy();
    if (session === undefined || session.destroyed || cause === 'crowded') end();
    else if (cause === 'flood') {
      // Ends the socket, not the session: destroyed with a code, a session under a flood never
      // tells its server that it closed, which then cannot close either (Node 24.21).
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
 * A session that closes sends no ping, and grpc-js takes that for a peer that is gone: it would cut
 * the calls under way at its next keepalive. The silence of each such call stays bounded.
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

/** Makes what grpc-js makes for the handler of a call. */
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
