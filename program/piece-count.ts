import type { Readable } from 'node:stream';

/** Any body may have this many. Clients that write a form in small pieces send some hundreds. */
const PIECES_FREE = 1024;
/** Least average size of the pieces beyond PIECES_FREE. HTTP libraries write 4 KiB or more. */
const PIECE_BYTES_MIN = 512;

/** Bounds pieces as well as bytes: in pieces of one byte a body costs a thousand times more. */
export class PieceCount {
  #pieces = 0;
  bytes = 0;

  /** @returns false: the body has too many pieces for its bytes */
  take(bytes: number): boolean {
    this.#pieces += 1;
    this.bytes += bytes;
    return this.#pieces <= PIECES_FREE + this.bytes / PIECE_BYTES_MIN;
  }
}

export class SmallPiecesError extends Error {
  constructor() {
    const worth = `over ${PIECES_FREE}, of less than ${PIECE_BYTES_MIN} bytes on average`;
    super(`sent a body in more pieces than its bytes are worth: ${worth}`);
  }
}

/**
 * Ends a body of too many pieces with SmallPiecesError. Counts them as they leave the socket,
 * because a reader may get several at once.
 */
export function boundPieces<Body extends Readable>(body: Body, pieces = new PieceCount()): Body {
  const push = body.push.bind(body);
  let over = false;
  body.push = (piece: Uint8Array | null, encoding?: BufferEncoding) => {
    over ||= piece !== null && !pieces.take(piece.length);
    if (!over) return push(piece, encoding);
    body.destroy(new SmallPiecesError());
    return false;
  };
  return body;
}
