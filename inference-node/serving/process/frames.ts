/**
 * Frames over a socket pair: a JSON head and binary parts.
 *
 * Little-endian: u32 head bytes, u32 number of parts, u32 bytes of each part, head, parts. Node's
 * channel of fork takes 2.5 times as long.
 */

export interface Frame<Head> {
  readonly head: Head;
  /** The receiver owns them: each is a buffer from the reader's `allocate`. */
  readonly parts: readonly Buffer[];
}

/** Enough for the most hints: 170 KB. */
export const HEAD_BYTES_MAX = 256 * 1024;
/** A finish sends the mattes of at most eight models, of up to three views each. */
export const PARTS_MAX = 24;
export const PARTS_BYTES_MAX = 2 * 1024 ** 3;

export const FIXED_BYTES = 8;
export const LENGTH_BYTES = 4;

/** A bug, or a corrupted child. */
export class MalformedFrameError extends Error {
  constructor(detail: string, cause?: unknown) {
    super(`malformed frame: ${detail}`, { cause });
    this.name = 'MalformedFrameError';
  }
}

export function encodeFrame(head: object, parts: readonly Uint8Array[]): Uint8Array[] {
  const json = Buffer.from(JSON.stringify(head));
  const partsBytes = parts.reduce((sum, part) => sum + part.length, 0);
  if (json.length > HEAD_BYTES_MAX || parts.length > PARTS_MAX || partsBytes > PARTS_BYTES_MAX) {
    throw new MalformedFrameError(`over its bounds before it was sent (${partsBytes} bytes)`);
  }
  const lengths = Buffer.alloc(FIXED_BYTES + LENGTH_BYTES * parts.length);
  lengths.writeUInt32LE(json.length, 0);
  lengths.writeUInt32LE(parts.length, 4);
  for (const [index, part] of parts.entries()) {
    lengths.writeUInt32LE(part.length, FIXED_BYTES + LENGTH_BYTES * index);
  }
  return [lengths, json, ...parts];
}
