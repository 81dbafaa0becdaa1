/**
 * Every registered route of the area meets callers without the right, other sites, and hostile
 * forms, addresses and names.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { BASE_URL, pngHeader, type ScopedRoute } from '@matting/core/test/support/test-app.ts';
import { requestOwner } from '@matting/program/request-owner.ts';
import ava, { type ExecutionContext } from 'ava';
import type { LightMyRequestResponse } from 'fastify';
import { csrfTokenOf } from '../../session/form-token.ts';
import { ROLES, type Role } from '../../session/roles.ts';
import { createSecret } from '../../session/secret.ts';
import { APP_ROUTES, OPEN_ROUTES } from '../area/app-routes.ts';
import { ReadPage } from '../area/pages.ts';
import { multipartOf, Person, type Sent } from '../area/person.ts';
import { type Registered, registerPerson } from '../area/sign-in.ts';
import { makeThing, makeThings, submitJob, type ThingName, type Things } from '../area/things.ts';
import { filled, type Member, routesOf, signedIn, useWorld } from '../area/world.ts';
import { newLink, OPERATOR } from '../people.ts';

const test = ava.serial;

const nameOf = ({ method, url }: ScopedRoute) => `${method} ${url}`;
const startOf = (body: string) => /<h1>.*?<\/h1>/.exec(body)?.[0] ?? body.slice(0, 300);
/** For the caller or the thing. A form without fields has other codes. */
const REFUSED = [401, 403, 404];

let routes: readonly ScopedRoute[];
let gets: readonly ScopedRoute[];
let posts: readonly ScopedRoute[];
const world = useWorld(test, {}, async () => {
  routes = routesOf(world.test);
  gets = routes.filter(({ method }) => method === 'GET');
  posts = routes.filter(({ method, config }) => method === 'POST' && config.cookieless !== true);
  known = await registerPerson(world, 'owner');
  const { rateQuotas } = world.test.stores;
  const { nowMs, lease } = rateQuotas;
  Object.assign(rateQuotas, { nowMs: countAsks(nowMs), lease: countAsks(lease) });
});
let known: Registered;
/** The rate limiter asks for all callers, so its statements belong to no request. */
let asksOfRates = 0;
const countAsks =
  <Args extends unknown[], Answer>(send: (...args: Args) => Promise<Answer>) =>
  async (...args: Args) => {
    asksOfRates += 1;
    try {
      return await send(...args);
    } finally {
      asksOfRates -= 1;
    }
  };

const guarded = () => routes.filter(({ config }) => config.permission !== undefined);
const requestOf = (route: ScopedRoute, things: Partial<Things>) => {
  const { params = {}, fields = {}, things: named = {} } = APP_ROUTES[nameOf(route)] ?? {};
  const idOf = (name: ThingName | undefined) =>
    (name && things[name]) ?? assert.fail(`${nameOf(route)}: app-routes.ts lacks a thing`);
  const chosen = Object.entries(named).map(([field, name]) => [field, idOf(name)]);
  return {
    url: filled(route.url, name => idOf(params[name])),
    fields: { ...fields, ...Object.fromEntries(chosen) } as Record<string, string>,
  };
};
/** From app-routes.ts alone, since the test judges what the route declares. */
const isFor = (role: Role, route: ScopedRoute): boolean =>
  APP_ROUTES[nameOf(route)]?.roles.includes(role) ?? false;
const thingsIn = (route: ScopedRoute): ThingName[] => {
  const { params = {}, things = {} } = APP_ROUTES[nameOf(route)] ?? {};
  return [...Object.values(params), ...Object.values(things)];
};
const ownThings = async (route: ScopedRoute, person: Member): Promise<Partial<Things>> => {
  const made = thingsIn(route).map(async name => [
    name,
    await makeThing(world.test, name, world.ours, person),
  ]);
  return Object.fromEntries(await Promise.all(made));
};
const request = async (who: Person, route: ScopedRoute, things: Partial<Things>, csrf: string) => {
  const { url, fields } = requestOf(route, things);
  const { shares } = world.test.stores;
  const { run } = shares;
  shares.run = work => {
    const isOwned = requestOwner() !== undefined || asksOfRates > 0;
    assert.ok(isOwned, `${nameOf(route)} asks the database as nobody's request`);
    return run.call(shares, work) as ReturnType<typeof work>;
  };
  try {
    if (route.method === 'GET') return await who.get(url);
    const isMarked = route.url.endsWith('/corrections');
    return await (isMarked ? who.post(url, {}, marksOf(csrf)) : who.post(url, fields, { csrf }));
  } finally {
    shares.run = run;
  }
};

