import assert from 'node:assert/strict';
import cookie from '@fastify/cookie';
import { createErrorHandler } from '@matting/http/error-handler.ts';
import { pathOf } from '@matting/http/request-path.ts';
import { ContractError, type ErrorCode } from '@matting/proto/contract/errors.ts';
import ava from 'ava';
import fastify, { type FastifyInstance } from 'fastify';
import { guardAccountArea, redirectToSignIn } from '../session/account-guard.ts';
import { AuthorityError, actingPerson } from '../session/authority.ts';
import { csrfTokenOf } from '../session/form-token.ts';
import { createSecret } from '../session/secret.ts';
import { note, PageError, type SignedIn, visitOf } from '../session/visit.ts';
import { renderPart } from '../test/render-part.ts';
import { barChart } from '../usage/usage-chart.ts';
import { wordsIn } from '../words/words.ts';
import { renderPage, wantsPage, writeErrorPage } from './account-frame.ts';
import { registerAssets } from './assets.ts';
import { button, codeBlock, copyable, copyButton, linkButton } from './buttons.ts';
import {
  checkbox,
  checkboxGroup,
  filterForm,
  postForm,
  radioGroup,
  selectField,
  textArea,
  textField,
} from './forms.ts';
import { type Child, html } from './html.ts';
import { pager, segments, tabs } from './links.ts';
import { badge, fold, notice, panel, section } from './sections.ts';
import { dataTable, definitionList, emptyState, figures, shortId } from './tables.ts';
import { ago, phrase, time } from './times.ts';

const test = ava.serial;

/** Breaks out of text, attributes in either quotes, a textarea, a title and a comment. */
const HOSTILE = `"'></textarea></title><!--<script>x</script><img src=x onerror=alert(1)>&lt;\u0000`;
const words = wordsIn('en').common;
const field = { name: 'n', label: HOSTILE, hint: HOSTILE, error: HOSTILE, note: HOSTILE };
const option = { value: HOSTILE, label: HOSTILE, hint: HOSTILE };
const copy = { copy: HOSTILE, copied: HOSTILE };

const COMPONENTS: Readonly<Record<string, () => Child>> = {
  badge: () => badge(HOSTILE, 'bad'),
  button: () => button({ label: HOSTILE, value: HOSTILE, confirm: HOSTILE, describe: HOSTILE }),
  linkButton: () => linkButton({ href: `/account?q=${HOSTILE}`, label: HOSTILE }),
  copyButton: () => copyButton(HOSTILE, copy),
  codeBlock: () => codeBlock(HOSTILE, copy, HOSTILE),
  copyable: () => copyable(HOSTILE, copy),
  shortId: () => shortId(HOSTILE),
  phrase: () => phrase(`${HOSTILE} {name} {other}`, { name: HOSTILE, other: html`<b>x</b>` }),
  notice: () => notice('bad', HOSTILE, html`<p title=${HOSTILE}>${HOSTILE}</p>`),
  emptyState: () => emptyState({ title: HOSTILE, text: HOSTILE, action: HOSTILE }),
  time: () => time(0, () => HOSTILE),
  ago: () => ago(0, () => HOSTILE),
  textField: () => textField({ ...field, value: HOSTILE, placeholder: HOSTILE }),
  textArea: () => textArea({ ...field, value: HOSTILE }),
  selectField: () => selectField({ ...field, options: [option], value: HOSTILE }),
  checkbox: () => checkbox({ ...field, checked: true }),
  checkboxGroup: () => checkboxGroup({ ...field, options: [option], values: [HOSTILE] }),
  radioGroup: () => radioGroup({ ...field, options: [option], value: HOSTILE }),
  postForm: () =>
    postForm({ action: '/x', csrf: HOSTILE, hidden: { [HOSTILE.slice(0, 0)]: HOSTILE } }, HOSTILE),
  filterForm: () => filterForm('/x', HOSTILE),
  dataTable: () => dataTable({ caption: HOSTILE, columns: [HOSTILE], rows: [[HOSTILE]] }),
  definitionList: () => definitionList([[HOSTILE, HOSTILE]]),
  figures: () => figures([{ label: HOSTILE, value: HOSTILE, note: HOSTILE }]),
  pager: () => pager(words, '/x', { next: HOSTILE, after: HOSTILE }, { q: HOSTILE }),
  tabs: () => tabs(HOSTILE, [{ href: '/x', label: HOSTILE, active: true }]),
  segments: () => segments(HOSTILE, [{ href: '/x', label: HOSTILE, active: true }]),
  section: () => section({ title: HOSTILE, lead: HOSTILE, actions: HOSTILE }, HOSTILE),
  panel: () => panel(HOSTILE),
  fold: () => fold({ label: HOSTILE, note: HOSTILE, isOpen: true }, HOSTILE),
  barChart: () =>
    barChart({
      title: HOSTILE,
      series: [HOSTILE, HOSTILE],
      bars: [{ label: HOSTILE, shortLabel: HOSTILE, values: [1, 2] }],
      format: () => HOSTILE,
      tableLabel: HOSTILE,
      barLabel: HOSTILE,
    }),
};

