/**
 * Node emits each chunk (RFC 9112 section 7.1) separately. These functions gather small chunks, and
 * close the connection of a caller that sends too many for its bytes.
 */
import { IncomingMessage, type Server } from 'node:http';
import { PieceCount } from '../piece-count.ts';

/** Gathers chunks up to this size, or until the next tick. Larger chunks pass through. */
const GATHERED_BYTES = 16 * 1024;

/** Use it as the server's option `IncomingMessage`. */
export class GatheringMessage extends IncomingMessage {
  /** Receives each chunk instead of the stream, and null at the end. */
  gather: ((chunk: Buffer | null) => boolean) | undefined;

  /** Node's parser calls it for each chunk, and with null at the end. */
  override push(chunk: Buffer | null): boolean {
    return this.gather === undefined ? super.push(chunk) : this.gather(chunk);
  }

  pushOn(chunk: Buffer | null): boolean {
    return super.push(chunk);
  }
}

/** @param server must use GatheringMessage */
export function boundChunks(server: Server, onEnded?: (cause: 'small_chunks') => void): void {
  server.prependListener('request', (request: IncomingMessage) => {
    if (request.headers['transfer-encoding'] === undefined) return;
    if (!(request instanceof GatheringMessage))
      throw new Error('the server of this port does not make its requests of GatheringMessage');
    gatherChunks(request, onEnded);
  });
}

function gatherChunks(
  request: GatheringMessage,
  onEnded: ((cause: 'small_chunks') => void) | undefined,
): void {
  const push = request.pushOn.bind(request);
  const pieces = new PieceCount();
  let over = false;
  let gathered = Buffer.alloc(0);
  let gatheredBytes = 0;
  const flush = () => {
    if (gatheredBytes === 0) return;
    push(gathered.subarray(0, gatheredBytes));
    gathered = Buffer.alloc(0);
    gatheredBytes = 0;
  };
  request.gather = (chunk: Buffer | null) => {
    // After we destroyed the socket, Node still emits the rest of its read, perhaps with the end.
    if (over) return false;
    if (chunk === null) {
      flush();
      return push(null);
    }
    over = !pieces.take(chunk.length);
    if (over) {
      onEnded?.('small_chunks');
      request.socket.destroy();
      return false;
    }
    if (gatheredBytes + chunk.length > GATHERED_BYTES) flush();
    if (chunk.length > GATHERED_BYTES) return push(chunk);
    if (gatheredBytes === 0) {
      gathered = Buffer.allocUnsafe(GATHERED_BYTES);
      setImmediate(flush);
    }
    gathered.set(chunk, gatheredBytes);
    gatheredBytes += chunk.length;
    return request.readableLength + gatheredBytes < request.readableHighWaterMark;
  };
}
