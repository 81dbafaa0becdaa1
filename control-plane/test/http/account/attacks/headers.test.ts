/** What every answer of the area says to a browser, refusals and failures too. */
import { randomUUID } from 'node:crypto';
import ava, { type ExecutionContext } from 'ava';
import type { LightMyRequestResponse } from 'fastify';
import { ReadPage } from '../../../support/area/pages.ts';
import { filled, routesOf, useWorld } from '../../../support/area/world.ts';

const test = ava.serial;

const world = useWorld(test);

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
  // Files of the release, the same for everyone.
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

test('pages and refusals cannot be framed, sniffed, cached or made to run what is not ours', async t => {
  const { owner, viewer } = world.ours.people;
  for (const { method, url: pattern } of routesOf(world.test)) {
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

test('cookies are of this host alone, out of reach of scripts, and small', async t => {
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

test('no key opens the area, and no cookie the API', async t => {
  const { owner } = world.ours.people;
  const stranger = world.stranger();
  for (const { method, url: pattern, config } of routesOf(world.test)) {
    if (config.permission === undefined) continue;
    const url = filled(pattern, () => randomUUID());
    for (const authorization of [`Bearer ${world.test.token}`, 'Bearer an-operator-key']) {
      const headers = { authorization };
      const answer =
        method === 'GET'
          ? await stranger.get(url, { headers })
          : await stranger.post(url, {}, { csrf: '', headers });
      t.true([303, 403].includes(answer.statusCode), `${url}: ${answer.statusCode}`);
    }
  }
  for (const url of [
    '/v1/account',
    '/v1/account/keys',
    '/v1/account/usage',
    '/v1/matting/jobs/x',
  ]) {
    const answer = await owner.get(url, { headers: { 'idempotency-key': randomUUID() } });
    t.is(answer.statusCode, 401, `${url}: ${answer.body}`);
  }
});
