/**
 * Bodies in the chunked transfer coding (RFC 9112 section 7.1). Node hands on each chunk by itself,
 * which costs microseconds however small it is: in chunks of one byte a body costs a thousand times
 * what its bytes cost, and no bound of bytes counts them. So small chunks are gathered, and
 * counted: who sends more of them than bytes are worth loses the connection, as with requests sent
 * ahead.
 */
import type { IncomingMessage, Server } from 'node:http';

/** Of a body; clients that write a form in small pieces need some hundreds. */
export const CHUNKS_FREE = 1024;
/** Beyond those one chunk for so many bytes: HTTP libraries write 4 KiB and more. */
export const CHUNK_BYTES_MIN = 512;
/** What is gathered, up to the next turn of the loop. A larger chunk goes on as it is. */
const GATHERED_BYTES = 16 * 1024;

/**
 * Stands before the listeners for requests that are there when it is called.
 * @param onEnded called for a connection that was ended for it.
 */
export function boundChunks(server: Server, onEnded?: () => void): void {
  server.prependListener('request', (request: IncomingMessage) => {
    if (request.headers['transfer-encoding'] !== undefined) gatherChunks(request, onEnded);
  });
}

/** Replaces what Node's parser calls for each chunk, and for the end with null. */
function gatherChunks(request: IncomingMessage, onEnded?: () => void): void {
  const push = request.push.bind(request);
  let chunks = 0;
  let bytes = 0;
  let over = false;
  let gathered = Buffer.alloc(0);
  let gatheredBytes = 0;
  const flush = () => {
    if (gatheredBytes === 0) return;
    push(gathered.subarray(0, gatheredBytes));
    gathered = Buffer.alloc(0);
    gatheredBytes = 0;
  };
  request.push = (chunk: Buffer | null) => {
    // What is left of a read from the socket is still handed on, and may hold the body's end.
    if (over) return false;
    if (chunk === null) {
      flush();
      return push(null);
    }
    chunks += 1;
    bytes += chunk.length;
    over = chunks > CHUNKS_FREE + bytes / CHUNK_BYTES_MIN;
    if (over) {
      onEnded?.();
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
