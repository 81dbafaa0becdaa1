/** Listens before the service does, so that links can name it. */
import { once } from 'node:events';
import { type IncomingMessage, request, type ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { type LoopbackSource, openSource } from '../../control-plane/http/test/loopback-source.ts';

/**
 * `refuse`: the service gets nothing. `lose`: the caller gets nothing. `half`: the answer is cut.
 * `hang`: no answer. An answer given here never reaches the service.
 */
export type Fault =
  | 'pass'
  | 'refuse'
  | 'lose'
  | 'half'
  | 'hang'
  | {
      readonly status: number;
      readonly headers?: Readonly<Record<string, string>>;
      readonly body?: string;
    };

export interface SeenRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
}

export class FaultyProxy {
  readonly seen: SeenRequest[] = [];
  /** One for each request; afterwards all pass. */
  faults: Fault[] = [];
  /** Takes precedence over `faults` unless undefined. */
  choose: ((request: SeenRequest) => Fault | undefined) | undefined;
  #targetPort = 0;
  #source!: LoopbackSource;

  static async open(): Promise<FaultyProxy> {
    const proxy = new FaultyProxy();
    proxy.#source = await openSource((incoming, outgoing) => {
      proxy.#serve(incoming, outgoing).catch(() => outgoing.destroy());
    });
    return proxy;
  }

  get url(): string {
    return this.#source.url;
  }

  forwardTo(port: number): void {
    this.#targetPort = port;
  }

  sent(method: string): readonly SeenRequest[] {
    return this.seen.filter(request => request.method === method);
  }

  clear(): void {
    this.seen.length = 0;
    this.faults = [];
    this.choose = undefined;
  }

  async close(): Promise<void> {
    await this.#source[Symbol.asyncDispose]();
  }

  async #serve(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const { method = '', url = '', headers } = incoming;
    const seen = { method, url, headers, body: await buffer(incoming) };
    this.seen.push(seen);
    const fault = this.choose?.(seen) ?? this.faults.shift() ?? 'pass';
    if (fault === 'hang') return;
    if (fault === 'refuse') {
      outgoing.destroy();
      return;
    }
    if (typeof fault === 'object') {
      const type = fault.body?.startsWith('{') ? 'application/problem+json' : 'text/html';
      outgoing.writeHead(fault.status, { 'content-type': type, ...fault.headers });
      outgoing.end(fault.body ?? '<html>not the service</html>');
      return;
    }
    const answer = await this.#forward(seen);
    if (fault === 'lose') {
      outgoing.destroy();
      return;
    }
    outgoing.writeHead(answer.status, answer.headers);
    if (fault === 'pass') {
      outgoing.end(answer.body);
      return;
    }
    const half = answer.body.subarray(0, Math.floor(answer.body.length / 2));
    outgoing.write(half, () => outgoing.destroy());
  }

  async #forward({ method, headers, body, url: path }: SeenRequest) {
    const port = this.#targetPort;
    const sent = request({ host: '127.0.0.1', port, method, path, headers });
    sent.end(body);
    const [answer] = (await once(sent, 'response')) as [IncomingMessage];
    const { connection: _, ...kept } = answer.headers;
    return { status: answer.statusCode ?? 0, headers: kept, body: await buffer(answer) };
  }
}
