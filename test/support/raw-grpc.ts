/** gRPC over a bare http2 client, for clients that misbehave. */
import { once } from 'node:events';
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect as connectHttp2,
  constants,
  type SecureClientSessionOptions,
} from 'node:http2';

export interface RawCall {
  readonly stream: ClientHttp2Stream;
  readonly ended: Promise<RawEnd>;
}

export interface RawEnd {
  /** Undefined: reset without trailers. */
  readonly status: number | undefined;
  readonly code: string | undefined;
  readonly rstCode: number | undefined;
}

export class RawConnection {
  readonly session: ClientHttp2Session;
  readonly closed: Promise<void>;
  #goaway: number | undefined;

  private constructor(session: ClientHttp2Session) {
    this.session = session;
    session.on('error', () => undefined);
    session.on('goaway', code => {
      this.#goaway = code;
    });
    this.closed = new Promise(resolve => session.once('close', resolve));
  }

  /**
   * Resolves once the port sent its SETTINGS, or closed.
   * @param authority http://host:port or https.
   */
  static async open(
    authority: string,
    options: SecureClientSessionOptions = {},
  ): Promise<RawConnection> {
    const connection = new RawConnection(connectHttp2(authority, options));
    await Promise.race([
      once(connection.session, 'remoteSettings').catch(() => undefined),
      connection.closed,
    ]);
    return connection;
  }

  get goaway(): number | undefined {
    return this.#goaway;
  }

  get open(): boolean {
    return !this.session.closed && !this.session.destroyed;
  }

  /** Resolves when the port has read everything sent before, or the connection ended. */
  async ping(): Promise<void> {
    await Promise.race([
      new Promise<void>(resolve => {
        // Not sent if too many are outstanding: wait for those first.
        if (!this.open || !this.session.ping(() => resolve())) setImmediate(resolve);
      }),
      this.closed,
    ]);
  }

  call(path: string, token?: string): RawCall {
    const stream = this.session.request({
      ':method': 'POST',
      ':path': path,
      'content-type': 'application/grpc',
      te: 'trailers',
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    });
    let status: number | undefined;
    let code: string | undefined;
    const read = (headers: Record<string, unknown>) => {
      if (headers['grpc-status'] !== undefined) status = Number(headers['grpc-status']);
      if (headers['matting-error-code'] !== undefined) code = String(headers['matting-error-code']);
    };
    stream.on('response', read);
    stream.on('trailers', read);
    stream.on('error', () => undefined);
    stream.resume();
    const ended = new Promise<RawEnd>(resolve => {
      stream.once('close', () => resolve({ status, code, rstCode: stream.rstCode }));
    });
    return { stream, ended };
  }

  close(): void {
    this.session.destroy(undefined, constants.NGHTTP2_NO_ERROR);
  }
}

/** The prefix announces `bytes`, which may differ from the body's. */
export function framed(body: Buffer, bytes = body.length, compressed = false): Buffer {
  const prefix = Buffer.alloc(5);
  prefix[0] = compressed ? 1 : 0;
  prefix.writeUInt32BE(bytes, 1);
  return Buffer.concat([prefix, body]);
}