function marksOf(csrf: string): Sent {
  const fields = { csrf, once: createSecret(), keep: '[{"box":[0,0,1,1]}]' };
  return { csrf: null, ...multipartOf(fields) };
}

test('rights › every route has its line', t => {
  const known = guarded().map(nameOf).sort();
  t.deepEqual(known, Object.keys(APP_ROUTES).sort());
  const open = routes.filter(({ config }) => config.permission === undefined);
  t.deepEqual(open.map(nameOf).sort(), [...OPEN_ROUTES].sort());
});

test('rights › a visitor without a session gets no further than sign-in', async t => {
  const things = await makeThings(world.test, world.ours);
  for (const route of guarded()) {
    const stranger = world.stranger();
    const answer = await request(stranger, route, things, await stranger.token());
    t.is(answer.statusCode, 303, `${nameOf(route)}: ${answer.body}`);
    t.regex(String(answer.headers.location), /^\/account\/sign-in(?:\?to=%2Faccount|$)/);
  }
});

for (const role of ROLES) {
  test(`rights › a ${role} has exactly the role’s rights, in the own account`, async t => {
    const { accountId, people } = world.ours;
    // The archive of results needs one.
    await makeThing(world.test, 'jobId', world.ours, people[role]);
    for (const route of guarded()) {
      // A new person for each form, since some end the session or the membership that sends it.
      const isForm = route.method === 'POST';
      const person = isForm ? await world.join(accountId, role) : people[role];
      const things = await ownThings(route, person);
      const answer = await request(person, route, things, await person.token());
      const isAllowed = isFor(role, route);
      const text = `${role} ${nameOf(route)}: ${answer.statusCode} ${startOf(answer.body)}`;
      t.true(answer.statusCode < 500, text);
      if (!isAllowed) t.is(answer.statusCode, 403, text);
      else t.false(REFUSED.includes(answer.statusCode), text);
    }
  });

  test(`rights › another account’s things do not exist for a ${role}`, async t => {
    const things = await makeThings(world.test, world.theirs);
    const before = world.rows();
    const { [role]: person } = world.ours.people;
    const csrf = await person.token();
    for (const route of guarded().filter(one => thingsIn(one).length > 0)) {
      const { url } = requestOf(route, things);
      const answer = await request(person, route, things, csrf);
      const isAllowed = isFor(role, route);
      const text = `${role} ${nameOf(route)}: ${answer.statusCode} ${startOf(answer.body)}`;
      t.is(answer.statusCode, isAllowed ? 404 : 403, text);
      // The page's own address is in its forms.
      const body = answer.body.replaceAll(url, '');
      for (const thing of Object.values(things)) t.false(body.includes(thing), text);
    }
    t.deepEqual(world.rows(), before);
  });
}

const urlOf = (route: ScopedRoute) => filled(route.url, () => randomUUID());

const sentWith = ({ config }: ScopedRoute, csrf: string | null): Sent => {
  if (config.body === 'multipart') {
    const fields = { ...(csrf !== null && { csrf }), once: createSecret() };
    return { csrf: null, ...multipartOf(fields, pngHeader(4, 3)) };
  }
  return { csrf };
};

test('rights › the navigation has exactly the pages that each role may see', async t => {
  const entries = new Set<string>();
  const shownTo = new Map<Role, readonly string[]>();
  for (const role of ROLES) {
    const { body } = await world.ours.people[role].get('/account');
    const [nav = ''] = /<nav class="side"[\s\S]*?<\/nav>/.exec(body) ?? [];
    const hrefs = [...nav.matchAll(/href="(\/account[^"]*)"/g)].map(([, href = '']) => href);
    shownTo.set(role, hrefs);
    for (const href of hrefs) entries.add(href);
  }
  t.true(entries.size >= 9, `the navigation was not found: ${[...entries].join(', ')}`);
  for (const href of entries) {
    const roles = APP_ROUTES[`GET ${href}`]?.roles;
    t.deepEqual(
      ROLES.filter(role => shownTo.get(role)?.includes(href)),
      roles,
      href,
    );
  }
});

