/** Follows Photoroom's document of `POST /v1/segment` field by field, and its errors. */
import { randomUUID } from 'node:crypto';
import { pngHeader, type TestApp, testApps } from '@matting/core/test/support/test-app.ts';
import { FORM_TYPE, formOf } from '@matting/http/test/forms.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { type Finishing, SHADOW } from '@matting/proto/contract/finishing.ts';
import ava from 'ava';
import { photoroom } from './photoroom.ts';
import { photoroomRequestOf } from './photoroom-request.ts';

const test = ava.serial;

const PATH = '/compat/photoroom/v1/segment';
const RESULT = Buffer.from('a cut-out');
const ON = { settings: { photoroom: {} } };

const { openTestApp, useTestApp } = testApps([photoroom], stores => stores);
const app = useTestApp(test, ON);

type Parts = Readonly<Record<string, string | Buffer>>;

/** Unique, since the same image is the same job. */
const image = () => Buffer.concat([pngHeader(40, 30), Buffer.from(randomUUID())]);

function segment(parts: Parts, more: Record<string, string> = {}, of: TestApp = app) {
  const body = formOf(
    Object.entries(parts).map(([name, body]) => ({
      ...(typeof body === 'string' ? {} : { fileName: 'photo.jpg', type: 'image/jpeg' }),
      ...{ name, body },
    })),
  );
  const headers = { 'x-api-key': of.token, ...FORM_TYPE, ...more };
  return of.app.inject({ method: 'POST', url: PATH, headers, payload: body });
}

/** Ends the jobs that `ask` makes. */
async function made<T>(send: () => Promise<T>): Promise<T> {
  const jobs = app.onSubmitted(id => app.succeedJob(id, RESULT));
  try {
    return await send();
  } finally {
    await jobs.stop();
  }
}

const parsed = (texts: Record<string, string>) =>
  photoroomRequestOf({
    texts: new Map(Object.entries(texts)) as never,
    pictures: new Set(['image_file']),
    unknown: [],
  });
const on = (rgba: number) => ({ background: { kind: 'colour', rgba } }) as const;
const px = { px: 0 };
const NONE = { top: px, right: px, bottom: px, left: px };
const FULL = { sizeMaxMegapixels: 36 };

const MEANT: readonly [Record<string, string>, format: string, Finishing][] = [
  [{}, 'png', FULL],
  [{ format: 'png', channels: 'rgba', size: 'full', crop: 'false', despill: 'false' }, 'png', FULL],
  [{ 'shadow.mode': 'ai.soft' }, 'png', { ...FULL, shadow: SHADOW.absent }],
  [{ 'shadow.mode': 'ai.hard', channels: 'alpha' }, 'png', FULL],
  [{ size: 'preview' }, 'png', { sizeMaxMegapixels: 0.25 }],
  [{ size: 'medium' }, 'png', { sizeMaxMegapixels: 1.5 }],
  [{ size: 'hd', format: 'webp' }, 'webp', { sizeMaxMegapixels: 4 }],
  [{ format: 'jpg' }, 'jpeg', { ...FULL, ...on(0xffffffff) }],
  [{ format: 'jpg', bg_color: '#FF00FF' }, 'jpeg', { ...FULL, ...on(0xff00ffff) }],
  [{ bg_color: 'green' }, 'png', { ...FULL, ...on(0x008000ff) }],
  [{ bg_color: 'transparent' }, 'png', FULL],
  [{ channels: 'alpha' }, 'png', FULL],
  [{ channels: 'alpha', format: 'webp' }, 'webp', FULL],
  [{ crop: 'true' }, 'png', { ...FULL, crop: NONE }],
];

test('Photoroom’s fields mean what its reference says', t => {
  for (const [texts, format, finishing] of MEANT) {
    const { request } = parsed(texts);
    const actual: unknown = [request.outputFormat, request.channels, request.finishing];
    t.deepEqual(actual, [format, texts.channels ?? 'rgba', finishing], JSON.stringify(texts));
  }
  t.deepEqual(parsed({ despill: 'true' }).ignored, ['despill']);
  t.deepEqual(parsed({ 'shadow.mode': 'ai.floating' }).ignored, []);
  t.deepEqual(parsed({ 'shadow.mode': 'ai.soft', channels: 'alpha' }).ignored, ['shadow.mode']);
});

/** Each with what its error says to send. */
const NONSENSE: readonly [string, Record<string, string>, says?: string][] = [
  ['format', { format: 'jpeg' }, 'webp'],
  ['channels', { channels: 'rgb' }, 'alpha'],
  ['bg_color', { bg_color: 'greenish' }, 'hexadecimal'],
  ['size', { size: 'auto' }, 'preview'],
  ['crop', { crop: 'yes' }, 'true'],
  ['despill', { despill: 'maybe' }],
  ['shadow.mode', { 'shadow.mode': 'drop' }],
  ['channels', { channels: 'alpha', bg_color: 'red' }],
  ['format', { channels: 'alpha', format: 'jpg' }, 'png'],
];

test('an invalid value is refused by the name of its field', t => {
  for (const [field, texts, says = ''] of NONSENSE) {
    const error = t.throws(() => parsed(texts), { instanceOf: ContractError });
    t.is(error?.fieldErrors[0]?.field, field, JSON.stringify(texts));
    t.true(error?.message.includes(says), error?.message);
  }
});

