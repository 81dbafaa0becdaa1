/** Keeps the Host header, which signatures cover. */
import { once } from 'node:events';
import {
  Agent,
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';

const SEEN_MAX = 10_000;

export type Fault =
  /** The store gets nothing. 200: pretended success. */
  | { readonly kind: 'answer'; readonly status: number; readonly code: string }
  /** Bytes of the request's body that reach the store. */
  | { readonly kind: 'reset-request'; readonly afterBytes: number }
  /** Bytes of the answer's body. */
  | { readonly kind: 'reset-answer'; readonly afterBytes: number }
  | { readonly kind: 'lose-answer' }
  | { readonly kind: 'corrupt-request' }
  | { readonly kind: 'corrupt-answer' }
  /** Bytes of the answer's body; 0: no answer at all. */
  | { readonly kind: 'hang'; readonly afterBytes: number }
  /** Shifts the store's Date; 'refused': the store answers RequestTimeTooSkewed. */
  | { readonly kind: 'clock'; readonly offMs: number; readonly refused?: boolean }
  /** Ends before anything was read. */
  | { readonly kind: 'refuse' };

export interface FaultMatch {
  readonly method?: string;
  /** Path and query as sent. */
  readonly url?: RegExp;
  readonly header?: string;
  /** Absent: every match. */
  readonly times?: number;
}

export interface InjectedFault {
  readonly met: number;
  lift(): void;
}

export interface SeenRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
}

interface Injected {
  readonly match: FaultMatch;
  readonly fault: Fault;
  met: number;
}

export class FaultProxy {
  readonly #target: URL;
  readonly #server: Server;
  readonly #agent = new Agent({ keepAlive: true });
  readonly #faults = new Set<Injected>();
  readonly #seen: SeenRequest[] = [];

  private constructor(target: string) {
    this.#target = new URL(target);
    this.#server = createServer((request, response) => {
      // An aborted request has no socket later.
      const { socket } = request;
      void this.#pass(request, response, socket).catch(() => socket.destroy());
    });
  }

  static async start(target: string): Promise<FaultProxy> {
    const proxy = new FaultProxy(target);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    proxy.#server.unref();
    return proxy;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get seen(): readonly SeenRequest[] {
    return this.#seen;
  }

  /** The first injected match wins. */
  inject(fault: Fault, match: FaultMatch = {}): InjectedFault {
    const injected: Injected = { match, fault, met: 0 };
    this.#faults.add(injected);
    return {
      get met() {
        return injected.met;
      },
      lift: () => void this.#faults.delete(injected),
    };
  }

  liftAll(): void {
    this.#faults.clear();
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    this.#agent.destroy();
    await closed;
  }

  #faultOf({ method, url = '', headers }: IncomingMessage): Fault | undefined {
    const met = [...this.#faults].find(
      ({ match, met }) =>
        met < (match.times ?? Number.POSITIVE_INFINITY) &&
        (match.method === undefined || match.method === method) &&
        (match.header === undefined || match.header in headers) &&
        (match.url === undefined || match.url.test(url)),
    );
    if (met !== undefined) met.met += 1;
    return met?.fault;
  }

  async #pass(request: IncomingMessage, response: ServerResponse, socket: Socket): Promise<void> {
    const { method = 'GET', url = '/', headers } = request;
    this.#seen.push({ method, url, headers });
    if (this.#seen.length > SEEN_MAX) this.#seen.shift();
    const fault = this.#faultOf(request);
    if (fault !== undefined && (await answerHere(fault, request, response))) return;
    const answer = await this.#forward(request, fault);
    if (answer === undefined || fault?.kind === 'lose-answer') {
      answer?.resume();
      if (answer !== undefined) await once(answer, 'end');
      socket.destroy();
      return;
    }
    response.sendDate = false;
    const date = fault?.kind === 'clock' ? { date: dateOff(fault.offMs) } : {};
    response.writeHead(answer.statusCode ?? 502, { ...answer.headers, ...date });
    const hurt = hurtAnswer(fault, socket);
    // Pipeline closes both ends on a reset or an aborted client.
    await pipeline(hurt === undefined ? [answer, response] : [answer, hurt, response]).catch(() =>
      socket.destroy(),
    );
  }

  /** Undefined: the connection was lost first. */
  async #forward(
    request: IncomingMessage,
    fault: Fault | undefined,
  ): Promise<IncomingMessage | undefined> {
    const { method, url, rawHeaders } = request;
    const forwarded = httpRequest({
      agent: this.#agent,
      host: this.#target.hostname,
      port: this.#target.port,
      method,
      path: url,
      // This server answered `expect` already.
      headers: withoutHeaders(rawHeaders, ['expect', 'connection']),
      setHost: false,
    });
    const answered = new Promise<IncomingMessage | undefined>(resolve => {
      forwarded.once('response', resolve);
      forwarded.once('error', () => resolve(undefined));
    });
    const hurt = hurtRequest(fault);
    pipeline(hurt === undefined ? [request, forwarded] : [request, hurt, forwarded]).catch(() =>
      forwarded.destroy(),
    );
    return answered;
  }
}

