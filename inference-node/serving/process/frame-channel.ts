/** Sends and receives frames over a socket. */
import { type OnReadOpts, Socket, type SocketConstructorOpts } from 'node:net';
import type { BufferPool } from './buffer-pool.ts';
import { FrameReader } from './frame-reader.ts';
import { encodeFrame, type Frame } from './frames.ts';

type Connection = { readonly fd: number } | { readonly pipe: Socket };

interface ReadingOptions {
  readonly buffers?: Pick<BufferPool, 'take'> | undefined;
  readonly partsBytesMax?: number | undefined;
}

/** A malformed frame destroys the socket with a MalformedFrameError; nothing is read after it. */
export class FrameChannel<Incoming> {
  readonly socket: Socket;

  constructor(
    connection: Connection,
    onFrame: (frame: Frame<Incoming>) => void,
    { buffers, partsBytesMax }: ReadingOptions = {},
  ) {
    const reader = new FrameReader<Incoming>(
      frame => {
        // A frame that came with the one over which the socket was destroyed does not count.
        if (!this.socket.destroyed) onFrame(frame);
      },
      buffers && (bytes => buffers.take(bytes)),
      partsBytesMax,
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

  /** Resolves, never rejects, once the last byte is with the kernel or the socket is gone. */
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
 * Moves a connection to a socket that reads into memory of our choice (`onread`): Node's sockets of
 * a child's pipes read into 64 KB of new memory, a third of a node's main process. The handle and
 * the option are not documented; Node's version is pinned, and a test holds both.
 */
function takeOver(pipe: Socket, onread: OnReadOpts): Socket {
  const handled = pipe as Handled;
  const { _handle: handle } = handled;
  if (handle === undefined) throw new Error(`no handle under a socket of Node ${process.version}`);
  handled._handle = null;
  const options = { handle, readable: true, writable: true, onread };
  const socket = new Socket(options as SocketConstructorOpts);
  // Code that waits for the ends of a child's pipes, or ends them, knows the first socket alone.
  socket.once('close', () => pipe.destroy());
  pipe.once('close', () => socket.destroy());
  return socket;
}
