/** Sends frames over one end of a socket pair, and hands out those that come. */
import { type OnReadOpts, Socket } from 'node:net';
import type { BufferPool } from './buffer-pool.ts';
import { encodeFrame, type Frame, FrameReader } from './frames.ts';
import { takeOver } from './take-over.ts';

/** A child's end, or its parent's, which is taken over. */
export type Connection = { readonly fd: number } | { readonly pipe: Socket };

export interface FrameChannelOptions<Incoming> {
  readonly onFrame: (frame: Frame<Incoming>) => void;
  /** Where parts are put. Undefined: in new memory. */
  readonly buffers?: BufferPool | undefined;
}

/** A malformed frame destroys the socket with a MalformedFrameError; nothing is read after it. */
export class FrameChannel<Incoming> {
  /** For its ends alone: 'error' and 'close'. */
  readonly socket: Socket;

  constructor(connection: Connection, { onFrame, buffers }: FrameChannelOptions<Incoming>) {
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
