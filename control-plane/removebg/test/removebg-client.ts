/** The HTTP application with this interface, and requests as clients of remove.bg send them. */
import { pngHeader, type TestApp, testApps } from '@matting/core/test/support/test-app.ts';
import { FORM_TYPE, formOf } from '@matting/http/test/forms.ts';
import { AnswerChecker } from '@matting/test-support/openapi.ts';
import type { LightMyRequestResponse } from 'fastify';
import { removebg } from '../removebg.ts';
import document from '../removebg-openapi.json' with { type: 'json' };

export const { openTestApp, useTestApp } = testApps([removebg], stores => stores);

export const IMAGE = pngHeader(40, 30);

/** A Buffer is sent as a file. */
export type Parts = Readonly<Record<string, string | Buffer>>;
export type SentHeaders = Readonly<Record<string, string | string[]>>;

export function multipart(parts: Parts): Buffer {
  const file = { fileName: 'photo.jpg', type: 'image/jpeg' };
  return formOf(
    Object.entries(parts).map(([name, body]) => ({
      ...(typeof body === 'string' ? {} : file),
      name,
      body,
    })),
  );
}

/** The client checks every answer against the interface's document. */
export class RemovebgClient {
  readonly #app: TestApp;
  readonly #checker = new AnswerChecker(document);

  constructor(app: TestApp) {
    this.#app = app;
  }

  /** Sends the image unless the parts have a source. */
  form(parts: Parts = {}, headers: SentHeaders = {}): Promise<LightMyRequestResponse> {
    const body = multipart({ image_file: IMAGE, ...parts });
    return this.post(body, FORM_TYPE['content-type'], headers);
  }

  pairs(
    pairs: Readonly<Record<string, string>>,
    headers: SentHeaders = {},
  ): Promise<LightMyRequestResponse> {
    const body = Buffer.from(new URLSearchParams(pairs).toString());
    return this.post(body, 'application/x-www-form-urlencoded', headers);
  }

  json(body: unknown, headers: SentHeaders = {}): Promise<LightMyRequestResponse> {
    return this.post(Buffer.from(JSON.stringify(body)), 'application/json', headers);
  }

  async post(
    body: Buffer,
    type: string,
    headers: SentHeaders = {},
  ): Promise<LightMyRequestResponse> {
    const answer = await this.#app.app.inject({
      method: 'POST',
      url: '/v1.0/removebg',
      headers: { 'x-api-key': this.#app.token, 'content-type': type, ...headers },
      payload: body,
    });
    return this.#checked('POST', '/v1.0/removebg', answer);
  }

  async account(headers: SentHeaders = {}): Promise<LightMyRequestResponse> {
    const all = { 'x-api-key': this.#app.token, ...headers };
    const answer = await this.#app.app.inject({
      method: 'GET',
      url: '/v1.0/account',
      headers: all,
    });
    return this.#checked('GET', '/v1.0/account', answer);
  }

  #checked(method: string, url: string, answer: LightMyRequestResponse): LightMyRequestResponse {
    const { statusCode: status, headers, rawPayload: body } = answer;
    // The document does not cover an interface that is off, or requests of other origins.
    const isOther = headers['content-type'] === 'application/problem+json';
    const isCrossOrigin = headers['access-control-expose-headers'] !== undefined;
    if (!isOther && !isCrossOrigin) this.#checker.check({ method, url, status, headers, body });
    return answer;
  }
}
