/** Browsers over a test application: one that keeps cookies, and one of somebody who is signed in. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { InjectOptions, LightMyRequestResponse } from 'fastify';
import type { Role } from '../../src/domain/account/roles.ts';
import { createSecret, csrfTokenOf } from '../../src/http/account/session/cookies.ts';
import { hashOfSecret } from '../../src/services/people/sign-in.ts';
import type { Stores } from '../../src/store/stores.ts';
import { linkUse, newLink, newSession, OPERATOR } from '../store/people.ts';
import { BASE_URL, type TestApp } from './test-app.ts';

const SESSION = '__Host-matting-session';

type App = Pick<TestApp, 'app'>;
type Headers = Readonly<Record<string, string>>;
type Fields = Readonly<Record<string, string | readonly string[]>>;

/** Keeps cookies as browsers do, and sends forms of the pages that it would see now. */
export class Browser {
  readonly cookies = new Map<string, string>();
  readonly #app: App;
  readonly #address: string;

  constructor(app: App, address = '192.0.2.1') {
    this.#app = app;
    this.#address = address;
  }

  /** As the request has it. */
  get cookie(): string {
    return [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; ');
  }

  get(url: string, headers: Headers = {}): Promise<LightMyRequestResponse> {
    return this.#send({ method: 'GET', url, headers });
  }

  /** As a form of our own page sends it. */
  async post(url: string, fields: Fields = {}, headers: Headers = {}) {
    const body = new URLSearchParams();
    for (const [name, value] of Object.entries({ csrf: await this.token(), ...fields })) {
      for (const one of [value].flat()) body.append(name, one);
    }
    const form = { origin: BASE_URL, 'content-type': 'application/x-www-form-urlencoded' };
    const payload = body.toString();
    return this.#send({ method: 'POST', url, headers: { ...form, ...headers }, payload });
  }

  /** Of the forms of its pages. */
  async token(): Promise<string> {
    const visitor = this.cookies.get('__Host-matting-visitor');
    if (!this.cookies.has(SESSION)) return visitor === undefined ? '' : csrfTokenOf(visitor);
    const { body } = await this.get('/account/profile');
    return /name="csrf" value="([^"]+)"/.exec(body)?.[1] ?? '';
  }

  async #send(request: InjectOptions): Promise<LightMyRequestResponse> {
    const { cookie } = this;
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

export class SignedInBrowser extends Browser {
  readonly userId: string;
  readonly mail: string;
  /** What the session's cookie holds. */
  readonly secret: string;
  readonly csrf: string;

  constructor(app: App, of: { userId: string; mail: string; accountId: string; secret: string }) {
    super(app, '127.0.0.1');
    this.userId = of.userId;
    this.mail = of.mail;
    this.secret = of.secret;
    this.csrf = csrfTokenOf(of.secret, of.accountId);
    this.cookies.set(SESSION, of.secret);
  }

  override async token(): Promise<string> {
    return this.csrf;
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
  const link = newLink(accountId, { purpose: 'sign-in', role, mail, provesMail: true });
  assert.equal(await test.stores.links.create(link, OPERATOR), 'created');
  const session = newSession({ idHash: hashOfSecret(secret), method: 'link' });
  const used = await test.stores.links.use(linkUse(link, { session, passwordHash: null }));
  assert.ok(used.kind === 'signed-in');
  return new SignedInBrowser(test, { userId: used.userId, mail, accountId, secret });
}

/** A new owner of another account. */
export async function signInElsewhere(test: TestApp): Promise<SignedInBrowser> {
  const other = await test.stores.accounts.create(`other ${randomUUID()}`);
  assert.ok(other);
  return signIn(test, { accountId: other.id });
}
