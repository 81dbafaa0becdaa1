/** Sends a body of one-byte chunks. */
import type { ServerResponse } from 'node:http';

/** More than any body may have. */
const PIECES = 20_000;
const PIECES_A_TURN = 500;

export function drip(response: ServerResponse, pieces = PIECES): void {
  response.socket?.setNoDelay(true);
  response.writeHead(200, { 'content-type': 'image/png' });
  response.flushHeaders();
  let sent = 0;
  const send = () => {
    if (response.destroyed) return;
    for (let end = sent + PIECES_A_TURN; sent < end; sent += 1) response.write('x');
    if (sent < pieces) setImmediate(send);
    else response.end();
  };
  setImmediate(send);
}
