/** Sends frames over one end of a socket pair, and hands out those that come. */
import { type OnReadOpts, Socket, type SocketConstructorOpts } from 'node:net';
import type { BufferPool } from './buffer-pool.ts';
import { encodeFrame, type Frame, FrameReader } from './frames.ts';

/** A child's end, or its parent's, which is taken over. */
type Connection = { readonly fd: number } | { readonly pipe: Socket };

/** A malformed frame destroys the socket with a MalformedFrameError; nothing is read after it. */
export class FrameChannel<Incoming> {
  /** For its ends alone: 'error' and 'close'. */
  readonly socket: Socket;

  /** @param buffers where parts are put; undefined: in new memory */
  constructor(
    connection: Connection,
    onFrame: (frame: Frame<Incoming>) => void,
    buffers?: BufferPool,
  ) {
    const reader = new FrameReader<Incoming>(
      frame => {
        // Of what came with a frame over which the socket was destroyed nothing counts.
        if (!this.socket.destroyed) onFrame(frame);
      },
      buffers && (bytes => buffers.take(bytes)),
    );
    const onread: OnReadOpts = {
      buffer: () => reader.space(),
      callback: bytes => {
        const malformed = reader.received(bytes);
        if (malformed !== undefined) this.socket.destroy(malformed);
        return malformed === undefined;
      },
    };
    this.socket = openSocket(connection, onread);
  }

  /**
   * Queues a frame. Resolves, never rejects, when its last byte is with the kernel or the socket is
   * gone; the parts must not change before. The memory it holds is the caller's one image, bounded
   * by admission.
   */
  send(head: object, parts: readonly Uint8Array[] = []): Promise<void> {
    const pieces = encodeFrame(head, parts);
    if (!this.socket.writable) return Promise.resolve();
    return new Promise(resolve => {
      this.socket.cork();
      const last = pieces.length - 1;
      for (const [index, piece] of pieces.entries()) {
        if (index === last) this.socket.write(piece, () => resolve());
        else this.socket.write(piece);
      }
      this.socket.uncork();
    });
  }
}

function openSocket(connection: Connection, onread: OnReadOpts): Socket {
  if ('pipe' in connection) return takeOver(connection.pipe, onread);
  return new Socket({ fd: connection.fd, readable: true, writable: true, onread });
}

interface Handled {
  /** Null: it is closed. */
  _handle?: object | null;
}

/**
 * Moves a connection to a socket that reads into memory of our choice (`onread`). Node gives a
 * child's pipes as sockets that read into 64 KB of new memory each time, and has no option for
 * others: it was a third of the processor time of a node's main process. The handle under a socket
 * and the option that takes one are Node's own and not documented; Node's version is pinned, and a
 * test holds that both are there.
 * @param pipe nothing was read from it. It closes with the one that is returned, and after it.
 */
function takeOver(pipe: Socket, onread: OnReadOpts): Socket {
  const handled = pipe as Handled;
  const { _handle: handle } = handled;
  if (handle === undefined) throw new Error(`no handle under a socket of Node ${process.version}`);
  handled._handle = null;
  const options = { handle, readable: true, writable: true, onread };
  const socket = new Socket(options as SocketConstructorOpts);
  // What waits for the ends of a child's pipes, or ends them, knows the first one alone.
  socket.once('close', () => pipe.destroy());
  pipe.once('close', () => socket.destroy());
  return socket;
}
