import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Package } from '@matting/core/package.ts';
import { pngHeader, type TestApp, testApps } from '@matting/core/test/support/test-app.ts';
import { FORM_TYPE, formOf } from '@matting/http/test/forms.ts';
import { EnvReader } from '@matting/program/env.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Finishing } from '@matting/proto/contract/finishing.ts';
import ava from 'ava';
import { requireLocalProgram } from './local-programs.ts';
import { rembg } from './rembg.ts';
import { rembgRequestOf } from './rembg-request.ts';

const test = ava.serial;

const PATH = '/compat/rembg/api/remove';
const URL_OF = 'https://cdn.example.com/in.png?v=1';
const RESULT = Buffer.from('a cut-out');
const POLICY = { fetchPorts: [80, 443], allowPrivateAddresses: false };
const OFF = { standInKeyId: undefined };
const ON = { settings: { rembg: OFF } };

const { openTestApp, useTestApp } = testApps([rembg], stores => stores);
const app = useTestApp(test, { ...ON, modelsOffered: ['standard', 'isnet', 'u2netp'] });

/** Unique, since the same image is the same job. */
const image = () => Buffer.concat([pngHeader(40, 30), Buffer.from(randomUUID())]);

type Parts = Readonly<Record<string, string | Buffer>>;
interface Sent {
  readonly query?: string;
  readonly headers?: Record<string, string>;
  readonly of?: TestApp;
  readonly remoteAddress?: string;
}

const keyed = (of: TestApp) => ({ authorization: `Bearer ${of.token}` });

function get(query: string, { of = app, headers = keyed(of), ...more }: Sent = {}) {
  return of.app.inject({ method: 'GET', url: `${PATH}?${query}`, headers, ...more });
}

function post(parts: Parts, { query = '', of = app, headers = keyed(of), ...more }: Sent = {}) {
  const payload = formOf(
    Object.entries(parts).map(([name, body]) => ({
      ...(typeof body === 'string' ? {} : { fileName: 'photo.jpg', type: 'image/jpeg' }),
      ...{ name, body },
    })),
  );
  const all = { ...FORM_TYPE, ...headers };
  return of.app.inject({ method: 'POST', url: `${PATH}${query}`, headers: all, payload, ...more });
}

/** Ends the jobs that `ask` makes. */
async function made<T>(send: () => Promise<T>, of = app): Promise<T> {
  const jobs = of.onSubmitted(id => of.succeedJob(id, RESULT));
  try {
    return await send();
  } finally {
    await jobs.stop();
  }
}

const parsed = (texts: Record<string, string>, offered: readonly string[] = []) => {
  const pictures = new Set(['file'] as const);
  const body = { source: 'file', pictures, unknown: [] } as const;
  return rembgRequestOf(
    { ...body, texts: new Map(Object.entries(texts)) as never },
    offered,
    POLICY,
  );
};
const on = (rgba: number): Finishing => ({ background: { kind: 'colour', rgba } });

const MEANT: readonly [Record<string, string>, channels: string, Finishing | undefined][] = [
  [{}, 'rgba', undefined],
  [{ om: 'false', a: 'false', ppm: '0', af: '240', ab: '10', ae: '10' }, 'rgba', undefined],
  [{ om: 'true' }, 'alpha', {}],
  [{ om: '1', bgc: '1,2,3,4' }, 'alpha', {}],
  [{ bgc: '255,0,0,128' }, 'rgba', on(0xff000080)],
  [{ bgc: '0, 128, 0' }, 'rgba', on(0x008000ff)],
  [{ bgc: '9,9,9,0' }, 'rgba', undefined],
];

test('rembg’s parameters mean what its server makes of them, always as PNG', t => {
  for (const [texts, channels, finishing] of MEANT) {
    const { request } = parsed(texts);
    const actual: unknown = [request.outputFormat, request.channels, request.finishing];
    t.deepEqual(actual, ['png', channels, finishing], JSON.stringify(texts));
  }
  const idle = { a: 'true', af: '240', ab: '10', ae: '10', ppm: 'on' };
  t.deepEqual(parsed(idle).ignored, Object.keys(idle));
});

test('a model of its names is the offered one of the same network', t => {
  const named = (model: string, ...offered: string[]) => parsed({ model }, offered).request.model;
  t.is(named('isnet-general-use', 'standard', 'isnet'), 'isnet');
  t.is(named('isnet-general-use', 'isnet', 'isnet-general-use'), 'isnet-general-use');
  t.is(named('birefnet-general-lite', 'birefnet-lite'), 'birefnet-lite');
  t.is(named('u2net_human_seg', 'u2net-human-seg'), 'u2net-human-seg');
  t.is(named('bria-rmbg', 'rmbg-2-0'), 'rmbg-2-0');
  t.is(named('u2net', 'standard', 'u2netp'), undefined, 'the default of both');
  t.is(named('u2net', 'standard', 'u2net'), 'u2net');
  t.is(named('silueta', 'standard'), 'silueta');
  t.is(parsed({}, ['isnet']).request.model, undefined);
});

