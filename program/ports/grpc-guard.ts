/**
 * What a gRPC port of either program costs whom it does not know, and what grpc-js has no option
 * for; set on the http2 servers beneath it. Until a connection has shown a known token or
 * certificate on one of its calls it is a stranger's:
 *
 * | what                    | a stranger's                       | after a token                   |
 * |-------------------------|------------------------------------|---------------------------------|
 * | its connection          | connection-places.ts               | stays                           |
 * | calls at once           | STRANGER_STREAMS_MAX               | those of the server's options   |
 * | bytes sent ahead        | HTTP/2's 64 KiB                    | the windows below               |
 * | a message               | MESSAGE_BYTES_SMALL, uncompressed  | the same, but for large methods |
 * | the first message       | firstMessageWaitMaxMs              | the same, but for large methods |
 * | metadata                | HEADER_LIST_BYTES_MAX              | the same                        |
 * | a call that we ended    | afterEndMaxMs                      | the same                        |
 *
 * The windows are why this file exists: grpc-js reads `grpc-node.flow_control_window` in clients
 * only, so its servers advertise http2's 64 KiB, and 40 MB over a link of 2 ms take 2.3 s (1 MiB:
 * 0.24 to 0.3 s, 4 MiB: 0.08 to 0.23 s; Node 24). A test reads what is advertised, and what stock
 * grpc-js does. Floods of PING, SETTINGS, RST_STREAM and CONTINUATION are bounded by nghttp2 itself
 * for all, by `strangerBytesMax` for strangers.
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
import { ContractError } from '#contract/errors.ts';
import { toStatus } from '#contract/grpc-status.ts';
import {
  type ConnectionOwner,
  ConnectionPlaces,
  connectionsMaxOf,
  PLACE_BOUNDS,
  PLACE_CAUSES,
  type PlaceBounds,
} from './connection-places.ts';
import { boundMessages, MESSAGE_FAULTS, type MessageFault } from './message-bound.ts';

export const STREAM_WINDOW_BYTES = 1024 * 1024;
export const CONNECTION_WINDOW_BYTES = 4 * 1024 * 1024;
/** Messages of all methods but those that carry files. */
export const MESSAGE_BYTES_SMALL = 4096;
export const STRANGER_STREAMS_MAX = 8;
export const HEADER_LIST_BYTES_MAX = 16 * 1024;

export interface GuardBounds extends PlaceBounds {
  /** From a call's headers to the end of its first message. */
  readonly firstMessageWaitMaxMs: number;
  /** For callers that go on sending, or never end their side, when their answer is complete. */
  readonly afterEndMaxMs: number;
}

export const GUARD_BOUNDS: GuardBounds = {
  ...PLACE_BOUNDS,
  firstMessageWaitMaxMs: 10_000,
  afterEndMaxMs: 5000,
};

/** Why something was ended here; a label of metrics. */
export const GUARD_CAUSES = [...PLACE_CAUSES, ...MESSAGE_FAULTS, 'after_end'] as const;
export type GuardCause = (typeof GUARD_CAUSES)[number];

type AuthContext = ReturnType<ServerInterceptingCall['getAuthContext']>;

export interface GrpcGuardOptions {
  /** Who makes a call; undefined for an unknown caller. */
  readonly identify: (metadata: Metadata, auth: AuthContext) => ConnectionOwner | undefined;
  /** Calls at once of a connection that has shown a token. */
  readonly streamsMax: number;
  /** Paths of methods that are open to all and keep a connection for longer. */
  readonly isOpenPath?: (path: string) => boolean;
  /** Paths of methods whose messages but the first only the server's own options bound. */
  readonly isLargePath?: (path: string) => boolean;
  /** After this without a byte either way a call of that path is reset; undefined: never. */
  readonly silenceMaxMsOf?: (path: string) => number | undefined;
  /** An operator should see it: a connection or a stream was ended at a bound. */
  readonly onEnded?: ((cause: GuardCause) => void) | undefined;
  /** GUARD_BOUNDS where absent. */
  readonly bounds?: Partial<GuardBounds> | undefined;
}

