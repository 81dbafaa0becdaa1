/** A person with a browser's cookies. */
import assert from 'node:assert/strict';
import { type HeldForm, hold, listening } from '@matting/http/test/held-form.ts';
import type { FastifyInstance, LightMyRequestResponse } from 'fastify';
import { ReadPage } from './pages.ts';

export interface Sent {
  /** Undefined leaves a header out. */
  readonly headers?: Readonly<Record<string, string | undefined>>;
  /** Undefined: the token of the person's session, read from a page. Null: no token. */
  readonly csrf?: string | null;
  readonly payload?: string | Buffer;
  readonly address?: string;
}

/** A form as a browser sends it, its fields first, then the picture. */
export function multipartOf(fields: Readonly<Record<string, string>>, picture?: Buffer) {
  const part = (head: string) => `--a-boundary\r\ncontent-disposition: form-data; ${head}\r\n`;
  const texts = Object.entries(fields).map(
    ([name, value]) => `${part(`name="${name}"`)}\r\n${value}\r\n`,
  );
  const file = `${part('name="image_file"; filename="a.png"')}content-type: image/png\r\n\r\n`;
  return {
    headers: { 'content-type': 'multipart/form-data; boundary=a-boundary' },
    payload: Buffer.concat([
      Buffer.from(texts.join('')),
      ...(picture === undefined ? [] : [Buffer.from(file), picture, Buffer.from('\r\n')]),
      Buffer.from('--a-boundary--\r\n'),
    ]),
  };
}

export interface PersonOptions {
  readonly address?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

type Fields = Readonly<Record<string, string | readonly string[]>>;

export class Person {
  readonly cookies = new Map<string, string>();
  readonly #app: FastifyInstance;
  readonly #origin: string;
  readonly #options: PersonOptions;

  constructor(app: FastifyInstance, origin: string, options: PersonOptions = {}) {
    this.#app = app;
    this.#origin = origin;
    this.#options = options;
  }

  /** Somebody with the same cookies, as a thief has them. */
  copy(): Person {
    const other = new Person(this.#app, this.#origin, this.#options);
    for (const [name, value] of this.cookies) other.cookies.set(name, value);
    return other;
  }

  get cookieHeader(): string {
    return [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; ');
  }

  get(url: string, sent: Sent = {}): Promise<LightMyRequestResponse> {
    return this.#send('GET', url, sent);
  }

  async page(url: string): Promise<ReadPage> {
    const answer = await this.get(url);
    assert.equal(answer.statusCode, 200, `${url}: ${answer.statusCode} ${answer.body}`);
    return new ReadPage(answer.body);
  }

  /** With Origin and token unless `sent` has others. */
  async post(url: string, fields: Fields = {}, sent: Sent = {}): Promise<LightMyRequestResponse> {
    const csrf = sent.csrf === undefined ? await this.token() : sent.csrf;
    const all: Fields = { ...(csrf === null ? {} : { csrf }), ...fields };
    const pairs = Object.entries(all).flatMap(([name, value]) =>
      [value].flat().map(one => [name, one] as [string, string]),
    );
    const payload = sent.payload ?? new URLSearchParams(pairs).toString();
    const headers = {
      origin: this.#origin,
      'content-type': 'application/x-www-form-urlencoded',
      ...sent.headers,
    };
    return this.#send('POST', url, { ...sent, headers, payload });
  }

  async hold(
    url: string,
    fields: Readonly<Record<string, string>> = {},
    sent: Pick<Sent, 'headers' | 'payload'> = {},
  ): Promise<HeldForm> {
    const all = { ...fields, csrf: await this.token() };
    return hold(await listening(this.#app), {
      path: url,
      headers: {
        host: new URL(this.#origin).host,
        origin: this.#origin,
        cookie: this.cookieHeader,
        'content-type': 'application/x-www-form-urlencoded',
        ...(sent.headers as Readonly<Record<string, string>> | undefined),
      },
      payload: sent.payload ?? new URLSearchParams(all).toString(),
    });
  }

  async token(): Promise<string> {
    const first = await this.get('/account/profile');
    const where = first.headers.location;
    const answer = typeof where === 'string' ? await this.get(where) : first;
    const token = new ReadPage(answer.body).csrf;
    assert.ok(token, `no form with a token: ${answer.statusCode} ${answer.body}`);
    return token;
  }

  async #send(method: 'GET' | 'POST', url: string, sent: Sent): Promise<LightMyRequestResponse> {
    const given = {
      host: new URL(this.#origin).host,
      cookie: this.cookies.size === 0 ? undefined : this.cookieHeader,
      ...this.#options.headers,
      ...sent.headers,
    };
    const { address = this.#options.address } = sent;
    const known = Object.entries(given).filter(([, value]) => value !== undefined);
    const answer = await this.#app.inject({
      method,
      url,
      headers: Object.fromEntries(known) as Record<string, string>,
      ...(sent.payload !== undefined && { payload: sent.payload }),
      ...(address !== undefined && { remoteAddress: address }),
    });
    for (const { name, value, maxAge } of answer.cookies) {
      if (maxAge === 0 || value === '') this.cookies.delete(name);
      else this.cookies.set(name, value);
    }
    return answer;
  }
}
