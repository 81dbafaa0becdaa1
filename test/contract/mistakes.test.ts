/**
 * The answers must name the next step; only what to send is asserted, not the sentence.
 * Needs: photoroom, portal, rembg, removebg.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import ava from 'ava';
import sinon from 'sinon';
import { main } from '../../client/src/command/main.ts';
import { MattingClient } from '../../client/src/index.ts';
import { ImageFetcher } from '../../control-plane/core/fetching/fetch-image.ts';
import { formDataOf, pngHeader } from '../../control-plane/core/test/support/test-app.ts';
import { GuardedFetch } from '../../control-plane/http/outgoing/guarded-fetch.ts';
import { OutgoingGuard } from '../../control-plane/http/outgoing/outgoing-guard.ts';
import { useTestApp } from '../../control-plane/test/app.ts';
import { runCli } from '../../control-plane/test/programs.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const test = ava.serial;

const settings = { rembg: { standInKeyId: undefined }, photoroom: {} };
const options = { syncWaitMs: 200, settings };
const app = useTestApp(test, options, async () => {
  base = `http://127.0.0.1:${await app.listen()}`;
});
let base: string;

const JOBS = '/v1/matting/jobs';
const PNG = pngHeader(4, 3);
const BASE64 = PNG.toString('base64');
const PDF = Buffer.from('%PDF-1.7\n');
const SECRET = 'a callback secret of one';

interface Sent {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string | undefined>>;
  readonly json?: unknown;
  readonly form?: Readonly<Record<string, string | Buffer>>;
  readonly body?: string | Buffer;
}

interface Problem {
  readonly detail?: unknown;
  readonly errors?: readonly { readonly field?: string; readonly detail: string }[];
}

async function answerTo(sent: Sent): Promise<string> {
  const { form, json, body = json === undefined ? undefined : JSON.stringify(json) } = sent;
  const isSubmission = form !== undefined || body !== undefined;
  const { path: where = isSubmission ? JOBS : '/v1/account' } = sent;
  const { method = isSubmission ? 'POST' : 'GET' } = sent;
  const type = json === undefined ? {} : { 'content-type': 'application/json' };
  const key = /^\/(?:v1\.0|compat)/.test(where)
    ? { 'x-api-key': app.token }
    : { authorization: `Bearer ${app.token}`, 'idempotency-key': 'order-1' };
  const headers = Object.entries({ ...key, ...type, ...sent.headers });
  const answer = await fetch(`${base}${where}`, {
    method,
    headers: headers.filter((pair): pair is [string, string] => pair[1] !== undefined),
    ...(form ? { body: formDataOf(form) } : body === undefined ? {} : { body }),
  });
  assert.ok(answer.status >= 400, `${answer.status} is no refusal`);
  const { detail = '', errors = [] } = (await answer.json()) as Problem;
  const ofFields = errors.map(one => `${one.field} ${one.detail}`);
  const said = typeof detail === 'string' ? detail : JSON.stringify(detail);
  return [said, ...ofFields, answer.headers.get('allow')].join('\n');
}

const file = (start: string) => ({ form: { image_file: Buffer.from(start, 'latin1') } });
const withField = (name: string, value: string) => ({ form: { image_file: PNG, [name]: value } });
const withCallback = (url: string, secret = SECRET) => ({
  json: { image_base64: BASE64, callback_url: url, callback_secret: secret },
});
const ofRemovebg = (more: Sent) => ({ path: '/v1.0/removebg', ...more });
const PHOTOROOM = '/compat/photoroom/v1/segment';
const REMBG = '/compat/rembg/api/remove';
const ofPhotoroom = (form: Sent['form']) => ({ path: PHOTOROOM, form }) as Sent;
const ofRembg = (form: Sent['form']) => ({ path: REMBG, form }) as Sent;

type Mistakes = Readonly<Record<string, readonly [sent: Sent, says: string | RegExp]>>;

const MISTAKES: Mistakes = {
  'no Authorization': [
    { headers: { authorization: undefined } },
    'Authorization: Bearer <API_KEY>',
  ],
  'X-Api-Key to /v1': [
    { headers: { authorization: undefined, 'x-api-key': 'mk_x' } },
    'Authorization: Bearer <API_KEY>',
  ],
  'a key without Bearer': [
    { headers: { authorization: 'mk_x' } },
    'Authorization: Bearer <API_KEY>',
  ],
  'a variable that is not set': [{ headers: { authorization: 'Bearer ' } }, 'variable'],
  Basic: [{ headers: { authorization: 'Basic bWs=' } }, 'Authorization: Bearer <API_KEY>'],
  'a key of another service': [{ headers: { authorization: 'Bearer sk_live_1' } }, 'mk_'],
  'a key that is none any more': [{ headers: { authorization: 'Bearer undefined' } }, 'mk_'],
  'no Idempotency-Key': [
    { ...file('x'), headers: { 'idempotency-key': undefined } },
    'Idempotency-Key: order-4711',
  ],
  'a read without one': [
    { path: '/v1/account', headers: { 'idempotency-key': undefined } },
    'Idempotency-Key: read-1',
  ],
  'an empty one': [{ ...file('x'), headers: { 'idempotency-key': '' } }, 'order-4711'],
  'a long one': [{ ...file('x'), headers: { 'idempotency-key': 'k'.repeat(129) } }, '128'],
  'one that is not ASCII': [{ ...file('x'), headers: { 'idempotency-key': 'café' } }, 'order-4711'],
  'a misspelt path': [{ path: '/v1/mating' }, '/v1/matting'],
  'a path without /v1': [{ path: '/matting' }, '/v1/matting'],
  'remove.bg under /v1': [{ path: '/v1/removebg', method: 'POST' }, '/v1.0/removebg'],
  'a plural': [{ path: '/v1/accounts' }, 'Did you mean /v1/account?'],
  'a path of nothing': [{ path: '/v2/jobs' }, '/v1/openapi.json'],
  'GET to submit': [{ path: '/v1/matting' }, 'POST'],
  'PUT of a picture': [{ method: 'PUT', path: '/v1/matting', body: PNG }, 'POST'],
  'a job that is none': [{ path: `${JOBS}/42` }, 'status_url'],
  'a result that is none': [{ path: '/v1/results/abc' }, 'result.url'],
  // bodies.test.ts has what no body may be.
  'no body': [{ method: 'POST', path: JOBS }, 'JSON object'],
  'no source': [{ form: { crop: 'true' } }, 'image_file'],
  'no source in JSON': [{ json: {} }, 'image_url'],
  'two sources': [{ json: { image_url: 'x', image_base64: BASE64 } }, 'image_url, image_base64'],
  imageUrl: [{ json: { imageUrl: 'https://example.com/' } }, 'Did you mean image_url?'],
  'bg_color (remove.bg)': [withField('bg_color', 'white'), '/v1/openapi.json'],
  'the key as a field': [withField('api_key', 'mk_x'), 'Authorization: Bearer <API_KEY>'],
  'a field of nobody': [withField('despill', 'true'), '/v1/openapi.json'],
  'a format that is none': [withField('output_format', 'gif'), 'webp'],
  'JPEG without a background': [withField('output_format', 'jpeg'), 'background'],
  'a colour that is none': [withField('background', 'whit'), 'CSS colour'],
  'a share without its sign': [withField('scale', '0.8'), '%'],
  'a margin without crop': [withField('crop_margin', '5%'), 'needs crop'],
  'true as a word': [withField('crop', 'yes'), 'true'],
  'a size as words': [withField('output_width', '100px'), 'whole number'],
  'a box of the subject as JSON': [withField('subject_box', '[1,2,3,4]'), 'x1 y1 x2 y2'],
  'a stroke without its list': [
    withField('keep', '{"line": [[1, 2]], "radius": 3}'),
    '[{"line": [[10, 20], [30, 40]], "radius": 5}]',
  ],
  'a stroke without a radius': [withField('erase', '[{"line": [[1, 2]]}]'), '"radius": r'],
  'strokes and a file of them': [
    { form: { image_file: PNG, hints_file: PNG, keep: '[{"box": [0, 0, 2, 2]}]' } },
    'hints_file cannot be combined with keep',
  ],
  'a mask as JPEG': [
    { form: { image_file: PNG, hints_file: Buffer.from('ffd8ffe000104a464946', 'hex') } },
    'png or webp',
  ],
  'a model that is none': [withField('model', 'u2net!'), 'GET /v1/models'],
  'Accept of HTML pictures': [
    { ...file('x'), path: '/v1/matting', headers: { accept: 'image/gif' } },
    'image/png',
  ],
  'an empty file': [file(''), 'image_file'],
  'a GIF': [file('GIF89a\x01\0'), /GIF picture.*JPEG, PNG/],
  'a PDF': [file('%PDF-1.7\n'), /PDF document.*JPEG, PNG/],
  'a web page': [file('<!doctype html><html>'), /web page.*JPEG, PNG/],
  'an MP4': [file('\0\0\0\x14ftypisom\0\0\0\0isom'), /MP4 video.*JPEG, PNG/],
  'a camera raw': [file('II*\0\x10\0\0\0CR\x02\0'), /camera raw.*JPEG, PNG/],
  'Base64 as a file': [file('/9j/4AAQSkZJRgABAQ'), 'image_base64'],
  'JSON as a picture': [
    { body: '{"image_url":"x"}', headers: { 'content-type': 'image/png' } },
    /JSON.*JPEG, PNG/,
  ],
  'a picture that is too wide': [{ form: { image_file: pngHeader(10_001, 9) } }, '10000'],
  'an address as Base64': [{ json: { image_base64: 'https://example.com/a.jpg' } }, 'image_url'],
  'a file as an address': [{ json: { image_url: 'photo.jpg' } }, 'image_base64'],
  'this machine as an address': [
    { json: { image_url: 'http://localhost:3000/a' } },
    'image_base64',
  ],
  'a callback to this machine': [
    withCallback('http://localhost:8095/'),
    /MATTING_ALLOW_HTTP_CALLBACKS.*MATTING_ALLOWED_NETWORKS/,
  ],
  'a callback inside': [withCallback('https://10.0.0.1/'), 'MATTING_ALLOWED_NETWORKS'],
  'a callback that is no URL': [withCallback('hooks.example.com'), 'https://'],
  'a callback without a secret': [
    { json: { image_base64: BASE64, callback_url: 'https://hooks.example.com/' } },
    'callback_secret',
  ],
  'a short secret': [withCallback('https://hooks.example.com/', 'secret'), '24 to 128'],
  'a whsec_ secret of too few bytes': [
    withCallback('https://hooks.example.com/', `whsec_${'QUJD'.repeat(5)}`),
    /after whsec_ send the Base64 of 24 to 64 bytes.*openssl rand -base64 32/,
  ],
  'a whsec_ secret of the URL-safe alphabet': [
    withCallback('https://hooks.example.com/', `whsec_${'QUJ-'.repeat(10)}`),
    /after whsec_ send the Base64/,
  ],
  'remove.bg: no key': [
    ofRemovebg({ ...file('x'), headers: { 'x-api-key': undefined } }),
    'X-Api-Key',
  ],
  'remove.bg: its own key': [
    ofRemovebg({ ...file('x'), headers: { 'x-api-key': 'INSERT' } }),
    'mk_',
  ],
  'remove.bg: no picture': [ofRemovebg({ form: { size: 'auto' } }), 'image_file'],
  'remove.bg: a PDF': [ofRemovebg(file('%PDF-1.7\n')), /PDF document.*JPEG, PNG/],
  'remove.bg: a size': [ofRemovebg(withField('size', 'huge')), 'preview'],
  'remove.bg: a format': [ofRemovebg(withField('format', 'gif')), 'png'],
  'remove.bg: an address': [
    ofRemovebg({ form: { image_url: 'http://127.0.0.1/' } }),
    'image_file_b64',
  ],
  'remove.bg: GET': [ofRemovebg({}), 'POST'],
  // Wrong fields are tested in their packages.
  'Photoroom: another name of the file': [ofPhotoroom({ image: PNG }), 'image_file'],
  'Photoroom: a path as the file': [ofPhotoroom({ image_file: 'a.jpg' }), /plain text.*JPEG, PNG/],
  'Photoroom: a PDF': [ofPhotoroom({ image_file: PDF }), /PDF document.*JPEG, PNG/],
  'Photoroom: too wide': [ofPhotoroom({ image_file: pngHeader(10_001, 9) }), '10000'],
  'Photoroom: the path alone': [{ path: '/v1/segment', form: { image_file: PNG } }, PHOTOROOM],
  'rembg: a path as an address': [{ path: `${REMBG}?url=photo.jpg` }, 'file of a POST'],
  'rembg: this machine as an address': [
    { path: `${REMBG}?url=http://localhost:3000/a.jpg` },
    'file of a POST',
  ],
  'rembg: a PDF': [ofRembg({ file: PDF }), /PDF document.*JPEG, PNG/],
  'rembg: PUT': [{ path: REMBG, method: 'PUT', body: PNG }, 'GET, POST'],
  'rembg: the path alone': [{ path: '/api/remove', form: { file: PNG } }, REMBG],
  'rembg: a misspelt path': [{ path: '/compat/rembg/api/remov', form: { file: PNG } }, REMBG],
};

for (const [mistake, [sent, says]] of Object.entries(MISTAKES)) {
  test(`by HTTP › ${mistake}`, async t => {
    const answer = await answerTo(sent);
    const found = typeof says === 'string' ? answer.includes(says) : says.test(answer);
    t.true(found, answer);
  });
}

const STATEFUL: Readonly<
  Record<string, readonly [make: () => Promise<Sent>, says: string | RegExp]>
> = {
  'a key that has expired': [
    async () => {
      const { token } = await app.stores.apiKeys.create(app.accountId, 'old', { expiresInMs: 1 });
      await new Promise(resolve => setTimeout(resolve, 5));
      return bearer(token);
    },
    'another key',
  ],
  'a key without the scope': [
    async () => ({
      ...withField('crop', 'true'),
      ...bearer(await app.createKey({ scopes: ['read'] })),
    }),
    'scope submit',
  ],
  'a key from elsewhere': [
    async () => bearer(await app.createKey({ networks: ['192.0.2.0/24'] })),
    '127.0.0.1',
  ],
  'a key at its cap': [
    async () => {
      const cap = { credits: 1, period: 'total' } as const;
      const sent = { ...withField('crop', 'true'), ...bearer(await app.createKey({ cap })) };
      await submit(sent);
      return { ...sent, headers: { ...sent.headers, 'idempotency-key': 'order-2' } };
    },
    'Raise the cap',
  ],
  'an account without credits': [
    async () => {
      const account = await app.stores.accounts.create('poor');
      assert.ok(account);
      const { token } = await app.stores.apiKeys.create(account.id, 'key');
      return { ...withField('crop', 'true'), ...bearer(token) };
    },
    '/v1/account',
  ],
  'one key for two pictures': [
    async () => {
      const headers = { 'idempotency-key': 'photo-1' };
      await submit({ ...withField('crop', 'true'), headers });
      return { form: { image_file: pngHeader(5, 5) }, headers };
    },
    'another key',
  ],
  'a job of another key': [
    async () => {
      const { job_id: jobId } = await submit({ ...withField('crop', 'false') });
      return { path: `${JOBS}/${jobId}`, ...bearer(await app.createKey()) };
    },
    'status_url',
  ],
};

function bearer(token: string): { readonly headers: Record<string, string> } {
  return { headers: { authorization: `Bearer ${token}`, 'idempotency-key': 'order-1' } };
}

async function submit({ form = {}, headers }: Sent) {
  const key = { authorization: `Bearer ${app.token}`, 'idempotency-key': 'order-0', ...headers };
  const sent = { method: 'POST', headers: key as Record<string, string>, body: formDataOf(form) };
  const answer = await fetch(`${base}${JOBS}`, sent);
  assert.equal(answer.status, 202, await answer.clone().text());
  return (await answer.json()) as { readonly job_id: string };
}

for (const [mistake, [make, says]] of Object.entries(STATEFUL)) {
  test(`by HTTP › ${mistake}`, async t => {
    const answer = await answerTo(await make());
    t.true(typeof says === 'string' ? answer.includes(says) : says.test(answer), answer);
  });
}

/** Only the job finds out what the address holds. */
test('by HTTP › an image_url that leads to a page', async t => {
  const page = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' });
    response.end('<!DOCTYPE html><html>');
  }).listen(0, '127.0.0.1');
  t.teardown(() => page.close());
  await once(page, 'listening');
  const policy = { fetchPorts: [80], allowPrivateAddresses: true };
  const fetcher = new ImageFetcher(new GuardedFetch(new OutgoingGuard({ policy })));
  const writer = await app.blobs.createWriter('inputs/page');
  t.teardown(() => writer.abort());
  const url = `http://127.0.0.1:${(page.address() as AddressInfo).port}/photo.jpg`;
  const signal = AbortSignal.timeout(10_000);
  await t.throwsAsync(fetcher.fetchImage(url, { accountId: app.accountId, writer, signal }), {
    message: /web page \(HTML\) \(Content-Type: text\/html\).*JPEG, PNG/,
  });
});