export interface GrpcGuard {
  /** Connections that are open now. */
  readonly connections: Pick<ConnectionPlaces, 'strangers' | 'known'>;
}

type StreamListener = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void;
type CreateHttp2Server = (...args: unknown[]) => Http2Server;

/**
 * Must be called before the server is bound.
 * @throws Error when grpc-js no longer makes its http2 servers in the expected place.
 */
export function guardGrpcServer(server: Server, options: GrpcGuardOptions): GrpcGuard {
  // Private in the types, an ordinary method in 1.14: bindAsync makes every http2 server with it.
  const internals = server as unknown as { createHttp2Server?: CreateHttp2Server };
  const create = internals.createHttp2Server;
  if (typeof create !== 'function') {
    throw new Error(
      'grpc-js has no Server.createHttp2Server any more: see whether it has options for the ' +
        "server's receive window and for strangers now, and mend program/ports/grpc-guard.ts",
    );
  }
  const guard = new Guard(options);
  internals.createHttp2Server = (...args) => guard.watch(create.apply(server, args));
  return { connections: guard.places };
}

class Guard {
  readonly places: ConnectionPlaces;
  readonly #options: GrpcGuardOptions;
  readonly #bounds: GuardBounds;
  readonly #ended: (cause: GuardCause) => void;

  constructor(options: GrpcGuardOptions) {
    this.#options = options;
    this.#bounds = { ...GUARD_BOUNDS, ...options.bounds };
    this.#ended = cause => options.onEnded?.(cause);
    this.places = new ConnectionPlaces(this.#bounds, this.#ended);
  }

  watch(http2Server: Http2Server): Http2Server {
    http2Server.updateSettings({
      maxConcurrentStreams: STRANGER_STREAMS_MAX,
      maxHeaderListSize: HEADER_LIST_BYTES_MAX,
    });
    http2Server.maxConnections = connectionsMaxOf(this.#bounds);
    // Before http2's own listener, which makes the session at once in plain text.
    http2Server.prependListener('connection', (socket: Socket) => this.places.opened(socket));
    http2Server.on('session', (session: ServerHttp2Session) => this.places.greeted(session));
    const inner = http2Server.listeners('stream') as StreamListener[];
    http2Server.removeAllListeners('stream');
    http2Server.on('stream', (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) =>
      this.#stream(stream, headers, inner),
    );
    return http2Server;
  }

  #stream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, inner: StreamListener[]): void {
    // Also for a stream without a handler: it may have failed while its headers were on their way
    // up, and a failure without a listener ends the process.
    stream.on('error', () => undefined);
    const session = stream.session as ServerHttp2Session | undefined;
    // Its connection ended while the headers were on their way up.
    if (session === undefined || stream.destroyed) return;
    const owner = this.#options.identify(
      Metadata.fromHttp2Headers(headers),
      authContextOf(session),
    );
    if (this.#mayEnter(stream, session, owner)) {
      for (const listener of inner) listener(stream, headers);
      this.#bound(stream, session, String(headers[constants.HTTP2_HEADER_PATH]), owner);
    }
  }

