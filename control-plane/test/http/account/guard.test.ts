/** What every route of the account area is behind, by routes of the test's own. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import cookie from '@fastify/cookie';
import fastify, { type FastifyInstance, type InjectOptions } from 'fastify';
import { AuthorityError } from '../../../src/domain/account/authority.ts';
import type { Role } from '../../../src/domain/account/roles.ts';
import {
  askToSignIn,
  guardAccountArea,
  returnPathOf,
} from '../../../src/http/account/session/account-door.ts';
import { createSecret, csrfTokenOf } from '../../../src/http/account/session/cookies.ts';
import { PageError } from '../../../src/http/account/session/page-error.ts';
import { formOf, visitOf } from '../../../src/http/account/session/visit.ts';
import type { FoundSession } from '../../../src/services/people/sign-in.ts';

const BASE_URL = 'https://matting.example';
const FORM = 'application/x-www-form-urlencoded';

const secrets = { owner: createSecret(), viewer: createSecret() };

function sessionOf(role: Role): FoundSession {
  const memberships = [{ accountId: 'account-1', accountName: 'Shop', role }];
  const mail = `${role}@example.org`;
  const accountId = 'account-1';
  return {
    id: `${role}-1`,
    userId: role,
    mail,
    language: null,
    method: 'password',
    accountId,
    memberships,
  };
}

async function openApp(
  baseUrl = BASE_URL,
  canSignIn = true,
  more: (app: FastifyInstance) => void = () => undefined,
): Promise<FastifyInstance> {
  const app = fastify();
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, done) => done(null));
  await app.register(cookie);
  app.setErrorHandler((error, request, reply) => {
    if (error instanceof AuthorityError) {
      if (error.loss === 'signed-out') return askToSignIn(request, reply);
      return reply.code(403).send(error.loss);
    }
    const { status, kind } = error instanceof PageError ? error : { status: 500, kind: `${error}` };
    return reply.code(status).send(kind);
  });
  const find = async (secret: string) => {
    if (secret === secrets.owner) return sessionOf('owner');
    return secret === secrets.viewer ? sessionOf('viewer') : undefined;
  };
  guardAccountArea(app, { find }, { baseUrl, canSignIn });
  app.get('/account/people', { config: { permission: 'people.manage' } }, async request => {
    return visitOf(request).mail;
  });
  app.post('/account/people', { config: { permission: 'people.manage' } }, async request => {
    return formOf(request).text('name');
  });
  app.get('/account/sign-in', { config: { public: true } }, async () => 'sign in');
  app.post('/account/sign-in', { config: { public: true } }, async () => 'signed in');
  app.post('/account/notifications', { config: { cookieless: true } }, async () => 'noted');
  more(app);
  await app.ready();
  return app;
}

const tokenOf = (secret: string) => csrfTokenOf(secret, 'account-1');
const cookieOf = (secret: string) => `__Host-matting-session=${secret}`;

/** As the page's own form would be sent. */
function formRequest(more: Partial<InjectOptions> = {}, secret = secrets.owner): InjectOptions {
  return {
    method: 'POST',
    url: '/account/people',
    payload: `csrf=${tokenOf(secret)}&name=caf%C3%A9`,
    ...more,
    headers: {
      cookie: cookieOf(secret),
      origin: BASE_URL,
      'content-type': FORM,
      ...more.headers,
    },
  };
}