const client = (apiKey = app.token) => new MattingClient({ baseUrl: base, apiKey });

const BY_CLIENT: Readonly<Record<string, readonly [act: () => unknown, says: RegExp]>> = {
  'no key': [() => client(''), /MATTING_API_KEY/],
  'an environment without it': [
    () => new MattingClient({ baseUrl: base, apiKey: process.env.NO_SUCH_VARIABLE as string }),
    /MATTING_API_KEY/,
  ],
  'an address without a scheme': [
    () => new MattingClient({ baseUrl: 'localhost:8080', apiKey: 'mk_x' }),
    /http\(s\):\/\//,
  ],
  'a wrong key': [() => client('mk_x').account(), /mk_/],
  'a path as the image': [() => client().submit({ image: './photo.jpg' }), /readImage/],
  'a field that is none': [
    () => client().submit({ image: new Uint8Array(PNG), backgroud: 'red' } as never),
    /Did you mean background\?/,
  ],
  'a picture that is none': [
    () => client().submit({ image: new Uint8Array(Buffer.from('GIF89a')) }),
    /GIF picture.*JPEG, PNG/,
  ],
  'a job that is none': [() => client().job('42'), /status_url/],
};

for (const [mistake, [act, says]] of Object.entries(BY_CLIENT)) {
  test(`by the client › ${mistake}`, async t => {
    await t.throwsAsync(async () => act(), { message: says });
  });
}

