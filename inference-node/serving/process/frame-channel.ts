import { type OnReadOpts, Socket, type SocketConstructorOpts } from 'node:net';
import type { BufferPool } from './buffer-pool.ts';
import { FrameReader } from './frame-reader.ts';
import { encodeFrame, type Frame } from './frames.ts';

type Connection = { readonly fd: number } | { readonly pipe: Socket };

interface ReadingOptions {
  readonly buffers?: Pick<BufferPool, 'take'> | undefined;
  readonly partsBytesMax?: number | undefined;
}

export class FrameChannel<Incoming> {
  readonly socket: Socket;

  constructor(
    connection: Connection,
    onFrame: (frame: Frame<Incoming>) => void,
    { buffers, partsBytesMax }: ReadingOptions = {},
  ) {
    const reader = new FrameReader<Incoming>(
      frame => {
        // Ignores a frame that came with the one that destroyed the socket.
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
    this.socket =
      'pipe' in connection
        ? takeOver(connection.pipe, onread)
        : new Socket({ fd: connection.fd, readable: true, writable: true, onread });
  }

  /** Resolves, never rejects, once the kernel has the last byte or the socket is gone. */
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

interface Handled {
  _handle?: object | null;
}

/**
 * Moves a connection to a socket that reads into our memory (`onread`). Node's sockets of a child's
 * pipes read into new buffers of 64 KB, which cost a third of a node's main process. Handle and
 * option are undocumented: Node's version is pinned, and a test holds both.
 */
function takeOver(pipe: Socket, onread: OnReadOpts): Socket {
  const handled = pipe as Handled;
  const { _handle: handle } = handled;
  if (handle === undefined) throw new Error(`no handle under a socket of Node ${process.version}`);
  handled._handle = null;
  const options = { handle, readable: true, writable: true, onread };
  const socket = new Socket(options as SocketConstructorOpts);
  // Code that waits for a child's pipes, or ends them, knows only the first socket.
  socket.once('close', () => pipe.destroy());
  pipe.once('close', () => socket.destroy());
  return socket;
}
