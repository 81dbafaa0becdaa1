/** One request over a socket of its own, its body whatever it is; and what came of it. */
import { connect, type Socket } from 'node:net';

export interface RawRequest {
  readonly origin: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Iterable<Buffer>;
  readonly signal?: AbortSignal | undefined;
}

export interface RawAnswer {
  /** 0: the connection ended without one. */
  readonly status: number;
  /** The body's bytes that were sent until the answer. */
  readonly bytesSent: number;
}

/** Sends until the answer comes, which may be before the end of the body. */
export async function sendRaw(request: RawRequest): Promise<RawAnswer> {
  const { hostname, port } = new URL(request.origin);
  const socket = connect(Number(port), hostname);
  // A reset ends it as a close does: the answer that came before it counts.
  socket.on('error', () => undefined);
  request.signal?.addEventListener('abort', () => socket.destroy(), { once: true });
  let status = 0;
  socket.once('data', bytes => {
    status = Number(/^HTTP\/1\.1 (\d{3})/.exec(bytes.toString('latin1'))?.[1] ?? 0);
  });
  socket.resume();
  const lines = Object.entries(request.headers).map(([name, value]) => `${name}: ${value}`);
  socket.write(`POST ${request.path} HTTP/1.1\r\nHost: bench\r\n${lines.join('\r\n')}\r\n\r\n`);
  let bytesSent = 0;
  for (const piece of request.body) {
    if (status !== 0 || socket.destroyed) break;
    bytesSent += piece.length;
    if (!socket.write(piece)) await moved(socket);
  }
  while (status === 0 && !socket.destroyed) await moved(socket);
  socket.destroy();
  return { status, bytesSent };
}

async function moved(socket: Socket): Promise<void> {
  if (socket.destroyed) return;
  await new Promise<void>(resolve => {
    const done = () => {
      for (const event of ['drain', 'data', 'close']) socket.off(event, done);
      resolve();
    };
    for (const event of ['drain', 'data', 'close']) socket.once(event, done);
  });
}