const NONSENSE: readonly [string, string, says?: string][] = [
  ['om', 'maybe', 'true'],
  ['a', '2'],
  ['ppm', 'none'],
  ['af', '256', '255'],
  ['ab', '-1'],
  ['ae', 'ten'],
  ['bgc', '1,2'],
  ['bgc', '1,2,3,256'],
  ['bgc', '1,2,3,4,5'],
  ['bgc', '#ff0000', 'r,g,b,a'],
];

test('an invalid value is refused by the name of its parameter', t => {
  for (const [field, text, says = ''] of NONSENSE) {
    const error = t.throws(() => parsed({ [field]: text }), { instanceOf: ContractError });
    t.is(error?.fieldErrors[0]?.field, field, text);
    t.true(error?.message.includes(says), error?.message);
  }
});

test('errors are a sentence, and those of a parameter a list with its place', async t => {
  const balances = await app.stores.ledger.balances(app.accountId);
  const list = (type: string, location: string, field: string, msg: string) => ({
    detail: [{ type, loc: [location, field], msg }],
  });
  for (const [answer, status, body] of [
    [await get('model=isnet'), 422, list('missing', 'query', 'url', 'Field required')],
    [await post({ url: URL_OF }), 422, list('missing', 'body', 'file', 'Field required')],
    [await post({ file: '', om: '1' }), 422, list('missing', 'body', 'file', 'Field required')],
    [
      await get(`url=${URL_OF}&model=silueta`),
      422,
      list(
        'value_error',
        'query',
        'model',
        'must be one of standard, isnet, u2netp; the operator offers others by MATTING_MODELS_OFFERED',
      ),
    ],
    [
      await post({ file: image() }, { query: '?bgc=red' }),
      422,
      list('value_error', 'body', 'bgc', 'must be r,g,b,a, each from 0 to 255'),
    ],
    [await get('url=%'), 400, undefined],
    [await get(`url=${URL_OF}&om=1&om=1`), 400, { detail: 'om is given twice. Send it once.' }],
    [await get('url=file:///etc/passwd'), 400, undefined],
    [await get('url=http://127.0.0.1/1.png'), 400, undefined],
    [await post({ file: Buffer.from('no picture') }), 400, undefined],
    [await post({ file: image() }, { headers: {} }), 401, /X-Api-Key/],
    [await get('url=x', { headers: { 'x-api-key': 'wrong' } }), 401, /mk_/],
    [await app.app.inject({ method: 'HEAD', url: `${PATH}?url=${URL_OF}` }), 405, null],
    [await app.app.inject('/compat/rembg/api'), 404, undefined],
  ] as const) {
    t.is(answer.statusCode, status, answer.payload);
    if (body === null) continue;
    if (body instanceof RegExp) t.regex(answer.json().detail, body);
    else if (body !== undefined) t.deepEqual(answer.json(), body);
    else t.is(typeof answer.json().detail, 'string', answer.payload);
    t.notRegex(answer.payload, /image_url/);
    t.is(answer.headers['www-authenticate'], status === 401 ? 'Bearer' : undefined);
  }
  t.deepEqual(await app.stores.ledger.balances(app.accountId), balances);
  t.is(await app.countJobs(), 0);
  t.deepEqual(await app.storedFiles(), []);
});

test('a picture by its file is one job, in whichever place its parameters are', async t => {
  const file = image();
  const headers = { 'x-api-key': app.token };
  const first = await made(() =>
    post(
      { file, model: 'isnet-general-use', ppm: 'true' },
      { query: '?bgc=1,2,3,255&vm=1', headers },
    ),
  );
  t.deepEqual([first.statusCode, first.rawPayload], [200, RESULT], first.payload);
  t.is(first.headers['content-type'], 'image/png');
  t.is(first.headers['x-credits-charged'], '1');
  t.is(first.headers['x-ignored-fields'], 'vm, ppm');
  const again = await post({ file, model: 'isnet', bgc: '1,2,3', dc: '1' }, { headers });
  t.is(again.headers['x-job-id'], first.headers['x-job-id']);
  t.is(again.headers['x-credits-charged'], '0');
  t.is(again.headers['x-ignored-fields'], 'dc');
});

