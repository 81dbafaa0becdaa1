/**
 * What grpc-js has no option for, set on the http2 server beneath it:
 *
 * - The receive window. grpc-js reads `grpc-node.flow_control_window` in clients only, so a server
 *   advertises http2's 64 KiB, and 40 MB over a link of 2 ms take 2.3 s (1 MiB: 0.24 to 0.3 s,
 *   4 MiB: 0.08 to 0.23 s; Node 24). A test reads what is advertised, and what stock grpc-js does.
 * - The number of connections, and an end for those that never say a word: anyone who reaches the
 *   port could hold all places with them, without a token or a certificate. Left alone they fall
 *   to keepalive after 30 s in plain text, and to Node's handshake timeout after 120 s with TLS.
 * - An end for a Matte call whose caller neither reads nor leaves: its status waits behind the
 *   unread result for ever otherwise, since grpc-js never resets a stream.
 *
 * Memory for bytes that arrived and were not read is at most `CONNECTION_WINDOW_BYTES` a
 * connection, whatever its streams: the connection's own window bounds them together.
 */
import type { Http2Server, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import { constants } from 'node:http2';
import type { Socket } from 'node:net';
import type { Server } from '@grpc/grpc-js';
import { MatteServiceService } from '#gen/matting/v1/matte_service.ts';

export const STREAM_WINDOW_BYTES = 1024 * 1024;
export const CONNECTION_WINDOW_BYTES = 4 * 1024 * 1024;
/** Control planes hold one each; the rest are direct callers. */
export const CONNECTIONS_MAX = 256;
/** From the connection to the settings that open HTTP/2, the TLS handshake included. */
export const GREETING_WAIT_MAX_MS = 10_000;
/** Longer than the longest attempt (10 min), in which a call may be silent. */
export const MATTE_SILENCE_MAX_MS = 15 * 60_000;

export interface Http2Bounds {
  readonly matteSilenceMaxMs?: number;
  readonly greetingWaitMaxMs?: number;
}

type CreateHttp2Server = (...args: unknown[]) => Http2Server;

/**
 * Must be called before the server is bound.
 * @throws Error when grpc-js no longer makes its http2 servers where this looks for it.
 */
export function applyHttp2Limits(server: Server, bounds: Http2Bounds = {}): void {
  const { matteSilenceMaxMs = MATTE_SILENCE_MAX_MS } = bounds;
  // Private in the types, an ordinary method in 1.14: bindAsync makes every http2 server with it.
  const internals = server as unknown as { createHttp2Server?: CreateHttp2Server };
  const create = internals.createHttp2Server;
  if (typeof create !== 'function') {
    throw new Error(
      'grpc-js has no Server.createHttp2Server any more: see whether it has an option for the ' +
        "server's receive window now, and mend inference-node/src/grpc/http2-limits.ts",
    );
  }
  internals.createHttp2Server = (...args) => {
    const http2Server = create.apply(server, args);
    http2Server.updateSettings({ initialWindowSize: STREAM_WINDOW_BYTES });
    http2Server.maxConnections = CONNECTIONS_MAX;
    endSilentConnections(http2Server, bounds.greetingWaitMaxMs ?? GREETING_WAIT_MAX_MS);
    http2Server.on('session', (session: ServerHttp2Session) => {
      session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
    });
    http2Server.on('stream', (stream: ServerHttp2Stream, headers) => {
      if (headers[constants.HTTP2_HEADER_PATH] === MatteServiceService.matte.path) {
        stream.setTimeout(matteSilenceMaxMs, () => stream.close(constants.NGHTTP2_CANCEL));
      }
    });
    return http2Server;
  };
}

function endSilentConnections(http2Server: Http2Server, waitMaxMs: number): void {
  /** By the peer's address: of TLS, the session's socket is another object than the connection. */
  const silent = new Map<string, NodeJS.Timeout>();
  http2Server.on('connection', (socket: Socket) => {
    const peer = peerOf(socket);
    const timer = setTimeout(() => socket.destroy(), waitMaxMs).unref();
    silent.set(peer, timer);
    // Else those that come and go are kept until their time is over, and are taken for the next one
    // of the same address.
    socket.once('close', () => {
      clearTimeout(timer);
      if (silent.get(peer) === timer) silent.delete(peer);
    });
  });
  http2Server.on('session', (session: ServerHttp2Session) => {
    const peer = peerOf(session.socket);
    session.once('remoteSettings', () => {
      clearTimeout(silent.get(peer));
      silent.delete(peer);
    });
  });
}

function peerOf({ remoteAddress, remotePort }: Pick<Socket, 'remoteAddress' | 'remotePort'>) {
  return `${remoteAddress} ${remotePort}`;
}