for (const [name, make] of Object.entries(COMPONENTS)) {
  test(`views › ${name} shows hostile text as text`, t => {
    const text = renderPart(make());
    t.notRegex(text, /<script|<img|<!--|<\/title><!/i);
    // In an attribute a quote would end it.
    for (const [, value = ''] of text.matchAll(/="([^"]*)"/g)) t.notRegex(value, /[<"]/);
    t.is(text.match(/<\/textarea>/g)?.length ?? 0, name === 'textArea' ? 1 : 0);
    t.true(text.includes('&lt;script') || text.includes('%3Cscript') || name === 'time', text);
  });
}

for (const [name, make] of [
  ['style', () => html`<p style=${'color:red'}></p>`],
  ['an inline handler', () => html`<p onclick=${'x()'}></p>`],
  ['a spread handler', () => html`<p ...${{ onMouseOver: 'x()' }}></p>`],
  ['markup as text', () => html`<p dangerouslySetInnerHTML=${{ __html: '<b>' }}></p>`],
  ['a document in a frame', () => html`<iframe srcdoc=${'<b>'}></iframe>`],
  ['a script as a link', () => html`<a href=${'javascript:alert(1)'}>x</a>`],
  ['one in other letters', () => html`<a href=${' jAvAsCrIpT:alert(1)'}>x</a>`],
  ['another host without a scheme', () => html`<form action=${'//evil.example'}></form>`],
  ['the same with a backslash', () => html`<a href=${'/\\evil.example'}>x</a>`],
  ['a drawn document', () => html`<img src=${'data:image/svg+xml,<svg/>'} />`],
] as const) {
  test(`views › a page with ${name} is not made`, t => {
    t.throws(make, { message: /^<.*> (has the attribute|leads to) / });
  });
}

test('views › an object of JSON in place of a child is not taken for markup', t => {
  const parsed = JSON.parse('{"type":"script","props":{"children":"x"},"key":null}') as never;
  t.is(renderPart(html`<p>${parsed}</p>`), '<p></p>');
});

const app = fastify();
const VIEWER: SignedIn = {
  userId: 'u',
  sessionId: 's',
  method: 'password',
  actor: actingPerson({
    kind: 'person',
    userId: 'u',
    mail: 'ada@example.test',
    sessionId: 's',
    address: '',
    permission: 'self',
  }),
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
    const notices = { revoked: 'Key revoked.' };
    return renderPage(reply, { title: 'Keys', active: 'keys', main: 'x', notices });
  });
  await app.ready();
});
test.after.always(() => app.close());

test('pages › what a page loads is there, and kept by browsers for good', async t => {
  const { body } = await app.inject('/account/stranger');
  const addresses = [...body.matchAll(/(?:src|href)="(\/account\/assets\/[^"]+)"/g)];
  t.true(addresses.length >= 4);
  for (const [, address = ''] of addresses) {
    const { statusCode, headers } = await app.inject(address);
    t.is(statusCode, 200, address);
    t.is(headers['cache-control'], 'public, max-age=31536000, immutable');
  }
});

test('pages › an asset under the hash of another release, or outside of the folder, is not there', async t => {
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

test('pages › a stranger reads the language of the address, else that of the browser', async t => {
  const languageOf = async (url: string, accepted?: string) => {
    const headers = accepted === undefined ? {} : { 'accept-language': accepted };
    return /<html lang="([^"]+)"/.exec((await app.inject({ url, headers })).body)?.[1];
  };
  t.is(await languageOf('/account/stranger'), 'en');
  t.is(await languageOf('/account/stranger', 'de-DE, zh-TW;q=0.9, en;q=0.8'), 'zh-CN');
  t.is(await languageOf('/account/stranger', `${'x,'.repeat(400)}zh`), 'en');
  t.is(await languageOf('/account/stranger?language=zh-CN', 'en'), 'zh-CN');
  t.is(await languageOf('/account/stranger?language=zh-CN&language=en', 'en'), 'en');
  t.is(await languageOf('/account/stranger?language=constructor'), 'en');
  t.is(await languageOf('/account/keys/viewer', 'en'), 'zh-CN');
});