test('other sites › methods of the area are GET and POST alone', t => {
  const methods = new Set(routes.map(({ method }) => method));
  t.deepEqual([...methods].sort(), ['GET', 'POST']);
  t.true(posts.length > 10 && gets.length > 20, 'the routes were not found');
});

test('other sites › a form without our Origin is refused', async t => {
  const { owner } = world.ours.people;
  const before = world.rows();
  const origins = [
    undefined,
    'null',
    'https://evil.example',
    BASE_URL.replace('https', 'http'),
    `${BASE_URL}.evil.example`,
    `${BASE_URL}:444`,
    `${BASE_URL}/`,
    BASE_URL.toUpperCase(),
  ];
  const csrf = await owner.token();
  for (const [index, route] of posts.entries()) {
    // One guard serves all routes: the first meets all origins, the others some.
    for (const origin of index === 0 ? origins : origins.slice(0, 3)) {
      const answer = await owner.post(urlOf(route), {}, { csrf, headers: { origin } });
      t.is(answer.statusCode, 403, `${route.url} from ${origin}: ${answer.body}`);
    }
  }
  t.deepEqual(world.rows(), before);
});

test('other sites › a form without the token of this session is refused', async t => {
  const { owner, member } = world.ours.people;
  const secret = owner.cookies.get('__Host-matting-session') ?? '';
  const token = await owner.token();
  const others = [
    await member.token(),
    csrfTokenOf(secret),
    csrfTokenOf(secret, world.theirs.accountId),
  ];
  t.false(others.includes(token));
  const before = world.rows();
  const broken = [token.slice(1), `${token}x`, token.toLowerCase()];
  const tokens = [null, '', ...others, ...broken, secret];
  for (const [index, route] of posts.entries()) {
    for (const csrf of index === 0 ? tokens : tokens.slice(0, 5)) {
      const answer = await owner.post(urlOf(route), {}, sentWith(route, csrf));
      t.is(answer.statusCode, 403, `${route.url} with ${csrf}: ${answer.body}`);
    }
    const url = `${urlOf(route)}?csrf=${token}`;
    const inQuery = await owner.post(url, {}, sentWith(route, null));
    t.is(inQuery.statusCode, 403, `${route.url} with a token in the address`);
  }
  t.deepEqual(world.rows(), before);
});

test('other sites › reading changes nothing', async t => {
  const before = world.rows();
  for (const route of gets) {
    for (const method of ['GET', 'HEAD'] as const) {
      const { owner } = world.ours.people;
      const headers = { host: new URL(BASE_URL).host, cookie: owner.cookieHeader };
      const answer = await world.test.app.inject({ method, url: urlOf(route), headers });
      t.true(answer.statusCode < 500, `${method} ${route.url}: ${answer.body}`);
    }
  }
  t.deepEqual(world.rows(), before);
});

function requireHeaders(t: ExecutionContext, answer: LightMyRequestResponse, what: string): void {
  const { headers } = answer;
  const policy = String(headers['content-security-policy']);
  const directives = new Map(
    policy.split(';').map(one => {
      const [name = '', ...values] = one.trim().split(/\s+/);
      return [name, values.join(' ')];
    }),
  );
  t.is(directives.get('default-src'), "'none'", `${what}: ${policy}`);
  t.is(directives.get('frame-ancestors'), "'none'", `${what}: ${policy}`);
  t.notRegex(policy, /unsafe|\*|https?:/, `${what}: ${policy}`);
  t.is(headers['x-content-type-options'], 'nosniff', what);
  t.regex(String(headers['referrer-policy']), /^(?:no-referrer|same-origin)$/, what);
  const type = String(headers['content-type'] ?? '');
  // Files of the release are the same for everyone.
  const isFile = /immutable/.test(String(headers['cache-control'])) || /demo\.jpg/.test(what);
  if (!isFile) t.regex(String(headers['cache-control']), /no-store/, what);
  if (!type.startsWith('text/html')) return;
  t.regex(type, /charset=utf-8/, what);
  t.is(directives.get('base-uri'), "'none'", what);
  t.regex(String(directives.get('form-action')), /^'self'/, what);
  t.is(headers['cross-origin-opener-policy'], 'same-origin', what);
  t.is(headers['cross-origin-resource-policy'], 'same-origin', what);
  t.deepEqual(new ReadPage(answer.body).dangers, [], what);
}

