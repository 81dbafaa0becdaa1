/** Sends bytes that no HTTP client would. */
import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { Writable } from 'node:stream';
import { pino } from 'pino';

export interface Conversation {
  readonly next?: string;
  readonly end?: 'end' | 'resetAndDestroy';
}

/** Longer than the server's bounds that tests do not change. */
const SILENCE_MS_MAX = 20_000;

/** Returns the answer once the connection closed or fell silent. */
export async function converse(
  port: number,
  text: string,
  { next, end }: Conversation = {},
): Promise<string> {
  const socket = net.connect(port, '127.0.0.1').on('error', () => undefined);
  await once(socket, 'connect');
  let received = '';
  socket.on('data', chunk => {
    received += String(chunk);
  });
  socket.setTimeout(SILENCE_MS_MAX, () => socket.destroy());
  if (next !== undefined) socket.once('data', () => socket.write(next));
  socket.write(text, () => end && socket[end]());
  await once(socket, 'close');
  return received;
}

export function jsonIn(received: string) {
  return JSON.parse(received.slice(received.indexOf('\r\n\r\n')));
}

export function headOf(...lines: readonly string[]): string {
  return `${lines.join('\r\n')}\r\n\r\n`;
}

export async function sendPieces(pieces: Iterable<Buffer>, options: http.RequestOptions) {
  const request = http.request({ ...options, method: 'POST' });
  const answered = once(request, 'response') as Promise<[http.IncomingMessage]>;
  let over = false;
  // A cut body ends in a reset after the answer.
  const end = () => {
    over = true;
  };
  request.on('error', end);
  void answered.then(end);
  for (const piece of pieces) {
    if (over) break;
    if (!request.write(piece)) await Promise.race([once(request, 'drain'), answered]);
    // Keeps pieces out of one packet.
    else await new Promise(setImmediate);
  }
  request.end();
  const [response] = await answered;
  const body = JSON.parse(Buffer.concat(await response.toArray()).toString());
  return { status: response.statusCode ?? 0, body, port: request.socket?.localPort ?? 0 };
}

export function linesLogger<Line>(level = 'info') {
  const lines: Line[] = [];
  const sink = new Writable({
    write(chunk, _encoding, done) {
      lines.push(JSON.parse(String(chunk)));
      done();
    },
  });
  return { lines, logger: pino({ level }, sink) };
}
