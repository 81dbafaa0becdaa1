/**
 * The door of the account area, by routes of the test's own: what attacks/ does not try on the
 * area's real ones.
 */

import cookie from '@fastify/cookie';
import ava from 'ava';
import fastify, { type FastifyInstance } from 'fastify';
import { AuthorityError } from '../../../src/domain/account/authority.ts';
import { askToSignIn, guardAccountArea } from '../../../src/http/account/session/account-door.ts';
import { createSecret, csrfTokenOf } from '../../../src/http/account/session/cookies.ts';
import { PageError } from '../../../src/http/account/session/page-error.ts';
import { visitOf } from '../../../src/http/account/session/visit.ts';
import type { FoundSession } from '../../../src/store/people/session-store.ts';

const test = ava.serial;

const BASE_URL = 'https://matting.example';
const FORM = 'application/x-www-form-urlencoded';
const SECRET = createSecret();
const OWNER: FoundSession = {
  id: 'session-1',
  userId: 'user-1',
  mail: 'owner@example.org',
  language: null,
  method: 'password',
  accountId: 'account-1',
  memberships: [{ accountId: 'account-1', accountName: 'Shop', role: 'owner' }],
};

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
    if (error instanceof AuthorityError) return askToSignIn(request, reply);
    const { status, kind } = error instanceof PageError ? error : { status: 500, kind: `${error}` };
    return reply.code(status).send(kind);
  });
  const find = async (secret: string) => (secret === SECRET ? OWNER : undefined);
  guardAccountArea(app, { find }, { baseUrl, canSignIn });
  const people = { config: { permission: 'people.manage' } } as const;
  app.get('/account/people', people, async request => visitOf(request).mail);
  app.get('/account/sign-in', { config: { public: true } }, async () => 'sign in');
  app.post('/account/sign-in', { config: { public: true } }, async () => 'signed in');
  app.post('/account/notifications', { config: { cookieless: true } }, async () => 'noted');
  more(app);
  await app.ready();
  return app;
}

let app: FastifyInstance;
test.before(async () => {
  app = await openApp();
});
test.after.always(() => app.close());

test('lets no route start that names nobody, or two', async t => {
  const opening = (config: object) =>
    openApp(BASE_URL, true, extra => {
      extra.get('/account/forgotten', { config }, async () => 'open');
    });
  await t.throwsAsync(opening({}), { message: /must name a permission, public or cookieless/ });
  await t.throwsAsync(opening({ public: true, cookieless: true }), { message: /must name/ });
});

test('asks for the token of the visitor before sign-in', async t => {
  const visitor = createSecret();
  const sent = (token: string) =>
    app.inject({
      method: 'POST',
      url: '/account/sign-in',
      payload: `csrf=${token}`,
      headers: {
        cookie: `__Host-matting-visitor=${visitor}`,
        origin: BASE_URL,
        'content-type': FORM,
      },
    });
  t.is((await sent(csrfTokenOf(visitor))).body, 'signed in');
  t.is((await sent(csrfTokenOf(createSecret()))).body, 'staleForm');
});

test('looks at no cookie where a provider calls', async t => {
  const answer = await app.inject({ method: 'POST', url: '/account/notifications' });
  t.is(answer.body, 'noted');
});

test('says where nobody can sign in', async t => {
  const insecure = await openApp('http://matting.example', false);
  const answer = await insecure.inject({ url: '/account/sign-in' });
  t.deepEqual([answer.statusCode, answer.body], [403, 'insecure']);
  await insecure.close();
});

test('leads from one name of this machine to the one that links have', async t => {
  const own = await openApp('http://127.0.0.1:8080');
  const url = '/account/sign-in?to=x';
  const there = await own.inject({ url, headers: { host: '127.0.0.1:8080' } });
  t.is(there.body, 'sign in');
  const { headers } = await own.inject({ url, headers: { host: 'localhost:8080' } });
  t.is(headers.location, `http://127.0.0.1:8080${url}`);
  await own.close();
});
