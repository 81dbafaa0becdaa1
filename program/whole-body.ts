import type { Readable } from 'node:stream';
import { boundPieces } from './piece-count.ts';

/** @throws `tooLong()` above `bytesMax`; SmallPiecesError. Both end the stream. */
export async function wholeBody(
  body: Readable,
  bytesMax: number,
  tooLong: () => Error,
  onBytes?: (received: number) => void,
): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of boundPieces(body)) {
    bytes += piece.length;
    if (bytes > bytesMax) throw tooLong();
    parts.push(piece);
    onBytes?.(bytes);
  }
  return Buffer.concat(parts, bytes);
}
