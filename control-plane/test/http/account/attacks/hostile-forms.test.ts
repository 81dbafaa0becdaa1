/** Forms that no page of ours sends: too large, broken, repeated, of other types. */
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { filled, routesOf, useWorld } from '../../../support/area/world.ts';
import type { ScopedRoute } from '../../../support/test-app.ts';

const test = ava.serial;

const FORM = 'application/x-www-form-urlencoded';

let posts: readonly ScopedRoute[];
const world = useWorld(test, {}, async () => {
  posts = routesOf(world.test).filter(
    ({ method, config }) => method === 'POST' && config.cookieless !== true,
  );
});

const cases = (csrf: string): Record<string, { payload: string | Buffer; type?: string }> => ({
  'too large': { payload: `csrf=${csrf}&name=${'a'.repeat(200_000)}` },
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

test('each is refused by each route, and changes nothing', async t => {
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

test('addresses that nobody types are answered without a failure', async t => {
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
  const gets = routesOf(world.test).filter(({ method }) => method === 'GET');
  for (const { url } of gets) {
    for (const value of odd) {
      const path = url.replaceAll(/:\w+/g, value);
      const query = ['after', 'from', 'to', 'said', 'status', 'group', 'key', 'language', 'token'];
      const search = query.map(name => `${name}=${value}`).join('&');
      const twice = `said=${value}&said=b&after=a&after=b&from=a&from=b&to=x&to=y&key=1&key=2`;
      for (const asked of [path, `${path}?${search}`, `${path}?${twice}`]) {
        const answer = await owner.get(asked);
        t.true(answer.statusCode < 500, `${asked}: ${answer.statusCode} ${answer.body}`);
        t.is(answer.headers['set-cookie'] ?? '', '', asked);
      }
    }
  }
});
