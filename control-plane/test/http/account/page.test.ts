/** Pages and assets as answers: headers, caching, languages, navigation by role. */
import assert from 'node:assert/strict';
import ava from 'ava';
import fastify from 'fastify';
import { ContractError, type ErrorCode } from '#contract/errors.ts';
import { registerAssets } from '../../../src/http/account/page/assets.ts';
import { html } from '../../../src/http/account/page/html.ts';
import {
  renderPage,
  wantsPage,
  writeErrorPage,
} from '../../../src/http/account/page/render-page.ts';
import { note, type SignedIn } from '../../../src/http/account/session/visit.ts';
import { createErrorHandler, pathOf } from '../../../src/http/answers/error-handler.ts';

const test = ava.serial;

const app = fastify();
const VIEWER: SignedIn = {
  userId: 'u',
  sessionId: 's',
  method: 'password',
  actor: {
    kind: 'person',
    userId: 'u',
    mail: 'ada@example.test',
    sessionId: 's',
    address: '',
    permission: 'self',
  },
  mail: 'ada@example.test',
  accountId: 'a',
  accountName: '<b>Shop</b>',
  role: 'owner',
  csrf: 'token',
  accounts: [
    { id: 'a', name: '<b>Shop</b>', role: 'owner' },
    { id: 'b', name: 'Other "shop"', role: 'owner' },
  ],
};

test.before(async () => {
  app.setErrorHandler(
    createErrorHandler('http://127.0.0.1', {
      writerOf: request => (wantsPage(request, pathOf(request)) ? writeErrorPage : undefined),
    }),
  );
  app.get<{ Params: { code: ErrorCode } }>('/account/refused/:code', request => {
    throw new ContractError(request.params.code, '<b>detail</b>');
  });
  registerAssets(app, '/account/assets');
  app.get('/account/stranger', (_request, reply) =>
    renderPage(reply, { title: 'Hello', main: html`<p>there</p>` }),
  );
  app.get<{ Params: { role: SignedIn['role'] } }>('/account/keys/:role', (request, reply) => {
    const { role } = request.params;
    const language = role === 'viewer' ? 'zh-CN' : 'en';
    note(request, { person: { ...VIEWER, role }, csrf: VIEWER.csrf, language });
    const said = { revoked: 'The key is revoked.' };
    return renderPage(reply, { title: 'Keys', active: 'keys', main: 'x', said });
  });
  await app.ready();
});
test.after.always(() => app.close());

test('what a page loads is there, and kept by browsers for good', async t => {
  const { body } = await app.inject('/account/stranger');
  const addresses = [...body.matchAll(/(?:src|href)="(\/account\/assets\/[^"]+)"/g)];
  t.true(addresses.length >= 4);
  for (const [, address = ''] of addresses) {
    const { statusCode, headers } = await app.inject(address);
    t.is(statusCode, 200, address);
    t.is(headers['cache-control'], 'public, max-age=31536000, immutable');
  }
});

test('an asset under the hash of another release, or outside of the folder, is not there', async t => {
  const { body } = await app.inject('/account/stranger');
  const style = /\/account\/assets\/(\w+)\/style\.css/.exec(body);
  assert.ok(style !== null);
  for (const address of [
    '/account/assets/0123456789abcdef/style.css',
    `/account/assets/${style[1]}/copy.js`,
    `/account/assets/${style[1]}/..%2Fpage%2Fassets.ts`,
    `/account/assets/${style[1]}/tsconfig.json`,
    `/account/assets/${style[1]}/constructor`,
  ]) {
    const answer = await app.inject(address);
    t.not(answer.statusCode, 200, address);
    t.not(answer.headers['cache-control'], 'public, max-age=31536000, immutable');
  }
});

test('a stranger reads the language of the address, else that of the browser', async t => {
  const languageOf = async (url: string, accepted?: string) => {
    const headers = accepted === undefined ? {} : { 'accept-language': accepted };
    return /<html lang="([^"]+)"/.exec((await app.inject({ url, headers })).body)?.[1];
  };
  t.is(await languageOf('/account/stranger'), 'en');
  t.is(await languageOf('/account/stranger', 'de-DE, zh-TW;q=0.9, en;q=0.8'), 'zh-CN');
  t.is(await languageOf('/account/stranger', 'fr'), 'en');
  t.is(await languageOf('/account/stranger', `${'x,'.repeat(400)}zh`), 'en');
  t.is(await languageOf('/account/stranger?language=zh-CN', 'en'), 'zh-CN');
  t.is(await languageOf('/account/stranger?language=zh-CN&language=en', 'en'), 'en');
  t.is(await languageOf('/account/stranger?language=constructor'), 'en');
  t.is(await languageOf('/account/keys/viewer', 'en'), 'zh-CN');
});

test('the link to another language keeps what else the address has', async t => {
  const { body } = await app.inject('/account/stranger?to=%2Faccount%2Fkeys&language=en');
  t.regex(body, /href="\/account\/stranger\?to=%2Faccount%2Fkeys&amp;language=zh-CN"/);
});

test('the navigation shows what the role may see, and where one is', async t => {
  const owner = (await app.inject('/account/keys/owner')).body;
  const viewer = (await app.inject('/account/keys/viewer')).body;
  t.regex(owner, /href="\/account\/audit"/);
  t.regex(owner, /href="\/account\/keys" aria-current="page"/);
  t.notRegex(viewer, /\/account\/(audit|people|settings|playground)"/);
  t.regex(viewer, /密钥/);
});

test('what a change came to is said by a known code alone', async t => {
  const bodyOf = async (query: string) => (await app.inject(`/account/keys/owner${query}`)).body;
  t.regex(await bodyOf('?said=revoked'), /role="status">.*The key is revoked\./s);
  for (const query of ['', '?said=constructor', '?said=<b>', '?said=revoked&said=revoked']) {
    t.notRegex(await bodyOf(query), /role="status"/);
  }
});

test('an error is a page in words for a browser, and the problem as ever for others', async t => {
  const refused = async (code: string, accept?: string) =>
    app.inject({
      url: `/account/refused/${code}`,
      headers: accept === undefined ? {} : { accept },
    });
  const html = 'text/html,application/xhtml+xml,*/*;q=0.8';
  const statuses = {
    NOT_FOUND: 404,
    JOB_NOT_FOUND: 404,
    SERVICE_UNAVAILABLE: 503,
    RATE_LIMITED: 429,
    INVALID_REQUEST: 400,
    INTERNAL_ERROR: 500,
  };
  for (const [code, status] of Object.entries(statuses)) {
    const { statusCode, headers, body } = await refused(code, html);
    t.is(statusCode, status, code);
    t.regex(String(headers['content-type']), /^text\/html/);
    t.is(headers['www-authenticate'], undefined);
    t.is('retry-after' in headers, status === 429 || status === 503);
    // What a program reads is not what a person needs.
    t.false(body.includes('detail'));
    t.regex(body, /<h1>.+<\/h1>/);
  }
  const problem = await refused('NOT_FOUND', 'application/json');
  t.regex(String(problem.headers['content-type']), /^application\/problem\+json/);
  t.regex(String((await refused('NOT_FOUND')).headers['content-type']), /problem/);
});
