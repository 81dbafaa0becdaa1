/** What every answer of the area says to a browser, refusals and failures too. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import type { LightMyRequestResponse } from 'fastify';
import { ReadPage } from '../../../support/area/pages.ts';
import { filled, routesOf, useWorld } from '../../../support/area/world.ts';

describe('headers of the area', () => {
  const world = useWorld();

  function requireHeaders(answer: LightMyRequestResponse, what: string): void {
    const { headers } = answer;
    const policy = String(headers['content-security-policy']);
    const directives = new Map(
      policy.split(';').map(one => {
        const [name = '', ...values] = one.trim().split(/\s+/);
        return [name, values.join(' ')];
      }),
    );
    assert.equal(directives.get('default-src'), "'none'", `${what}: ${policy}`);
    assert.equal(directives.get('frame-ancestors'), "'none'", `${what}: ${policy}`);
    assert.ok(!/unsafe|\*|https?:/.test(policy), `${what}: ${policy}`);
    assert.equal(headers['x-content-type-options'], 'nosniff', what);
    assert.match(String(headers['referrer-policy']), /^(?:no-referrer|same-origin)$/, what);
    const type = String(headers['content-type'] ?? '');
    // Files of the release, the same for everyone.
    const isFile = /immutable/.test(String(headers['cache-control'])) || /demo\.jpg/.test(what);
    if (!isFile) assert.match(String(headers['cache-control']), /no-store/, what);
    if (!type.startsWith('text/html')) return;
    assert.match(type, /charset=utf-8/, what);
    assert.equal(directives.get('base-uri'), "'none'", what);
    assert.match(String(directives.get('form-action')), /^'self'/, what);
    assert.equal(headers['cross-origin-opener-policy'], 'same-origin', what);
    assert.equal(headers['cross-origin-resource-policy'], 'same-origin', what);
    assert.deepEqual(new ReadPage(answer.body).dangers, [], what);
  }

  it('pages and refusals cannot be framed, sniffed, cached or made to run what is not ours', async () => {
    const { owner, viewer } = world.ours.people;
    for (const { method, url: pattern } of routesOf(world.test)) {
      const url = filled(pattern, () => randomUUID());
      const accept = { headers: { accept: 'text/html' } };
      for (const who of [owner, viewer, world.stranger()]) {
        const answer =
          method === 'GET' ? await who.get(url, accept) : await who.post(url, {}, { csrf: '' });
        requireHeaders(answer, `${method} ${url}: ${answer.statusCode}`);
      }
    }
    for (const url of ['/account/nothing-here', '/account/keys/../../v1', '/accountant']) {
      requireHeaders(await owner.get(url, { headers: { accept: 'text/html' } }), url);
    }
  });

  it('cookies are of this host alone, out of reach of scripts, and small', async () => {
    const stranger = world.stranger();
    const answers = [await stranger.get('/account'), await stranger.get('/account/sign-in')];
    const cookies = answers.flatMap(({ headers }) => [headers['set-cookie'] ?? []].flat());
    assert.ok(cookies.length > 0, 'no cookie is set before sign-in');
    for (const cookie of cookies) {
      assert.match(cookie, /^__Host-[a-z-]+=[\w-]*;/, cookie);
      assert.match(cookie, /; Path=\/(?:;|$)/, cookie);
      assert.match(cookie, /; Secure/, cookie);
      assert.match(cookie, /; HttpOnly/, cookie);
      assert.match(cookie, /; SameSite=(?:Lax|Strict)/, cookie);
      assert.ok(!/Domain=/i.test(cookie) && cookie.length < 4096, cookie);
    }
  });

  it('no key opens the area, and no cookie the API', async () => {
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
        assert.ok([303, 403].includes(answer.statusCode), `${url}: ${answer.statusCode}`);
      }
    }
    for (const url of [
      '/v1/account',
      '/v1/account/keys',
      '/v1/account/usage',
      '/v1/matting/jobs/x',
    ]) {
      const answer = await owner.get(url, { headers: { 'idempotency-key': randomUUID() } });
      assert.equal(answer.statusCode, 401, `${url}: ${answer.body}`);
    }
  });
});