test('a picture by its URL is a job whose URL the service fetches, and asked again it is the same', async t => {
  const query = `url=${encodeURIComponent(`${URL_OF}&${randomUUID()}`)}&om=true&extras={}`;
  const headers = { ...keyed(app), 'content-type': 'application/json', accept: 'application/json' };
  const first = await made(() => get(query, { headers }));
  t.deepEqual([first.statusCode, first.rawPayload], [200, RESULT], first.payload);
  t.is(first.headers['x-ignored-fields'], 'extras');
  const job = await app.stores.jobs.find(String(first.headers['x-job-id']));
  t.is(job?.channels, 'alpha');
  const again = await get(query);
  t.is(again.headers['x-job-id'], first.headers['x-job-id']);
  t.is(again.headers['x-credits-charged'], '0');
});

const ENTRANCE = {
  trustedProxies: ['10.9.0.0/16'],
  baseUrl: 'https://cut.example.com:8443/matting',
};
const BROWSER = { 'user-agent': 'Mozilla/5.0 (X11; Linux x86_64)' };
const WHO: readonly [string, IncomingHttpHeaders, refused?: RegExp][] = [
  ['127.0.0.1', {}],
  ['::1', { 'user-agent': 'python-requests/2.32' }],
  ['::ffff:127.0.0.1', {}],
  ['::ffff:192.168.1.7', {}],
  ['10.1.2.3', {}],
  ['fd00::5', {}],
  // Node's fetch sends these headers.
  ['127.0.0.1', { 'sec-fetch-mode': 'cors', 'user-agent': 'node' }],
  ['203.0.113.9', {}, /not private/],
  ['::ffff:203.0.113.9', {}, /not private/],
  ['2001:db8::1', {}, /not private/],
  ['169.254.169.254', {}, /not private/],
  ['fe80::1%eth0', {}, /not private/],
  ['', {}, /not private/],
  ['203.0.113.9', { 'x-forwarded-for': '127.0.0.1', 'x-real-ip': '127.0.0.1' }, /not private/],
  ['10.9.1.1', {}, /proxy/],
  ['::ffff:10.9.1.1', {}, /proxy/],
  ['127.0.0.1', { 'x-forwarded-for': '' }, /proxy/],
  ['127.0.0.1', { 'x-forwarded-proto': 'https' }, /proxy/],
  ['127.0.0.1', { forwarded: 'for=10.0.0.1' }, /proxy/],
  ['127.0.0.1', { 'x-real-ip': '10.0.0.1' }, /proxy/],
  ['127.0.0.1', { via: '1.1 cache' }, /proxy/],
  ['127.0.0.1', { origin: 'http://localhost:8080' }, /browser/],
  ['127.0.0.1', { origin: 'null' }, /browser/],
  ['127.0.0.1', { referer: 'http://localhost:8080/' }, /browser/],
  ['127.0.0.1', { 'sec-fetch-site': 'cross-site' }, /browser/],
  ['127.0.0.1', { 'sec-fetch-site': 'same-origin' }, /browser/],
  // A person typed the address, or a redirect led from one that they typed.
  ['127.0.0.1', { 'sec-fetch-site': 'none' }, /browser/],
  ['127.0.0.1', { 'sec-purpose': 'prefetch' }, /browser/],
  ['127.0.0.1', { purpose: 'prefetch' }, /browser/],
  ['127.0.0.1', { 'user-agent': 'matting-service/1 (image fetch)' }, /service like this one/],
  ['127.0.0.1', { 'user-agent': 'matting-service/1 (webhook)' }, /service like this one/],
  ['10.1.2.3', { 'user-agent': 'Matting-Service/2' }, /service like this one/],
  ['127.0.0.1', { 'user-agent': 'matting-services/1' }],
  ['127.0.0.1', { 'user-agent': 'a client of matting-service/1' }],
  // Browsers send neither header to http addresses of other machines.
  ['192.168.1.7', BROWSER, /browser/],
];
const HOSTS: readonly [string | undefined, isOwn: boolean][] = [
  ['127.0.0.1:8080', true],
  ['[::1]:8080', true],
  ['192.168.1.7', true],
  ['localhost:8080', true],
  ['LOCALHOST.:8080', true],
  ['matting:8080', true],
  ['matting.shop.svc.cluster.local:8080', true],
  ['cut.example.com', true],
  ['Cut.Example.com:8443', true],
  // Anybody can own such a name and point it at this machine.
  ['evil.example:8080', false],
  ['127.0.0.1.evil.example', false],
  ['localhost.evil.example', false],
  ['cut.example.com.evil.example', false],
  ['evil.example@127.0.0.1', false],
  ['evil.example/127.0.0.1', false],
  ['evil.example#localhost', false],
  ['evil.example\\localhost', false],
  ['127.0.0.1, evil.example', false],
  ['', false],
  [undefined, false],
];

