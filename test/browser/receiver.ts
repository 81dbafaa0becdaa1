/** Somebody who is told things: a server on loopback that keeps what is posted to it. */
import assert from 'node:assert/strict';
import { text } from 'node:stream/consumers';
import {
  type LoopbackSource,
  openSource,
} from '../../control-plane/test/sources/loopback-source.ts';
import { until } from '../support/running-service.ts';

export interface Told {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export class Receiver {
  readonly told: Told[] = [];
  #source!: LoopbackSource;

  static async start(): Promise<Receiver> {
    const receiver = new Receiver();
    receiver.#source = await openSource(async (request, answer) => {
      const headers = Object.entries(request.headers).map(([name, value]) => [name, `${value}`]);
      receiver.told.push({ headers: Object.fromEntries(headers), body: await text(request) });
      answer.writeHead(204).end();
    });
    return receiver;
  }

  get url(): string {
    return `${this.#source.url}/told`;
  }

  /** The first that came, or comes in time. */
  async first(timeoutMs: number): Promise<Told> {
    await until(() => this.told.length > 0, { timeoutMs, what: 'somebody is told' });
    const [told] = this.told;
    assert.ok(told);
    return told;
  }

  async close(): Promise<void> {
    await this.#source[Symbol.asyncDispose]();
  }
}
