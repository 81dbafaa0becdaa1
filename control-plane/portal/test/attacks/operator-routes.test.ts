/** Who may use each of the operator's routes, written out. */
import { randomUUID } from 'node:crypto';
import { KEY } from '@matting/core/test/operator-port.ts';
import { routesOf } from '@matting/test-support/printed-routes.ts';
import { sameNames } from '@matting/test-support/same-names.ts';
import ava from 'ava';
import type { FastifyInstance, LightMyRequestResponse } from 'fastify';
import { useStores } from '../fixtures.ts';
import { operatorAppOn } from '../operator-app.ts';

const test = ava.serial;

/** nothing: anybody who can reach the port. key: the operator key. session: signed in. */
type Needed = 'nothing' | 'key' | 'session';

const NEEDED: Readonly<Record<string, Needed>> = {
  'GET /metrics': 'nothing',
  'GET /operator': 'session',
  // The router's name for /operator/pages/*.
  'GET /operator*': 'session',
  'GET /operator/assets/:hash/:name': 'nothing',
  'GET /operator/jobs': 'key',
  'GET /operator/jobs/:job': 'key',
  'GET /operator/nodes': 'key',
  'GET /operator/nodes/:node': 'key',
  'GET /operator/nodes/:node/info': 'key',
  'GET /operator/nodes/:node/livez': 'key',
  'GET /operator/nodes/:node/metrics': 'key',
  'GET /operator/nodes/:node/readyz': 'key',
  'GET /operator/pages/accounts': 'session',
  'GET /operator/pages/accounts/:account': 'session',
  'GET /operator/pages/jobs': 'session',
  'GET /operator/pages/jobs/:job': 'session',
  'GET /operator/pages/nodes': 'session',
  'GET /operator/pages/nodes/:node': 'session',
  'GET /operator/pages/notifications': 'session',
  'GET /operator/pages/orders': 'session',
  'GET /operator/pages/orders/:order': 'session',
  'GET /operator/sign-in': 'nothing',
  'POST /operator/jobs/:job/retry': 'key',
  'POST /operator/language': 'session',
  'POST /operator/nodes/:node/drain': 'key',
  'POST /operator/nodes/:node/undrain': 'key',
  'POST /operator/pages/accounts': 'session',
  'POST /operator/pages/accounts/:account/grant': 'session',
  'POST /operator/pages/accounts/:account/revoke': 'session',
  'POST /operator/pages/jobs/:job/retry': 'session',
  'POST /operator/pages/nodes/:node/drain': 'session',
  'POST /operator/pages/nodes/:node/undrain': 'session',
  'POST /operator/pages/notifications/:job/retry': 'session',
  'POST /operator/pages/orders/:order/confirm': 'session',
  'POST /operator/pages/orders/:order/refund': 'session',
  'POST /operator/sign-in': 'nothing',
  'POST /operator/sign-out': 'session',
};

const HOST = 'localhost:9464';
const ORIGIN = `http://${HOST}`;
const SIGN_IN = '/operator/sign-in';
const FORM = { origin: ORIGIN, 'content-type': 'application/x-www-form-urlencoded' };

const { stores } = useStores(test);
let app: FastifyInstance;
test.before(async () => {
  app = operatorAppOn(stores);
  await app.ready();
});
test.after.always(() => app.close());

interface Shown {
  readonly headers: Record<string, string>;
  readonly csrf?: string;
}

function send(method: string, url: string, { headers, csrf = 'none' }: Shown, fields = {}) {
  const payload = new URLSearchParams({ csrf, ...fields }).toString();
  return app.inject({
    method: method as 'GET',
    url,
    headers: { host: HOST, ...headers, ...(method === 'POST' && FORM) },
    ...(method === 'POST' && { payload }),
  });
}

async function signIn(): Promise<Shown> {
  const answer = await send('POST', SIGN_IN, { headers: {} }, { key: KEY });
  const [cookie = ''] = String(answer.headers['set-cookie']).split(';');
  const { body } = await send('GET', '/operator', { headers: { cookie } });
  const csrf = /name="csrf" value="([^"]+)"/.exec(body)?.[1] ?? '';
  return { headers: { cookie }, csrf };
}

/** Sign-out also redirects to sign-in, and ends the cookie. */
const isRefused = ({ statusCode, headers }: LightMyRequestResponse): boolean =>
  [401, 403].includes(statusCode) ||
  (headers.location === SIGN_IN && headers['set-cookie'] === undefined);

test('every route has its line', t => {
  // HEAD is GET without its body, and is tested below for every GET.
  const found = routesOf(app).filter(one => !one.startsWith('HEAD '));
  sameNames(t, found, Object.keys(NEEDED));
});

for (const [route, needed] of Object.entries(NEEDED)) {
  test(`${route} takes ${needed}`, async t => {
    const [named = '', pattern = ''] = route.split(' ');
    const url = pattern.replace('*', '/pages/none').replaceAll(/:\w+/g, () => randomUUID());
    const withKey = { headers: { authorization: `Bearer ${KEY}` } };
    for (const method of named === 'GET' ? ['GET', 'HEAD'] : [named]) {
      const answers = {
        nothing: await send(method, url, { headers: {} }),
        wrong: await send(method, url, { headers: { authorization: `Bearer ${KEY}x` } }),
        key: await send(method, url, withKey),
        session: await send(method, url, await signIn()),
      };
      for (const [shown, answer] of Object.entries(answers)) {
        const text = `${method} with ${shown}: ${answer.statusCode} ${answer.headers.location}`;
        t.is(isRefused(answer), needed !== 'nothing' && needed !== shown, text);
        t.true(answer.statusCode < 500, text);
      }
    }
  });
}
