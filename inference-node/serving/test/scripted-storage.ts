/** An HTTP server on loopback that answers each request as a test tells it: well, wrongly, never. */
import { once } from 'node:events';
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';

export interface StorageRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

export type Answer = (response: ServerResponse, request: StorageRequest) => void;

export class ScriptedStorage {
  readonly requests: StorageRequest[] = [];
  readonly #server = createServer((request, response) => void this.#play(request, response));
  readonly #answers: Answer[] = [];

  /** Further requests get the last answer again. */
  static async start(...answers: Answer[]): Promise<ScriptedStorage> {
    const storage = new ScriptedStorage();
    storage.#answers.push(...answers);
    storage.#server.listen(0, '127.0.0.1');
    await once(storage.#server, 'listening');
    return storage;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Sets the answers from the next request on. */
  answer(...answers: Answer[]): void {
    this.#answers.splice(0, this.#answers.length, ...answers);
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  async #play(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = '', url: path = '', headers } = request;
    // A request that ends in the middle does not belong to the script.
    const body = await buffer(request).catch(() => undefined);
    if (body === undefined) return;
    const came = { method, path, headers, body };
    this.requests.push(came);
    const answer = this.#answers.length > 1 ? this.#answers.shift() : this.#answers[0];
    answer?.(response, came);
  }
}

export function bytes(data: Uint8Array | string, headers: Record<string, string> = {}): Answer {
  return response => {
    const file = Buffer.from(data as string);
    response.writeHead(200, { 'content-length': file.length, ...headers }).end(file);
  };
}

export function status(code: number, headers: Record<string, string> = {}, body = ''): Answer {
  return response => response.writeHead(code, headers).end(body);
}

/** Takes the request and says nothing. */
export const silence: Answer = () => undefined;

export const reset: Answer = response => {
  response.socket?.resetAndDestroy();
};

/** Half of what it announced, then `then`. */
export function half(data: string, then: Answer): Answer {
  return (response, request) => {
    response.writeHead(200, { 'content-length': data.length });
    response.write(data.slice(0, data.length / 2), () => then(response, request));
  };
}