test('headers › pages and refusals cannot be framed, sniffed, cached or made to run what is not ours', async t => {
  const { owner, viewer } = world.ours.people;
  for (const { method, url: pattern } of routes) {
    const url = filled(pattern, () => randomUUID());
    const accept = { headers: { accept: 'text/html' } };
    for (const who of [owner, viewer, world.stranger()]) {
      const answer =
        method === 'GET' ? await who.get(url, accept) : await who.post(url, {}, { csrf: '' });
      requireHeaders(t, answer, `${method} ${url}: ${answer.statusCode}`);
    }
  }
  for (const url of ['/account/nothing-here', '/account/keys/../../v1', '/accountant']) {
    requireHeaders(t, await owner.get(url, { headers: { accept: 'text/html' } }), url);
  }
});

test('an unknown address › keeps the navigation of who is signed in', async t => {
  const { viewer } = world.ours.people;
  for (const url of ['/account/nothing-here', '/account/keys/none/rotate']) {
    const pages = { headers: { accept: 'text/html' } };
    t.regex((await viewer.get(url, pages)).body, /<nav .*href="\/account\/jobs".*Go to overview/s);
    t.regex((await world.stranger().get(url, pages)).body, /<body class="narrow">.*Sign in/s);
    t.is((await viewer.get(url)).json().status, url.endsWith('rotate') ? 405 : 404, 'programs');
  }
});

test('headers › cookies are of this host alone, out of reach of scripts, and small', async t => {
  const stranger = world.stranger();
  const answers = [await stranger.get('/account'), await stranger.get('/account/sign-in')];
  const cookies = answers.flatMap(({ headers }) => [headers['set-cookie'] ?? []].flat());
  t.true(cookies.length > 0, 'no cookie is set before sign-in');
  for (const cookie of cookies) {
    t.regex(cookie, /^__Host-[a-z-]+=[\w-]*;/, cookie);
    t.regex(cookie, /; Path=\/(?:;|$)/, cookie);
    t.regex(cookie, /; Secure/, cookie);
    t.regex(cookie, /; HttpOnly/, cookie);
    t.regex(cookie, /; SameSite=(?:Lax|Strict)/, cookie);
    t.true(!/Domain=/i.test(cookie) && cookie.length < 4096, cookie);
  }
});

test('headers › no key opens the area, and no cookie the API', async t => {
  const { owner } = world.ours.people;
  const stranger = world.stranger();
  for (const { method, url: pattern, config } of routes) {
    if (config.permission === undefined) continue;
    const url = filled(pattern, () => randomUUID());
    const headers = { authorization: `Bearer ${world.test.token}` };
    const answer =
      method === 'GET'
        ? await stranger.get(url, { headers })
        : await stranger.post(url, {}, { csrf: '', headers });
    t.true([303, 403].includes(answer.statusCode), `${url}: ${answer.statusCode}`);
  }
  for (const url of ['/v1/account/keys', '/v1/matting/jobs/x']) {
    const answer = await owner.get(url, { headers: { 'idempotency-key': randomUUID() } });
    t.is(answer.statusCode, 401, `${url}: ${answer.body}`);
  }
});

const FIELDS = ['after', 'from', 'to', 'said', 'status', 'group', 'key', 'language', 'token'];
const FORM = 'application/x-www-form-urlencoded';

const cases = (csrf: string): Record<string, { payload: string | Buffer; type?: string }> => ({
  'too large': { payload: `csrf=${csrf}&name=${'a'.repeat(32 * 1024)}` },
  'too many fields': { payload: `csrf=${csrf}&${'a=1&'.repeat(5000)}` },
  JSON: { payload: JSON.stringify({ csrf, name: 'a' }), type: 'application/json' },
  'text, as a form of another site may send': { payload: `csrf=${csrf}`, type: 'text/plain' },
  multipart: {
    payload: `--x\r\ncontent-disposition: form-data; name="csrf"\r\n\r\n${csrf}\r\n--x--`,
    type: 'multipart/form-data; boundary=x',
  },
  'another charset': { payload: `csrf=${csrf}`, type: `${FORM}; charset=utf-7` },
  'bytes that are no UTF-8': { payload: Buffer.from(`csrf=${csrf}&name=\xff\xfe`, 'latin1') },
  'escapes that are no UTF-8': { payload: `csrf=${csrf}&name=%ff%fe` },
  'the token twice': { payload: `csrf=${csrf}&csrf=${csrf}` },
  nothing: { payload: '' },
});