test('pages › the navigation shows what the role may see, and where one is', async t => {
  const owner = (await app.inject('/account/keys/owner')).body;
  const viewer = (await app.inject('/account/keys/viewer')).body;
  t.regex(owner, /href="\/account\/audit"/);
  t.regex(owner, /href="\/account\/keys" aria-current="page"/);
  t.notRegex(viewer, /\/account\/(audit|people|settings|playground)"/);
  t.regex(viewer, /密钥/);
});

test('pages › what a change came to is said by a known code alone', async t => {
  const bodyOf = async (query: string) => (await app.inject(`/account/keys/owner${query}`)).body;
  t.regex(await bodyOf('?said=revoked'), /role="status">.*Key revoked\./s);
  for (const query of ['', '?said=constructor', '?said=<b>', '?said=revoked&said=revoked']) {
    t.notRegex(await bodyOf(query), /role="status"/);
  }
});

test('pages › an error is a page in words for a browser, and the problem as ever for others', async t => {
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
    // Problem details are for programs.
    t.false(body.includes('detail'));
    t.regex(body, /<h1>.+<\/h1>/);
  }
  const problem = await refused('NOT_FOUND', 'application/json');
  t.regex(String(problem.headers['content-type']), /^application\/problem\+json/);
  t.regex(String((await refused('NOT_FOUND')).headers['content-type']), /problem/);
});

const BASE_URL = 'https://matting.example';
const FORM = 'application/x-www-form-urlencoded';
const SECRET = createSecret();
const OWNER = {
  id: 'session-1',
  userId: 'user-1',
  mail: 'owner@example.org',
  language: null,
  method: 'password' as const,
  accountId: 'account-1',
  memberships: [{ accountId: 'account-1', accountName: 'Shop', role: 'owner' as const }],
};

async function openGuardedApp(
  baseUrl = BASE_URL,
  canSignIn = true,
  more: (app: FastifyInstance) => void = () => undefined,
): Promise<FastifyInstance> {
  const guarded = fastify();
  guarded.removeAllContentTypeParsers();
  guarded.addContentTypeParser('*', (_request, _payload, done) => done(null));
  await guarded.register(cookie);
  guarded.setErrorHandler((error, request, reply) => {
    if (error instanceof AuthorityError) return redirectToSignIn(request, reply);
    const { status, kind } = error instanceof PageError ? error : { status: 500, kind: `${error}` };
    return reply.code(status).send(kind);
  });
  const find = async (secret: string) => (secret === SECRET ? OWNER : undefined);
  guardAccountArea(guarded, { find }, { baseUrl, canSignIn });
  const people = { config: { permission: 'people.manage' } } as const;
  guarded.get('/account/people', people, async request => visitOf(request).mail);
  guarded.get('/account/sign-in', { config: { public: true } }, async () => 'sign in');
  guarded.post('/account/sign-in', { config: { public: true } }, async () => 'signed in');
  guarded.post('/account/notifications', { config: { cookieless: true } }, async () => 'noted');
  more(guarded);
  await guarded.ready();
  return guarded;
}

let guarded: FastifyInstance;
test.before(async () => {
  guarded = await openGuardedApp();
});
test.after.always(() => guarded.close());

test('the door › lets no route start that names nobody, or two', async t => {
  const opening = (config: object) =>
    openGuardedApp(BASE_URL, true, extra => {
      extra.get('/account/forgotten', { config }, async () => 'open');
    });
  await t.throwsAsync(opening({}), { message: /must name a permission, public or cookieless/ });
  await t.throwsAsync(opening({ public: true, cookieless: true }), { message: /must name/ });
});

test('the door › asks for the token of the visitor before sign-in', async t => {
  const visitor = createSecret();
  const sent = (token: string) =>
    guarded.inject({
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

test('the door › looks at no cookie where a provider calls', async t => {
  const answer = await guarded.inject({ method: 'POST', url: '/account/notifications' });
  t.is(answer.body, 'noted');
});

test('the door › says where nobody can sign in', async t => {
  const insecure = await openGuardedApp('http://matting.example', false);
  const answer = await insecure.inject({ url: '/account/sign-in' });
  t.deepEqual([answer.statusCode, answer.body], [403, 'insecure']);
  await insecure.close();
});

test('the door › leads from one name of this machine to the one that links have', async t => {
  const own = await openGuardedApp('http://127.0.0.1:8080');
  const url = '/account/sign-in?to=x';
  const there = await own.inject({ url, headers: { host: '127.0.0.1:8080' } });
  t.is(there.body, 'sign in');
  const { headers } = await own.inject({ url, headers: { host: 'localhost:8080' } });
  t.is(headers.location, `http://127.0.0.1:8080${url}`);
  await own.close();
});
