/** Browsers over a test application: one that keeps cookies, and one of somebody who is signed in. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { InjectOptions, LightMyRequestResponse } from 'fastify';
import type { Role } from '../../src/domain/account/roles.ts';
import { createSecret, csrfTokenOf } from '../../src/http/account/session/cookies.ts';
import { hashOfSecret } from '../../src/services/people/sign-in.ts';
import type { Stores } from '../../src/store/stores.ts';
import { ReadPage } from './area/pages.ts';
import { BASE_URL, type TestApp } from './test-app.ts';

export type Fields = Readonly<Record<string, string | readonly string[]>>;

/** Keeps cookies as browsers do, and sends forms of the pages that it would see now. */
export class Browser {
  readonly cookies = new Map<string, string>();
  readonly #app: Pick<TestApp, 'app'>;
  readonly #address: string;

  constructor(app: Pick<TestApp, 'app'>, address = '192.0.2.1') {
    this.#app = app;
    this.#address = address;
  }

  get(
    url: string,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<LightMyRequestResponse> {
    return this.#send({ method: 'GET', url, headers });
  }

  async post(url: string, fields: Readonly<Record<string, string>> = {}) {
    const csrf = fields.csrf ?? (await this.#token());
    const payload = new URLSearchParams({ ...fields, csrf }).toString();
    const headers = { origin: BASE_URL, 'content-type': 'application/x-www-form-urlencoded' };
    return this.#send({ method: 'POST', url, headers, payload });
  }

  async #token(): Promise<string> {
    const visitor = this.cookies.get('__Host-matting-visitor');
    if (!this.cookies.has(SESSION)) return visitor === undefined ? '' : csrfTokenOf(visitor);
    const { body } = await this.get('/account/profile');
    return new ReadPage(body).csrf ?? '';
  }

  async #send(request: InjectOptions): Promise<LightMyRequestResponse> {
    const cookie = [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const answer = await this.#app.app.inject({
      ...request,
      remoteAddress: this.#address,
      headers: { accept: 'text/html', ...(cookie === '' ? {} : { cookie }), ...request.headers },
    });
    for (const { name, value, maxAge } of answer.cookies) {
      if (maxAge === 0) this.cookies.delete(name);
      else this.cookies.set(name, value);
    }
    return answer;
  }
}

const SESSION = '__Host-matting-session';

export class SignedInBrowser {
  readonly userId: string;
  readonly mail: string;
  readonly accountId: string;
  /** What the session's cookie holds. */
  readonly secret: string;
  readonly #app: Pick<TestApp, 'app'>;

  constructor(
    app: Pick<TestApp, 'app'>,
    of: { userId: string; mail: string; accountId: string; secret: string },
  ) {
    this.#app = app;
    this.userId = of.userId;
    this.mail = of.mail;
    this.accountId = of.accountId;
    this.secret = of.secret;
  }

  get csrf(): string {
    return csrfTokenOf(this.secret, this.accountId);
  }

  get cookie(): string {
    return `${SESSION}=${this.secret}`;
  }

  get(url: string, headers: Record<string, string> = {}): Promise<LightMyRequestResponse> {
    return this.#app.app.inject({ url, headers: { cookie: this.cookie, ...headers } });
  }

  /** As a form of our own page sends it. */
  post(
    url: string,
    fields: Fields = {},
    headers: Record<string, string> = {},
  ): Promise<LightMyRequestResponse> {
    const body = new URLSearchParams({ csrf: this.csrf });
    for (const [name, value] of Object.entries(fields)) {
      if (name === 'csrf') body.delete(name);
      for (const one of [value].flat()) body.append(name, one);
    }
    return this.#app.app.inject({
      method: 'POST',
      url,
      headers: {
        cookie: this.cookie,
        origin: BASE_URL,
        'content-type': 'application/x-www-form-urlencoded',
        ...headers,
      },
      payload: body.toString(),
    });
  }
}

/** A new person of the account, signed in. @param options.accountId the test application's own */
export async function signIn(
  test: Pick<TestApp, 'app' | 'accountId'> & { readonly stores: Pick<Stores, 'links'> },
  options: { readonly role?: Role; readonly accountId?: string; readonly mail?: string } = {},
): Promise<SignedInBrowser> {
  const { role = 'owner', accountId = test.accountId } = options;
  const { mail = `${role}-${randomUUID().slice(0, 8)}@example.org` } = options;
  const secret = createSecret();
  const token = createSecret();
  const newUserId = randomUUID();
  const link = { tokenHash: hashOfSecret(token), purpose: 'sign-in' } as const;
  const made = await test.stores.links.create(
    {
      id: randomUUID(),
      ...link,
      accountId,
      mail,
      role,
      lifeMs: 60_000,
      provesMail: true,
      entryId: randomUUID(),
    },
    { kind: 'operator' },
  );
  assert.equal(made, 'created');
  const used = await test.stores.links.use({
    ...link,
    newUserId,
    passwordHash: null,
    verifiedHash: null,
    endedIdHash: null,
    session: {
      id: randomUUID(),
      idHash: hashOfSecret(secret),
      method: 'link',
      address: '127.0.0.1',
      agent: 'a test',
    },
    entryId: randomUUID(),
  });
  assert.equal(used.kind, 'signed-in');
  const userId = used.kind === 'signed-in' ? used.userId : '';
  return new SignedInBrowser(test, { userId, mail, accountId, secret });
}