test('a request without a key must come from nearby, without a proxy and not from a browser', t => {
  const near = HOSTS.map(([host, isOwn]): (typeof WHO)[number] =>
    isOwn ? ['127.0.0.1', { host }] : ['127.0.0.1', { host }, /host name/],
  );
  for (const [remoteAddress, sent, refused] of [...WHO, ...near]) {
    const headers = { host: '127.0.0.1:8080', ...sent };
    const check = () =>
      requireLocalProgram({ raw: { socket: { remoteAddress }, headers } } as never, ENTRANCE);
    const label = JSON.stringify([remoteAddress, headers]);
    if (refused === undefined) t.notThrows(check, label);
    else t.throws(check, { code: 'MISSING_API_KEY', message: refused } as object, label);
  }
});

/** The first key of the application stands in. */
const standingIn: Package<object | undefined> = {
  ...rembg,
  async open(core) {
    const [key] = await core.stores.apiKeys.list();
    return (await rembg.open?.(core, { standInKeyId: key?.id })) ?? {};
  },
};

async function openStandIn(t: { teardown(act: () => unknown): void }, more = {}) {
  const { openTestApp: open } = testApps([standingIn], stores => stores);
  return await open({ ...ON, ...more }, t);
}

test('a request without a key uses the operator’s key, with its credits and its policy', async t => {
  const of = await openStandIn(t);
  const file = image();
  const first = await made(() => post({ file }, { of, headers: {} }), of);
  t.is(first.statusCode, 200, first.payload);
  const [key] = await of.stores.apiKeys.list();
  const job = await of.stores.jobs.find(String(first.headers['x-job-id']));
  t.deepEqual([job?.apiKeyId, job?.accountId], [key?.id, of.accountId]);
  t.is((await of.stores.ledger.balances(of.accountId))?.available, 999);
  const far = { of, headers: {}, remoteAddress: '203.0.113.9' };
  t.is((await post({ file }, far)).statusCode, 401);
  const rebound = { of, headers: { host: 'evil.example:8080' } };
  t.is((await post({ file }, rebound)).statusCode, 401);
  // A key in the request is checked by itself.
  for (const headers of [
    { 'x-api-key': '' },
    { 'x-api-key': 'wrong' },
    { authorization: 'Basic x' },
  ]) {
    t.is((await post({ file }, { of, headers })).statusCode, 401, JSON.stringify(headers));
  }
  const by = { accountId: of.accountId, actor: { kind: 'operator' } } as const;
  const change = (policy: object) => of.stores.apiKeys.change(key!.id, by, { policy });
  for (const [policy, status] of [
    [{ scopes: ['read'] }, 403],
    [{ networks: ['192.0.2.0/24'] }, 403],
    [{ cap: { credits: 1, period: 'total' } }, 200],
    [{ cap: { credits: 1, period: 'total' } }, 402],
  ] as const) {
    await change(policy);
    const answer = await made(() => post({ file: image() }, { of, headers: {} }), of);
    t.is(answer.statusCode, status, JSON.stringify(policy));
  }
  await of.stores.apiKeys.revoke(key!.id);
  t.is((await post({ file: image() }, { of, headers: {} })).statusCode, 401);
});

test('rembg’s interface is off unless the operator turns it on, and the start names a wrong list once', async t => {
  const of = await openTestApp({}, t);
  const answer = await post({ file: image() }, { of });
  t.deepEqual(
    [answer.statusCode, answer.headers['content-type']],
    [404, 'application/problem+json'],
  );
  const read = (env: Record<string, string>) => {
    const reader = new EnvReader(env);
    // Other packages read the list, too.
    rembg.readSettings?.(reader, {} as never);
    return { settings: rembg.readSettings?.(reader, {} as never), problems: reader.problems };
  };
  t.deepEqual(read({ MATTING_COMPAT: 'photoroom, rembg' }).settings, OFF);
  t.is(read({ MATTING_COMPAT: 'photoroom' }).settings, undefined);
  const account = 'MATTING_COMPAT_REMBG_ACCOUNT';
  const stoodIn = read({ MATTING_COMPAT: 'rembg', [account]: 'mk_0123456789ab' }).settings;
  t.deepEqual(stoodIn, { standInKeyId: '0123456789ab' });
  t.regex(rembg.warnings?.(stoodIn).join() ?? '', /without a key.* mk_0123456789ab/);
  for (const wrong of [{ MATTING_COMPAT: 'remove.bg' }, { [account]: of.token }]) {
    t.deepEqual(
      read(wrong).problems.map(({ variable }) => variable),
      Object.keys(wrong),
    );
  }
});
