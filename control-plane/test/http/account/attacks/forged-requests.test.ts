/**
 * What another site can make a browser send changes nothing: every POST of the area, enumerated
 * from the application itself, without Origin, with another's, without token, with another
 * person's; and every GET, which changes nothing whoever asks.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import { createSecret, csrfTokenOf } from '../../../../src/http/account/session/cookies.ts';
import { multipartOf, type Sent } from '../../../support/area/person.ts';
import { filled, routesOf, useWorld } from '../../../support/area/world.ts';
import { BASE_URL, pngHeader, type ScopedRoute } from '../../../support/test-app.ts';

describe('requests that other sites forge', () => {
  let posts: readonly ScopedRoute[];
  const world = useWorld({}, async () => {
    posts = routesOf(world.test).filter(
      ({ method, config }) => method === 'POST' && config.cookieless !== true,
    );
  });

  const urlOf = (route: ScopedRoute) => filled(route.url, () => randomUUID());

  const sentWith = ({ config }: ScopedRoute, csrf: string | null): Sent => {
    if (config.body === 'multipart') {
      const fields = { ...(csrf !== null && { csrf }), once: createSecret() };
      return { csrf: null, ...multipartOf(fields, pngHeader(4, 3)) };
    }
    return { csrf };
  };

  it('methods of the area are GET and POST alone', () => {
    const methods = new Set(routesOf(world.test).map(({ method }) => method));
    assert.deepEqual([...methods].sort(), ['GET', 'POST']);
    assert.ok(posts.length > 10, 'the forms were not found');
  });

  it('a form without our Origin is refused', async () => {
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
    for (const route of posts) {
      for (const origin of origins) {
        const answer = await owner.post(urlOf(route), {}, { csrf, headers: { origin } });
        assert.equal(answer.statusCode, 403, `${route.url} from ${origin}: ${answer.body}`);
      }
    }
    assert.deepEqual(world.rows(), before);
  });

  it('a form without the token of this session is refused', async () => {
    const { owner, member } = world.ours.people;
    const secret = owner.cookies.get('__Host-matting-session') ?? '';
    const token = await owner.token();
    const others = [
      await member.token(),
      csrfTokenOf(secret),
      csrfTokenOf(secret, world.theirs.accountId),
    ];
    assert.ok(!others.includes(token));
    const before = world.rows();
    const broken = [token.slice(1), `${token}x`, token.toLowerCase()];
    const tokens = [null, '', ...others, ...broken, secret];
    for (const route of posts) {
      for (const csrf of tokens) {
        const answer = await owner.post(urlOf(route), {}, sentWith(route, csrf));
        assert.equal(answer.statusCode, 403, `${route.url} with ${csrf}: ${answer.body}`);
      }
      const url = `${urlOf(route)}?csrf=${token}`;
      const inQuery = await owner.post(url, {}, sentWith(route, null));
      assert.equal(inQuery.statusCode, 403, `${route.url} with a token in the address`);
    }
    assert.deepEqual(world.rows(), before);
  });

  it('reading changes nothing', async () => {
    const before = world.rows();
    const gets = routesOf(world.test).filter(({ method }) => method === 'GET');
    assert.ok(gets.length > 5, 'the pages were not found');
    for (const route of gets) {
      for (const method of ['GET', 'HEAD'] as const) {
        const { owner } = world.ours.people;
        const headers = { host: new URL(BASE_URL).host, cookie: owner.cookieHeader };
        const answer = await world.test.app.inject({ method, url: urlOf(route), headers });
        assert.ok(answer.statusCode < 500, `${method} ${route.url}: ${answer.body}`);
      }
    }
    assert.deepEqual(world.rows(), before);
  });
});