const BASE64 = pngHeader(4, 3).toString('base64');
const REFUSED: readonly [Parts, string, string][] = [
  [{}, 'missing_image', 'Please provide an image. Send it as image_file.'],
  [
    { image_file: '', size: 'hd' },
    'missing_image',
    'Please provide an image. Send it as image_file.',
  ],
  [
    { image_file: pngHeader(4, 3), image_file_b64: BASE64 },
    'invalid_request',
    'The request has more than one image. Send one of image_file, image_file_b64.',
  ],
  [
    { image_file_b64: '!' },
    'invalid_image_source',
    'image_file_b64 is not Base64: character 1 is not in the Base64 alphabet.',
  ],
  [{ image_file: pngHeader(4, 3), crop: 'x' }, 'invalid_parameter', 'crop must be true or false.'],
];

test('errors have its three members, and nothing is charged', async t => {
  const balances = await app.stores.ledger.balances(app.accountId);
  for (const [parts, type, detail] of REFUSED) {
    const answer = await segment(parts);
    t.deepEqual(answer.json(), { detail, status_code: 400, type });
    t.deepEqual([answer.statusCode, answer.headers['x-credits-charged']], [400, '0']);
  }
  const none = await app.app.inject({
    method: 'POST',
    url: PATH,
    headers: { 'x-api-key': app.token },
  });
  t.is(none.json().type, 'missing_image');
  t.deepEqual(await app.stores.ledger.balances(app.accountId), balances);
  t.deepEqual(await app.storedFiles(), []);
});

test('a key that is wrong, absent or not allowed is 403, and an empty account 402', async t => {
  const reader = await app.createKey({ scopes: ['read'] });
  for (const [key, type, says] of [
    ['', 'missing_api_key', /X-Api-Key/],
    ['wrong', 'invalid_api_key', /mk_/],
    [reader, 'key_not_allowed', /scope/],
  ] as const) {
    const answer = await segment({ image_file: image() }, { 'x-api-key': key });
    const { detail, ...rest } = answer.json();
    t.deepEqual([answer.statusCode, rest], [403, { status_code: 403, type }], detail);
    t.regex(detail, says);
  }
  const poor = await openTestApp({ ...ON, credits: 0 }, t);
  const answer = await segment({ image_file: image() }, {}, poor);
  t.deepEqual([answer.statusCode, answer.json().type], [402, 'insufficient_credits']);
});

test('errors have Photoroom’s form, with a time to wait if they may pass', async t => {
  const get = await app.app.inject(PATH);
  t.deepEqual(
    [get.statusCode, get.json().type, get.headers.allow],
    [405, 'method_not_allowed', 'POST'],
  );
  t.is((await app.app.inject('/compat/photoroom/v2/edit')).json().type, 'not_found');
  for (const [retryable, status] of [
    [true, 503],
    [false, 400],
  ] as const) {
    const failure = { code: 'PROCESSING_FAILED', detail: 'no', retryable } as const;
    const jobs = app.onSubmitted(id => app.failJob(id, failure));
    const answer = await segment({ image_file: image() });
    await jobs.stop();
    t.deepEqual([answer.statusCode, answer.json().status_code], [status, status]);
    t.is(answer.headers['retry-after'] !== undefined, retryable);
    t.truthy(answer.headers['x-job-id']);
  }
  const busy = await openTestApp({ ...ON, submissionsPerMinute: 1 }, t);
  const answers = [];
  for (let count = 0; count < 4; count += 1) answers.push(await segment({}, {}, busy));
  const [over] = answers.filter(({ statusCode }) => statusCode === 429);
  t.is(over?.json().type, 'rate_limited');
  t.regex(String(over?.headers['retry-after']), /^\d+$/);
});

test('the answer is the picture, or JSON where that alone is accepted', async t => {
  const file = image();
  const first = await made(() =>
    segment({ image_file: file }, { accept: 'image/png, application/json' }),
  );
  t.deepEqual([first.statusCode, first.rawPayload], [200, RESULT]);
  t.deepEqual([first.headers['content-type'], first.headers.vary], ['image/png', 'accept']);
  t.is(first.headers['x-credits-charged'], '1');
  const again = await segment({ image_file: file }, { accept: 'application/json' });
  t.is(again.headers['content-length'], String(again.rawPayload.length));
  t.deepEqual(again.json(), { base64img: RESULT.toString('base64') });
  t.deepEqual(
    [again.headers['x-credits-charged'], again.headers['x-job-id']],
    ['0', first.headers['x-job-id']],
  );
});

test('the image in Base64 as JSON is the same request, and what has no effect is named', async t => {
  const file = image();
  const sent = { despill: 'true', tag: 'batch 1', size: 'hd' };
  const form = await made(() => segment({ ...sent, image_file: file }));
  t.is(form.headers['x-ignored-fields'], 'tag, despill');
  const json = { image_file_b64: file.toString('base64'), size: 'hd', crop: false };
  const headers = { 'x-api-key': app.token };
  const answer = await app.app.inject({ method: 'POST', url: PATH, headers, payload: json });
  t.is(answer.headers['x-job-id'], form.headers['x-job-id']);
  t.is(answer.headers['x-credits-charged'], '0');
});

test('Photoroom’s interface is off unless the operator turns it on', async t => {
  const answer = await segment({ image_file: image() }, {}, await openTestApp({}, t));
  t.deepEqual(
    [answer.statusCode, answer.headers['content-type']],
    [404, 'application/problem+json'],
  );
});