const BY_COMMAND: Readonly<
  Record<string, readonly [args: readonly string[], says: string, key?: string | undefined]>
> = {
  'no file': [['--to', 'out'], '--help'],
  'no place for results': [['photo.jpg'], '--to'],
  'no key': [['photo.jpg', '--to', 'out'], 'MATTING_API_KEY', ''],
  'a wrong key': [['photo.jpg', '--to', 'out'], 'mk_', 'sk_live_1'],
  'a misspelt option': [['photo.jpg', '--formt', 'webp'], 'did you mean --format?'],
  'half of an option': [['photo.jpg', '--skip-existin'], 'did you mean --skip-existing?'],
  'an option of nothing': [['photo.jpg', '--despill'], '--help'],
  'a format that is none': [['photo.jpg', '--to', 'out', '--format', 'gif'], 'webp'],
  'a file that is not there': [['none.jpg', '--to', 'out'], 'none.jpg'],
  'a folder of folders': [['below', '--to', 'out'], '--recursive'],
  'a picture that is none': [['page.jpg', '--to', 'out'], 'JPEG, PNG'],
  'a number that is none': [['photo.jpg', '--to', 'out', '--concurrency', 'many'], '1 to 64'],
};

for (const [mistake, [args, says, key]] of Object.entries(BY_COMMAND)) {
  test(`by matting-remove › ${mistake}`, async t => {
    const folder = await temporaryFolder(t);
    await writeFile(path.join(folder, 'photo.jpg'), PNG);
    await writeFile(path.join(folder, 'page.jpg'), '<!doctype html>');
    await mkdir(path.join(folder, 'below'));
    const before = process.cwd();
    process.chdir(folder);
    process.env.MATTING_API_KEY = key ?? app.token;
    const out = sinon.stub(process.stdout, 'write').returns(true);
    const err = sinon.stub(process.stderr, 'write').returns(true);
    const code = await main(['--url', base, ...args]).finally(() => {
      out.restore();
      err.restore();
      process.chdir(before);
      delete process.env.MATTING_API_KEY;
    });
    const said = err.args.map(([text]) => String(text)).join('');
    t.true(said.includes(says), said);
    t.is(code !== 0, mistake !== 'a folder of folders');
  });
}

const BY_OPERATOR: readonly (readonly [args: readonly string[], says: string])[] = [
  [['keys', 'crate'], 'create'],
  [['keys', 'create'], '--account'],
  [['keys', 'create', '--account', 'nobody'], 'accounts list'],
  [['keys', 'create', '--account', 'tester', '--expires-in', 'soon'], 'never'],
  [['keys', 'create', '--account', 'tester', '--scopes', 'all,none'], 'submit'],
  [['webhooks', 'list', '--status', 'lost'], 'pending'],
  [['webhooks', 'listen', '--secret', 'short'], '24 to 128'],
];

for (const [args, says] of BY_OPERATOR) {
  test(`by the operator's command › ${args.join(' ')}`, async t => {
    const env = { MATTING_DATA_DIR: path.dirname(app.databaseFile) };
    const { code, out, err } = await runCli(env, ...args);
    t.not(code, 0);
    t.true(err.includes(says), out + err);
  });
}

test('the tables have a hundred mistakes', t => {
  const tables = [MISTAKES, STATEFUL, BY_CLIENT, BY_COMMAND, BY_OPERATOR];
  t.true(tables.flatMap(table => Object.keys(table)).length >= 100);
});
