/**
 * What another site can make a browser send changes nothing: every POST of the area, enumerated
 * from the application itself, without Origin, with another's, without token, with another
 * person's; and every GET, which changes nothing whoever asks.
 */
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { createSecret, csrfTokenOf } from '../../../../src/http/account/session/cookies.ts';
import { multipartOf, type Sent } from '../../../support/area/person.ts';
import { filled, routesOf, useWorld } from '../../../support/area/world.ts';
import { BASE_URL, pngHeader, type ScopedRoute } from '../../../support/test-app.ts';

const test = ava.serial;

let posts: readonly ScopedRoute[];
const world = useWorld(test, {}, async () => {
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

test('methods of the area are GET and POST alone', t => {
  const methods = new Set(routesOf(world.test).map(({ method }) => method));
  t.deepEqual([...methods].sort(), ['GET', 'POST']);
  t.true(posts.length > 10, 'the forms were not found');
});

test('a form without our Origin is refused', async t => {
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
      t.is(answer.statusCode, 403, `${route.url} from ${origin}: ${answer.body}`);
    }
  }
  t.deepEqual(world.rows(), before);
});

test('a form without the token of this session is refused', async t => {
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
  for (const route of posts) {
    for (const csrf of tokens) {
      const answer = await owner.post(urlOf(route), {}, sentWith(route, csrf));
      t.is(answer.statusCode, 403, `${route.url} with ${csrf}: ${answer.body}`);
    }
    const url = `${urlOf(route)}?csrf=${token}`;
    const inQuery = await owner.post(url, {}, sentWith(route, null));
    t.is(inQuery.statusCode, 403, `${route.url} with a token in the address`);
  }
  t.deepEqual(world.rows(), before);
});

test('reading changes nothing', async t => {
  const before = world.rows();
  const gets = routesOf(world.test).filter(({ method }) => method === 'GET');
  t.true(gets.length > 5, 'the pages were not found');
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