  /** False where the stream is over, or its connection about to be. */
  #mayEnter(
    stream: ServerHttp2Stream,
    session: ServerHttp2Session,
    owner: ConnectionOwner | undefined,
  ): boolean {
    if (owner === undefined) return this.places.called(session);
    const first = this.places.identified(session, owner);
    if (first === undefined) refuse(stream, OVER_LIMIT);
    else if (first) this.#openWide(session);
    return first !== undefined;
  }

  /** After grpc-js, whose listeners set the stream's pace. */
  #bound(
    stream: ServerHttp2Stream,
    session: ServerHttp2Session,
    path: string,
    owner: ConnectionOwner | undefined,
  ): void {
    const { isOpenPath, isLargePath, silenceMaxMsOf } = this.#options;
    this.#endAfterEnd(stream);
    const silenceMaxMs = silenceMaxMsOf?.(path);
    if (silenceMaxMs !== undefined) {
      stream.setTimeout(silenceMaxMs, () => stream.close(constants.NGHTTP2_CANCEL));
    }
    const known = owner !== undefined;
    const onFirst = () => {
      if (isOpenPath?.(path)) this.places.probed(session);
    };
    const large = known && (isLargePath?.(path) ?? false);
    this.#boundMessages(stream, { known, large }, onFirst);
    // Besides its own bytes a frame keeps those that came with it.
    if (!known) stream.prependListener('data', () => void this.places.mayGoOn(session));
  }

  #openWide(session: ServerHttp2Session): void {
    session.settings({
      initialWindowSize: STREAM_WINDOW_BYTES,
      maxConcurrentStreams: this.#options.streamsMax,
    });
    session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
  }

  #boundMessages(
    stream: ServerHttp2Stream,
    { known, large }: { known: boolean; large: boolean },
    onFirst: () => void,
  ): void {
    const bounds = {
      messageBytesMax: MESSAGE_BYTES_SMALL,
      compressionAllowed: known,
      firstMessageWaitMaxMs: large ? undefined : this.#bounds.firstMessageWaitMaxMs,
      firstOnly: large,
    };
    const onFault = (fault: MessageFault) => {
      this.#ended(fault);
      refuse(stream, FAULTS[fault]);
    };
    boundMessages(stream, bounds, { onFirst, onFault });
  }

  #endAfterEnd(stream: ServerHttp2Stream): void {
    let timer: NodeJS.Timeout | undefined;
    stream.once('finish', () => {
      if (stream.closed) return;
      timer = setTimeout(() => {
        this.#ended('after_end');
        stream.close(constants.NGHTTP2_NO_ERROR);
      }, this.#bounds.afterEndMaxMs);
    });
    stream.once('close', () => clearTimeout(timer));
  }
}

const FAULTS: Readonly<Record<MessageFault, ContractError>> = {
  message_too_large: new ContractError(
    'INVALID_REQUEST',
    `a message of this method has more than ${MESSAGE_BYTES_SMALL} bytes`,
  ),
  message_compressed: new ContractError(
    'INVALID_REQUEST',
    'compressed messages are taken from known callers only',
  ),
  message_late: new ContractError('CALL_DEADLINE_EXCEEDED', 'no whole message came in time'),
};

const OVER_LIMIT = new ContractError(
  'CALLER_OVER_LIMIT',
  'the caller has as many connections to this port as it may',
);

/** Ends a stream with its status where none of its answer has left, with a reset otherwise. */
function refuse(stream: ServerHttp2Stream, error: ContractError): void {
  if (stream.destroyed || stream.closed) return;
  if (stream.headersSent) {
    stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    return;
  }
  const { code, details, metadata } = toStatus(error);
  const answer = {
    [constants.HTTP2_HEADER_STATUS]: 200,
    [constants.HTTP2_HEADER_CONTENT_TYPE]: 'application/grpc+proto',
    'grpc-status': code,
    'grpc-message': encodeURI(details),
    ...metadata.toHttp2Headers(),
  };
  stream.respond(answer, { endStream: true });
  stream.close(constants.NGHTTP2_NO_ERROR);
}

/** As grpc-js makes it for the handler of a call. */
function authContextOf({ socket }: NonNullable<ServerHttp2Stream['session']>): AuthContext {
  if (!(socket instanceof TLSSocket) || !socket.authorized) return {};
  const certificate = socket.getPeerCertificate();
  return {
    transportSecurityType: 'ssl',
    ...(certificate.raw ? { sslPeerCertificate: certificate } : {}),
  };
}
