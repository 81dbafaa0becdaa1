import type { Readable } from 'node:stream';

/** Pieces that every body may have; clients that write a form in small pieces send some hundreds. */
const PIECES_FREE = 1024;
/** The bytes that each further piece needs on average: HTTP libraries write 4 KiB and more. */
const PIECE_BYTES_MIN = 512;

/**
 * Counts the pieces in which a body comes. Each costs microseconds, however small it is: in pieces
 * of one byte a body costs a thousand times what its bytes cost, and no bound of bytes counts them.
 */
export class PieceCount {
  #pieces = 0;
  bytes = 0;

  /** False: the body has more pieces than its bytes are worth. */
  take(bytes: number): boolean {
    this.#pieces += 1;
    this.bytes += bytes;
    return this.#pieces <= PIECES_FREE + this.bytes / PIECE_BYTES_MIN;
  }
}

/** A body came in more pieces than its bytes are worth. */
export class SmallPiecesError extends Error {
  constructor() {
    const worth = `over ${PIECES_FREE}, of less than ${PIECE_BYTES_MIN} bytes on average`;
    super(`sent a body in more pieces than its bytes are worth: ${worth}`);
  }
}

/**
 * Ends such a body with SmallPiecesError. It counts the pieces as they come from the socket: who
 * reads them may get several in one.
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
