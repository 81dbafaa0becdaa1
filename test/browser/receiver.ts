/** Somebody who is told things: a server on loopback that keeps what is posted to it. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { until } from '../support/running-service.ts';

export interface Told {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export class Receiver {
  readonly url: string;
  readonly told: Told[] = [];
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/told`;
    server.on('request', async (request, answer) => {
      const headers = Object.entries(request.headers).map(([name, value]) => [name, `${value}`]);
      this.told.push({ headers: Object.fromEntries(headers), body: await text(request) });
      answer.writeHead(204).end();
    });
  }

  static async start(): Promise<Receiver> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new Receiver(server);
  }

  /** The first that came, or comes in time. */
  async first(timeoutMs: number): Promise<Told> {
    await until(() => this.told.length > 0, { timeoutMs, what: 'somebody is told' });
    const [told] = this.told;
    assert.ok(told);
    return told;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }
}