/** True: nothing is forwarded. */
async function answerHere(
  fault: Fault,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<boolean> {
  if (fault.kind === 'refuse') {
    request.socket.destroy();
    return true;
  }
  // The client times out.
  if (fault.kind === 'hang' && fault.afterBytes === 0) return true;
  const skewed = fault.kind === 'clock' && fault.refused === true;
  if (fault.kind !== 'answer' && !skewed) return false;
  const { status, code } =
    fault.kind === 'answer' ? fault : { status: 403, code: 'RequestTimeTooSkewed' };
  request.resume();
  if (!request.complete) await once(request, 'end');
  const body = `<Error><Code>${code}</Code><Message>${code}</Message></Error>`;
  response.sendDate = false;
  response.setHeader('date', dateOff(fault.kind === 'clock' ? fault.offMs : 0));
  response.writeHead(status, { 'content-type': 'application/xml' });
  response.end(request.method === 'HEAD' || status < 300 ? undefined : body);
  return true;
}

function hurtRequest(fault: Fault | undefined): Transform | undefined {
  if (fault?.kind === 'corrupt-request') return corrupted();
  if (fault?.kind !== 'reset-request') return undefined;
  return cutAfter(fault.afterBytes, (_, done) => done(new Error('reset')));
}

function hurtAnswer(fault: Fault | undefined, socket: Socket): Transform | undefined {
  if (fault?.kind === 'corrupt-answer') return corrupted();
  if (fault?.kind === 'hang') return cutAfter(fault.afterBytes, () => undefined);
  if (fault?.kind !== 'reset-answer') return undefined;
  return cutAfter(fault.afterBytes, (_, done) => {
    // Flush before the connection ends.
    setImmediate(() => {
      socket.destroySoon();
      done(new Error('reset'));
    });
  });
}

type Callback = (error?: Error | null, data?: Buffer) => void;

/** Passes `bytes` on; the next piece goes to `cut`. */
function cutAfter(bytes: number, cut: (piece: Buffer, done: Callback) => void): Transform {
  let left = bytes;
  return new Transform({
    transform(piece: Buffer, _, done) {
      if (piece.length <= left) {
        left -= piece.length;
        done(null, piece);
        return;
      }
      this.push(piece.subarray(0, left));
      left = 0;
      cut(piece, done);
    },
  });
}

function corrupted(): Transform {
  let first = true;
  return new Transform({
    transform(piece: Buffer, _, done) {
      const copy = Buffer.from(piece);
      if (first) copy[0] = (copy[0] ?? 0) ^ 1;
      first = false;
      done(null, copy);
    },
  });
}

function withoutHeaders(raw: readonly string[], names: readonly string[]): string[] {
  const kept: string[] = [];
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at] ?? '';
    if (!names.includes(name.toLowerCase())) kept.push(name, raw[at + 1] ?? '');
  }
  return kept;
}

function dateOff(offMs: number): string {
  return new Date(Date.now() + offMs).toUTCString();
}