describe('the guard of the account area', () => {
  let app: FastifyInstance;

  before(async () => {
    app = await openApp();
  });
  after(() => app.close());

  const get = (headers: Record<string, string>, url = '/account/people') =>
    app.inject({ url, headers });

  it('lets no route start that names nobody, or two', async () => {
    const opening = (config: object) =>
      openApp(BASE_URL, true, extra => {
        extra.get('/account/forgotten', { config }, async () => 'open');
      });
    await assert.rejects(opening({}), /must name a permission, public or cookieless/);
    await assert.rejects(opening({ public: true, cookieless: true }), /must name/);
  });

  it('leads to sign-in without a session, and back to the page', async () => {
    for (const headers of [{}, { cookie: cookieOf(createSecret()) }, { cookie: cookieOf('x') }]) {
      const answer = await get(headers, '/account/people?after=12');
      assert.equal(answer.statusCode, 303);
      assert.equal(answer.headers.location, '/account/sign-in?to=%2Faccount%2Fpeople%3Fafter%3D12');
    }
  });

  it('takes the session’s cookie, and neither an API key nor an operator’s', async () => {
    assert.equal((await get({ cookie: cookieOf(secrets.owner) })).body, 'owner@example.org');
    const answer = await get({ authorization: `Bearer ${secrets.owner}` });
    assert.equal(answer.statusCode, 303);
  });

  it('asks the role for the permission that the route names', async () => {
    assert.equal((await get({ cookie: cookieOf(secrets.viewer) })).statusCode, 403);
    assert.equal((await app.inject(formRequest({}, secrets.viewer))).statusCode, 403);
  });

  it('takes a form of its own page', async () => {
    const answer = await app.inject(formRequest());
    assert.deepEqual([answer.statusCode, answer.body], [200, 'café']);
  });

  it('refuses a form of another site, or of none', async () => {
    const others = ['https://evil.example', 'null', 'http://matting.example', `${BASE_URL}:444`];
    for (const origin of others) {
      const answer = await app.inject(formRequest({ headers: { origin } }));
      assert.deepEqual([answer.statusCode, answer.body], [403, 'otherOrigin'], origin);
    }
    const { origin: _, ...headers } = formRequest().headers as Record<string, string>;
    const answer = await app.inject({ ...formRequest(), headers });
    assert.equal(answer.body, 'otherOrigin');
  });

  it('refuses a form without the token of its session and account', async () => {
    const tokens = [
      '',
      'x',
      tokenOf(secrets.viewer),
      `${tokenOf(secrets.owner)}x`,
      csrfTokenOf(secrets.owner, 'account-2'),
      csrfTokenOf(secrets.owner),
    ];
    for (const token of tokens) {
      const answer = await app.inject(formRequest({ payload: `csrf=${token}` }));
      assert.deepEqual([answer.statusCode, answer.body], [403, 'staleForm']);
    }
    const twice = `csrf=${tokenOf(secrets.owner)}&csrf=x`;
    assert.equal((await app.inject(formRequest({ payload: twice }))).statusCode, 400);
  });

  it('asks for the token of the visitor before sign-in', async () => {
    const visitor = createSecret();
    const sent = (token: string) =>
      app.inject(
        formRequest({
          url: '/account/sign-in',
          payload: `csrf=${token}`,
          headers: { cookie: `__Host-matting-visitor=${visitor}` },
        }),
      );
    assert.equal((await sent(csrfTokenOf(visitor))).body, 'signed in');
    assert.equal((await sent(csrfTokenOf(createSecret()))).body, 'staleForm');
  });

  it('looks at no cookie where a provider calls', async () => {
    const answer = await app.inject({ method: 'POST', url: '/account/notifications' });
    assert.equal(answer.body, 'noted');
  });

  it('refuses what no form sends', async () => {
    const token = `csrf=${tokenOf(secrets.owner)}`;
    const bodies: [payload: string, type: string][] = [
      [token, 'text/plain'],
      [token, `${FORM}; charset=utf-16`],
      [`${token}&name=%ff`, FORM],
      [`${token}${'&a=1'.repeat(64)}`, FORM],
      [`${token}&name=${'x'.repeat(33 * 1024)}`, FORM],
    ];
    for (const [payload, type] of bodies) {
      const answer = await app.inject(formRequest({ payload, headers: { 'content-type': type } }));
      assert.deepEqual([answer.statusCode, answer.body], [400, 'badForm'], payload.slice(0, 90));
    }
  });

  it('says where nobody can sign in', async () => {
    const insecure = await openApp('http://matting.example', false);
    try {
      const answer = await insecure.inject({ url: '/account/sign-in' });
      assert.deepEqual([answer.statusCode, answer.body], [403, 'insecure']);
    } finally {
      await insecure.close();
    }
  });

  it('leads from one name of this machine to the one that links have', async () => {
    const own = await openApp('http://127.0.0.1:8080');
    try {
      const url = '/account/sign-in?to=x';
      const there = await own.inject({ url, headers: { host: '127.0.0.1:8080' } });
      assert.equal(there.body, 'sign in');
      const { headers } = await own.inject({ url, headers: { host: 'localhost:8080' } });
      assert.equal(headers.location, `http://127.0.0.1:8080${url}`);
    } finally {
      await own.close();
    }
  });
});

describe('the way back after sign-in', () => {
  it('is a page of the area', () => {
    const good = ['/account', '/account/keys', '/account/jobs/a-b_c?after=1&state=failed'];
    for (const path of good) assert.equal(returnPathOf(path), path);
  });

  it('is never another host, another path or sign-in itself', () => {
    const bad = [
      'https://evil.example',
      '//evil.example',
      '/\\evil.example',
      '/account//evil.example',
      '/account/../v1',
      '/account/keys\\..',
      '/accounts',
      '/account\u0000',
      '/account/sign-in?to=/account/sign-in',
      `/account/${'a'.repeat(600)}`,
      '',
    ];
    for (const path of bad) assert.equal(returnPathOf(path), undefined, path);
  });
});
