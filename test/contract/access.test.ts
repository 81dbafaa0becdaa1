/**
 * The table here is independent of the service. Needs: batches, removebg, photoroom, rembg, mcp,
 * portal.
 */
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { imageBody } from '../../control-plane/core/test/support/test-app.ts';
import { useTestApp } from '../../control-plane/test/app.ts';
import { routesOf } from '../support/printed-routes.ts';
import { sameNames } from '../support/same-names.ts';

const test = ava.serial;

const SCOPES = ['submit', 'read', 'account'] as const;

/** 'a key': of any scopes. */
type Needed = 'nothing' | 'a key' | (typeof SCOPES)[number];

const NEEDED: Readonly<Record<string, Needed>> = {
  'GET /': 'nothing',
  'GET /compat/rembg/api/remove': 'submit',
  'GET /docs': 'nothing',
  'GET /docs/errors': 'nothing',
  'GET /client.tgz': 'nothing',
  'GET /docs/examples/:name': 'nothing',
  'GET /docs/images/:name': 'nothing',
  'GET /docs/:page': 'nothing',
  'GET /docs/assets/:hash/:name': 'nothing',
  'GET /llms.txt': 'nothing',
  'GET /livez': 'nothing',
  'GET /readyz': 'nothing',
  'GET /v1.0/account': 'account',
  'GET /v1.0/openapi.json': 'nothing',
  'GET /v1/account': 'account',
  'GET /v1/account/keys': 'account',
  'GET /v1/account/packages': 'account',
  'GET /v1/account/usage': 'account',
  'DELETE /v1/matting/jobs/:jobId': 'submit',
  'DELETE /v1/matting/batches/:batchId': 'submit',
  'GET /v1/matting/batches': 'read',
  'GET /v1/matting/batches/:batchId': 'read',
  'GET /v1/matting/batches/:batchId/results': 'read',
  'POST /v1/matting/batches': 'submit',
  'POST /v1/matting/batches/:batchId/again': 'submit',
  'GET /v1/matting/jobs': 'read',
  'GET /v1/matting/jobs/:jobId': 'read',
  'GET /v1/models': 'a key',
  'GET /v1/openapi.json': 'nothing',
  'GET /v1/results/:token': 'nothing',
  'POST /compat/rembg/api/remove': 'submit',
  'POST /mcp': 'a key',
  'POST /v1.0/removebg': 'submit',
  'POST /v1/matting': 'submit',
  'POST /v1/matting/jobs': 'submit',
  'POST /v1/matting/jobs/:jobId/corrections': 'submit',
  'POST /compat/photoroom/v1/segment': 'submit',
  'PUT /mcp/uploads/:token': 'nothing',
};

const settings = { photoroom: {}, rembg: { standInKeyId: undefined } };
const app = useTestApp(test, { settings, syncWaitMs: 0 });

/** Its table by roles is portal/test/area/app-routes.ts. */
const isOfArea = (route: string) => / \/account(?:\/|$)/.test(route);

test('every route has its line', t => {
  // HEAD is tried for every GET below.
  const found = routesOf(app.app).filter(one => !one.startsWith('HEAD ') && !isOfArea(one));
  sameNames(t, found, Object.keys(NEEDED));
});

/** Sends only the key: missing fields are reported after it. */
async function statusOf(method: string, url: string, token: string | undefined): Promise<number> {
  const authorization = token === undefined ? undefined : `Bearer ${token}`;
  const isPost = method === 'POST';
  const answer = await app.app.inject({
    method: method as 'GET',
    url: url.replace(/:(jobId|batchId)/, randomUUID()).replace(':token', 'any'),
    headers: app.headers({ authorization, ...(isPost ? {} : { 'content-type': undefined }) }),
    ...(isPost ? { payload: JSON.stringify(imageBody()) } : {}),
  });
  return answer.statusCode;
}

/** remove.bg answers 403 without a key. */
const REFUSED = [401, 403];

for (const [route, needed] of Object.entries(NEEDED)) {
  test(`${route} takes ${needed}`, async t => {
    const isOpen = needed === 'nothing';
    const head = route.replace(/^GET/, 'HEAD');
    for (const one of routesOf(app.app).filter(name => name === route || name === head)) {
      const [method = '', url = ''] = one.split(' ');
      for (const token of [undefined, 'mk_unknown']) {
        const status = await statusOf(method, url, token);
        t.is(REFUSED.includes(status), !isOpen, `${method} with ${token ?? 'no key'}: ${status}`);
      }
      for (const scope of SCOPES) {
        const status = await statusOf(method, url, await app.createKey({ scopes: [scope] }));
        const isTaken = isOpen || needed === 'a key' || needed === scope;
        t.is(REFUSED.includes(status), !isTaken, `${method} with the scope ${scope}: ${status}`);
        t.true(status < 500, `${method} with the scope ${scope}: ${status}`);
      }
    }
  });
}
