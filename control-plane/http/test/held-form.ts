/** A real request, held back before its last byte. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';

export interface HeldAnswer {
  readonly status: number;
  readonly location: string | undefined;
  readonly body: string;
}

export interface HeldForm {
  release(): Promise<HeldAnswer>;
}

export interface HeldRequest {
  readonly method?: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly payload: string | Buffer;
}

export async function listening(app: FastifyInstance): Promise<number> {
  if (!app.server.listening) await app.listen({ port: 0, host: '127.0.0.1' });
  return (app.server.address() as AddressInfo).port;
}

/** Resolves once the server checked the headers and asks for the body (100 Continue). */
export async function hold(
  port: number,
  { method = 'POST', path, headers, payload }: HeldRequest,
): Promise<HeldForm> {
  const bytes = Buffer.from(payload);
  const request = http.request({
    port,
    host: '127.0.0.1',
    path,
    method,
    agent: false,
    headers: { ...headers, 'content-length': String(bytes.length), expect: '100-continue' },
  });
  const answered = once(request, 'response') as Promise<[http.IncomingMessage]>;
  answered.catch(() => undefined);
  request.flushHeaders();
  const refused = answered.then(([{ statusCode }]) => {
    assert.fail(`the headers of ${path} were refused: ${statusCode}`);
  });
  await Promise.race([once(request, 'continue'), refused]);
  request.write(bytes.subarray(0, -1));
  return {
    async release(): Promise<HeldAnswer> {
      request.end(bytes.subarray(-1));
      const [response] = await answered;
      const chunks: Buffer[] = [];
      for await (const chunk of response) chunks.push(chunk as Buffer);
      const { statusCode: status = 0, headers: given } = response;
      return { status, location: given.location, body: Buffer.concat(chunks).toString() };
    },
  };
}