test('hostile forms › each is refused by each route, and changes nothing', async t => {
  const { owner } = world.ours.people;
  const csrf = await owner.token();
  const before = world.rows();
  for (const route of posts) {
    const url = filled(route.url, () => randomUUID());
    for (const [name, { payload, type = FORM }] of Object.entries(cases(csrf))) {
      const headers = { 'content-type': type };
      const answer = await owner.post(url, {}, { csrf: null, payload, headers });
      const text = `${route.url}, ${name}: ${answer.statusCode} ${answer.body}`;
      t.true([400, 403, 413, 415].includes(answer.statusCode), text);
    }
  }
  t.deepEqual(world.rows(), before);
});

test('hostile forms › addresses that nobody types are answered without a failure', async t => {
  const { owner } = world.ours.people;
  const odd = [
    '%00',
    '%0d%0aset-cookie:%20a=b',
    '..%2f..%2fetc%2fpasswd',
    '%ff',
    'a'.repeat(4000),
    '__proto__',
    'constructor',
    "'%20or%201=1--",
    '%e2%80%ae',
    '*',
  ];
  for (const { url } of gets) {
    for (const [index, value] of odd.entries()) {
      const path = url.replaceAll(/:\w+/g, value);
      // Over all routes each field gets each value, and each comes twice once.
      const search = FIELDS.map((name, at) => `${name}=${odd[(index + at) % odd.length]}`);
      const twice = FIELDS.flatMap(name => [`${name}=${value}`, `${name}=b`]);
      const target = `${path}?${(index === 0 ? twice : search).join('&')}`;
      const answer = await owner.get(target);
      t.true(answer.statusCode < 500, `${target}: ${answer.statusCode} ${answer.body}`);
      t.is(answer.headers['set-cookie'] ?? '', '', target);
    }
  }
});

const ELSEWHERE = [
  'https://evil.example',
  '//evil.example',
  '/\\evil.example',
  '\\\\evil.example',
  '/account//evil.example',
  '/account/../..//evil.example',
  '/account@evil.example',
  '/accountevil.example',
  'javascript:alert(1)',
  'data:text/html,hi',
  '/account\r\nset-cookie: a=b',
  '/account%0d%0aset-cookie:%20a=b',
  '/account\t//evil.example',
  '/account?x=https://evil.example#//evil.example',
  ' https://evil.example',
  'https:evil.example',
  '/account/keys/%2e%2e//evil.example',
  '/account/sign-out',
  '/account/'.padEnd(9000, 'a'),
];

function requireOwnPath(t: ExecutionContext, location: unknown, what: string): void {
  t.is(typeof location, 'string', what);
  const to = new URL(String(location), world.origin);
  t.is(to.origin, world.origin, what);
  t.true(to.pathname === '/account' || /^\/account\/[\w/-]*$/.test(to.pathname), what);
}

test('redirects › never leads elsewhere', async t => {
  const { owner } = world.ours.people;
  for (const to of ELSEWHERE) {
    // The page redirects a signed-in person at once. A stranger's form keeps the address.
    const query = `?to=${encodeURIComponent(to)}`;
    const led = await owner.get(`/account/sign-in${query}`);
    t.is(led.statusCode, 303, to);
    requireOwnPath(t, led.headers.location, to);
    t.is(led.headers['set-cookie'], undefined, to);
    const form = (await world.stranger().page(`/account/sign-in${query}`)).forms[0];
    const kept = form?.fields.get('to');
    if (kept !== undefined) requireOwnPath(t, kept, to);
  }
});

test('redirects › never leads elsewhere by a forged field', async t => {
  for (const to of ELSEWHERE.slice(0, 3)) {
    const person = world.stranger();
    const csrf = (await person.page('/account/sign-in')).csrf ?? '';
    const answer = await person.post('/account/sign-in', { ...known, to }, { csrf });
    t.is(answer.statusCode, 303, `${to}: ${answer.body}`);
    requireOwnPath(t, answer.headers.location, to);
  }
});

