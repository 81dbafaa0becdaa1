/** Answers as a test sets, and checks every signature. */
import assert from 'node:assert/strict';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { type LoopbackSource, openSource } from '@matting/http/test/loopback-source.ts';
import { Webhook } from 'standardwebhooks';

export interface Delivery {
  readonly jobId: string;
  readonly atMs: number;
  readonly method: string | undefined;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
  readonly signatureHolds: boolean;
  status: number | undefined;
}

export type Answer = (delivery: Delivery, response: ServerResponse) => void | Promise<void>;

export const taken: Answer = (_delivery, response) => {
  response.writeHead(204).end();
};

export function reset(response: ServerResponse): void {
  const socket = response.socket as Socket | null;
  if (socket === null || socket.writableEnded) socket?.destroy();
  else socket.resetAndDestroy();
}

export class Receiver implements AsyncDisposable {
  readonly deliveries: Delivery[] = [];
  answer: Answer;
  readonly #verifier: Webhook;
  #source!: LoopbackSource;

  private constructor(secret: string, answer: Answer) {
    this.answer = answer;
    this.#verifier = secret.startsWith('whsec_')
      ? new Webhook(secret)
      : new Webhook(secret, { format: 'raw' });
  }

  static async open(secret: string, answer: Answer = taken): Promise<Receiver> {
    const receiver = new Receiver(secret, answer);
    receiver.#source = await openSource((request, response) => {
      // Tests end connections halfway.
      receiver.#take(request, response).catch(() => response.destroy());
    });
    return receiver;
  }

  get port(): number {
    return this.#source.port;
  }

  url(path = '/hook'): string {
    return `${this.#source.url}${path}`;
  }

  of(jobId: string): Delivery[] {
    return this.deliveries.filter(delivery => delivery.jobId === jobId);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#source[Symbol.asyncDispose]();
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await buffer(request);
    const delivery: Delivery = {
      jobId: String(request.headers['webhook-id']).replace(/^msg_/, ''),
      atMs: Date.now(),
      method: request.method,
      path: request.url ?? '',
      headers: request.headers,
      body,
      signatureHolds: this.#holds(request, body),
      status: undefined,
    };
    this.deliveries.push(delivery);
    response.once('finish', () => {
      delivery.status = response.statusCode;
    });
    await this.answer(delivery, response);
  }

  #holds(request: IncomingMessage, body: Buffer): boolean {
    try {
      const headers = request.headers as Record<string, string>;
      const event = this.#verifier.verify(body.toString(), headers) as {
        job_id?: string;
        event_id?: string;
        batch_id?: string;
      };
      const id = event.job_id ?? event.event_id ?? event.batch_id;
      assert.equal(headers['webhook-id'], `msg_${id}`);
      return true;
    } catch {
      return false;
    }
  }
}