test('redirects › no page that redirects takes its target from the address', async t => {
  const { owner } = world.ours.people;
  const names = ['to', 'next', 'redirect', 'return', 'url', 'redirect_uri', 'iss'];
  const query = names.map(name => `${name}=%2F%2Fevil.example`).join('&');
  for (const { url } of gets) {
    const path = `${url.replaceAll(/:\w+/g, 'x')}?${query}`;
    for (const who of [owner.copy(), world.stranger()]) {
      const { location } = (await who.get(path)).headers;
      if (location !== undefined) requireOwnPath(t, location, path);
    }
  }
});

test('redirects › another host in the request does not get into an answer', async t => {
  const { owner } = world.ours.people;
  const headers = {
    host: 'evil.example',
    'x-forwarded-host': 'evil.example',
    'x-forwarded-proto': 'javascript',
    forwarded: 'host=evil.example',
  };
  for (const { url } of gets) {
    const answer = await owner.get(url.replaceAll(/:\w+/g, 'x'), { headers });
    t.false(answer.body.includes('evil.example'), url);
    t.false(String(answer.headers.location).includes('evil.example'), url);
  }
});

/** Breaks out of text, attributes in either quotes, a script and a comment. */
const MARKUP = `"><script>alert(1)</script>'><img src=x onerror=alert(2)>`;
const NAMES = {
  account: `acc${MARKUP}`,
  key: `key${MARKUP}`,
  otherKey: '</title></textarea><svg/onload=alert(3)>-->{{7*7}}<%= 7*7 %>',
  agent: `agent${MARKUP}`,
} as const;
/** A mail address may contain all of this. */
const MAIL = `o'onload=alert&amp;4{}|%0a@example.org`;

let shown: readonly (readonly [string, ReadPage])[];
test.before(async () => {
  const { test: fixture } = world;
  const { stores } = fixture;
  const account = await stores.accounts.create(NAMES.account);
  assert.ok(account);
  await stores.ledger.grant(account.id, 100, `reference ${MARKUP}`);
  const { token } = await stores.apiKeys.create(account.id, NAMES.key);
  await stores.apiKeys.create(account.id, NAMES.otherKey);
  const link = newLink(account.id, { role: 'owner', mail: MAIL });
  const person = await signedIn(fixture, new Person(fixture.app, BASE_URL), link, NAMES.agent);
  const invited = newLink(account.id, { mail: `x${MAIL}` });
  assert.equal(await stores.links.create(invited, OPERATOR), 'created');
  const failed = await submitJob(fixture, token, {
    callback_url: `https://hooks.example.com/?a="><script>alert(5)</script>'&b=javascript:alert(6)`,
    callback_secret: `whsec_${Buffer.alloc(32, 7).toString('base64')}`,
  });
  const detail = `the decoder said ${MARKUP}`;
  await fixture.failJob(failed, { code: 'PROCESSING_FAILED', detail, retryable: false });
  const people = { owner: person, member: person, viewer: person };
  const things = {
    ...(await makeThings(fixture, { accountId: account.id, people })),
    jobId: failed,
  };
  shown = await readAll(person, things);
});

async function readAll(owner: Person, things: Things) {
  const pages: [string, ReadPage][] = [];
  for (const { url: pattern } of gets) {
    const { params = {} } = APP_ROUTES[`GET ${pattern}`] ?? {};
    const url = filled(pattern, name => things[params[name] ?? 'keyId']);
    const query = new URLSearchParams({
      to: MARKUP,
      said: MARKUP,
      after: MARKUP,
      status: MARKUP,
    });
    for (const target of [url, `${url}?${query}`]) {
      // Some pages end the session that loads them.
      const answer = await owner.copy().get(target, { headers: { 'user-agent': NAMES.agent } });
      if (!String(answer.headers['content-type']).startsWith('text/html')) continue;
      pages.push([target, new ReadPage(answer.body)]);
    }
  }
  return pages;
}

test('names that want to be markup › nothing of a name runs, frames, styles or leads elsewhere', t => {
  t.true(shown.length > 20, 'the pages were not found');
  for (const [url, page] of shown) t.deepEqual(page.dangers, [], url);
});

test('names that want to be markup › they are shown as they are', t => {
  for (const name of [...Object.values(NAMES), MAIL, `x${MAIL}`]) {
    const where = shown.filter(([, page]) => page.shows(name));
    t.true(where.length > 0, `no page shows ${name}`);
  }
});
