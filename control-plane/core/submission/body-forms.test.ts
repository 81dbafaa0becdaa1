import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { FORM_TYPE, formOf, imagePart, type Part } from '@matting/http/test/forms.ts';
import type { ErrorCode } from '@matting/proto/contract/errors.ts';
import { BACKGROUND_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import ava, { type ExecutionContext } from 'ava';
import { backgroundBlob } from '../jobs/blob-names.ts';
import { bytesOf, version4, version5 } from '../test/java-forms.ts';
import { ASYNC, assertRefused, SYNC, snapshot } from '../test/refusals.ts';
import { imageBody, pngHeader, useTestApp } from '../test/support/test-app.ts';

const test = ava.serial;

const app = useTestApp(test, { syncWaitMs: 60_000, credits: 100_000, jobsInFlightMax: 1000 });

type Headers = Record<string, string | undefined>;
const PICTURE = { 'content-type': 'image/png' };
const image = pngHeader(4, 3);
const text = (name: string, body: string | Buffer): Part => ({ name, body });
const url = text('image_url', 'https://images.example.com/photo.jpg');
const CALLBACK = [
  text('callback_url', 'https://example.com/hook'),
  text('callback_secret', 'a secret of 24 characters'),
];

interface Sent {
  readonly path?: string;
  readonly body: Buffer | string;
  readonly headers: Headers;
}

async function refused(
  t: ExecutionContext,
  { path = '', body, headers }: Sent,
  code: ErrorCode,
  expected: { readonly field?: string | undefined; readonly detail?: RegExp } = {},
): Promise<void> {
  const was = await snapshot(app);
  // The other route would wait for a job that is not refused.
  for (const at of [ASYNC, SYNC]) {
    const answer = await app.post(`${at}${path}`, body, headers);
    const problem = answer.json();
    t.is(problem.code, code, answer.payload);
    t.is(problem.errors?.[0].field, expected.field, answer.payload);
    t.regex(problem.detail, expected.detail ?? /./);
    t.is(answer.headers['x-credits-charged'], undefined);
  }
  t.deepEqual(await snapshot(app), was);
}

const refusedForm = (
  t: ExecutionContext,
  parts: readonly Part[],
  code: ErrorCode,
  expected: { readonly field?: string; readonly detail?: RegExp } = {},
) => refused(t, { body: formOf(parts), headers: FORM_TYPE }, code, expected);

async function taken(sent: Sent): Promise<string> {
  const answer = await app.post(`${ASYNC}${sent.path ?? ''}`, sent.body, sent.headers);
  assert.equal(answer.statusCode, 202, answer.payload);
  return answer.json().job_id;
}

async function storedInput(jobId: string): Promise<Buffer> {
  return Buffer.concat(await (await app.blobs.openRead(`inputs/${jobId}`)).toArray());
}

test('a form: the file first, last or between, with every other field', async t => {
  const fields = [text('output_format', 'WebP'), ...CALLBACK];
  for (const at of [0, 1, 3]) {
    const parts = [...fields];
    parts.splice(at, 0, imagePart(image));
    const jobId = await taken({ body: formOf(parts), headers: FORM_TYPE });
    const job = await app.stores.jobs.find(jobId);
    t.is(job?.outputFormat, 'webp');
    const { callback } = (await app.get(`${ASYNC}/${jobId}`)).json();
    t.is(callback.url, 'https://example.com/hook');
    t.deepEqual(await storedInput(jobId), image);
  }
});

test('a form with image_url, and with image_base64', async t => {
  const byUrl = await taken({ body: formOf([url]), headers: FORM_TYPE });
  const job = await app.stores.jobs.find(byUrl);
  t.is(job?.sourceUrl, String(url.body));
  const base64 = text('image_base64', `data:image/png;base64,\r\n${image.toString('base64')}\r\n`);
  const jobId = await taken({ body: formOf([base64]), headers: FORM_TYPE });
  t.deepEqual(await storedInput(jobId), image);
});

test('a picture as the body, by whatever type of a picture, its fields in the query', async t => {
  const octets = ['application/octet-stream', 'binary/octet-stream'];
  const types = ['image/png', 'image/jpeg', 'IMAGE/X-unknown; a=b', ...octets];
  for (const type of types) {
    const jobId = await taken({
      path: '?output_format=%61VIF&',
      body: image,
      headers: { 'content-type': type },
    });
    t.is((await app.stores.jobs.find(jobId))?.outputFormat, 'avif');
    t.deepEqual(await storedInput(jobId), image);
  }
});

// See also test/contract/bodies.test.ts (any form) and mistakes.test.ts (fields).
test('a form: one source, which has bytes', async t => {
  const file = imagePart(image);
  const base64 = text('image_base64', image.toString('base64'));
  const source = 'INVALID_IMAGE_SOURCE';
  for (const [field, parts, detail] of [
    ['image_file', [], /Send one of image_file/],
    ['image_file', [file, url], /Send one of/],
    ['image_url', [base64, url], /Send one of/],
    ['image_file', [file, base64], /Send one of/],
    ['image_file', [base64, file, text('oops', '')], /Send one of/],
    ['image_file', [imagePart(Buffer.alloc(0))], /empty/],
    ['image_base64', [text('image_base64', '###')], /./],
    ['image_url', [text('image_url', `https://a.example/${'a'.repeat(9000)}`)], /2048 characters/],
  ] as const) {
    await refusedForm(t, parts, source, { field, detail });
  }
  const background = imagePart(Buffer.alloc(BACKGROUND_BYTES_MAX + 1), 'background_file');
  await refusedForm(t, [file, background], 'IMAGE_TOO_LARGE', {
    detail: /^The background .*10 MiB/,
  });
});

test('a picture as the body: a value of its query, and its bytes', async t => {
  const send = (path: string, body = image) => ({ path, body, headers: PICTURE });
  const field = 'output_format';
  await refused(t, send('?output_format'), 'UNSUPPORTED_OUTPUT_FORMAT', { field });
  await refused(t, send('', Buffer.alloc(0)), 'INVALID_IMAGE_SOURCE', { detail: /empty/ });
  const base64 = Buffer.from(image.toString('base64'));
  await refused(t, send('', base64), 'UNSUPPORTED_IMAGE_FORMAT');
});

function formsOf(bytes: Buffer, format?: string): Record<string, Sent> {
  const json = { image_base64: bytes.toString('base64'), output_format: format ?? null };
  const fields = format === undefined ? [] : [text('output_format', format)];
  return {
    json: { body: JSON.stringify(json), headers: {} },
    form: { body: formOf([...fields, imagePart(bytes)]), headers: FORM_TYPE },
    'form with Base64': {
      body: formOf([text('image_base64', bytes.toString('base64')), ...fields]),
      headers: FORM_TYPE,
    },
    picture: {
      path: format === undefined ? '' : `?output_format=${format}`,
      body: bytes,
      headers: PICTURE,
    },
  };
}

test('the same picture under one key is one request, whatever the forms of both', async t => {
  for (const format of [undefined, 'WEBP']) {
    for (const first of Object.values(formsOf(image, format))) {
      const key = { 'idempotency-key': randomUUID() };
      const jobId = await taken({ ...first, headers: { ...first.headers, ...key } });
      const was = await snapshot(app);
      for (const again of Object.values(formsOf(image, format))) {
        const headers = { ...again.headers, ...key };
        for (const at of [SYNC, ASYNC]) {
          const path = `${at}${again.path ?? ''}`;
          const answer = await app.post(path, again.body, { ...headers, prefer: 'wait=0' });
          t.is(answer.statusCode, 202, answer.payload);
          t.is(answer.json().job_id, jobId);
        }
      }
      for (const other of [formsOf(pngHeader(4, 4), format), formsOf(image, 'jxl')]) {
        for (const { path = '', body, headers } of Object.values(other)) {
          const answer = await app.post(`${ASYNC}${path}`, body, { ...headers, ...key });
          t.is(answer.json().code, 'IDEMPOTENCY_CONFLICT');
        }
      }
      t.deepEqual(await snapshot(app), was);
      await app.succeedJob(jobId);
      for (const { path = '', body, headers } of Object.values(formsOf(image, format))) {
        const answer = await app.post(`${SYNC}${path}`, body, { ...headers, ...key });
        t.is(answer.headers['idempotent-replayed'], 'true');
        t.is(answer.json().job_id, jobId);
      }
    }
  }
});

test('the fields of finishing mean the same in every form, and a file behind is one more', async t => {
  const fields = {
    crop: true,
    crop_margin: '10% 20px',
    scale: '85%',
    size_max_megapixels: 2.5,
    output_width: 2000,
    background: '#FFF',
    output_format: 'jpeg',
  };
  const texts = Object.entries(fields).map(([name, value]) => text(name, String(value)));
  const query = new URLSearchParams();
  for (const { name, body } of texts) query.set(name, String(body));
  const sent: readonly Sent[] = [
    { body: JSON.stringify({ ...imageBody(), ...fields }), headers: {} },
    { body: formOf([imagePart(image), ...texts]), headers: FORM_TYPE },
    { path: `?${query}`, body: image, headers: PICTURE },
  ];
  const jobs = await Promise.all(sent.map(async one => app.stores.jobs.find(await taken(one))));
  t.is(new Set(jobs.map(job => job?.fingerprint)).size, 1);
  for (const job of jobs) t.deepEqual(job?.finishing, jobs[0]?.finishing);
  t.is(jobs[0]?.finishing?.outputWidth, 2000);

  const behind = imagePart(pngHeader(9, 9), 'background_file');
  const withFile = { body: formOf([behind, imagePart(image)]), headers: FORM_TYPE };
  const key = { 'idempotency-key': randomUUID() };
  const jobId = await taken({ ...withFile, headers: { ...FORM_TYPE, ...key } });
  t.deepEqual((await app.stores.jobs.find(jobId))?.finishing?.background, { kind: 'picture' });
  const turned = formOf([imagePart(image), behind]);
  t.is(await taken({ body: turned, headers: { ...FORM_TYPE, ...key } }), jobId);
  const other = formOf([imagePart(image), imagePart(pngHeader(9, 8), 'background_file')]);
  const conflict = await app.post(ASYNC, other, { ...FORM_TYPE, ...key });
  t.is(conflict.json().code, 'IDEMPOTENCY_CONFLICT');
  const both = formOf([imagePart(image), behind, text('background', 'white')]);
  const field = 'background_file';
  await refused(t, { body: both, headers: FORM_TYPE }, 'INVALID_PARAMETER', { field });
});

/** The release before these forms recorded this for the picture as Base64 alone. */
const RECORDED_FINGERPRINT = 'ab5105ffc6c57e503daf432735361bce917bbbf29903e0dd8edf53e6b672df7a';

test('a key from before the upgrade replays', async t => {
  const jobId = await taken({ body: JSON.stringify(imageBody()), headers: {} });
  t.is((await app.stores.jobs.find(jobId))?.fingerprint, RECORDED_FINGERPRINT);
});

test('a picture and its background take one place, given back once', async t => {
  const { image: subject, background } = app.services.uploads.beginBoth(app.accountId);
  const other = app.services.uploads.beginBoth(app.accountId);
  await background.write(Buffer.from('AAAA'));
  await subject.write(Buffer.from('AAAA'));
  await other.image.write(Buffer.from('AAAA'));
  t.is(app.services.uploads.open, 2);
  await subject.abort();
  t.is(app.services.uploads.open, 2);
  await background.abort();
  await background.abort();
  t.is(app.services.uploads.open, 1);
  const ended = other.image.abort();
  t.is(app.services.uploads.open, 1, 'as long as its file is there');
  await ended;
  t.is(app.services.uploads.open, 0);
});

const SHOP = {
  background: '#FFF',
  crop: true,
  crop_margin: '5% 2px',
  scale: '85%',
  output_width: 1000,
  output_height: '1000',
  output_format: 'jpg',
};
const MEANT = {
  crop: { top: { percent: 5 }, right: { px: 2 }, bottom: { percent: 5 }, left: { px: 2 } },
  scalePercent: 85,
  outputWidth: 1000,
  outputHeight: 1000,
  background: { kind: 'colour', rgba: 0xffffffff },
};
const HOOK = {
  callback_url: 'https://example.com/hook',
  callback_secret: 'a secret of 24 characters',
};
const FILE = pngHeader(7, 5);
const SIGHT = {
  inputWidth: 2,
  inputHeight: 1,
  subject: {
    inputBox: { left: 1, top: 0, width: 1, height: 1 },
    resultBox: { left: 5, top: 6, width: 7, height: 8 },
    share: 0.5,
  },
};

const filePart = (body: Buffer) => imagePart(body, 'background_file');
const formWith = (body: Buffer) => formOf([imagePart(pngHeader(2, 1)), filePart(body)]);

async function jobOf(body: unknown, headers: Record<string, string> = {}) {
  const answer = await app.post(ASYNC, body, headers);
  assert.equal(answer.statusCode, 202, answer.payload);
  const job = await app.stores.jobs.find(answer.json().job_id);
  assert.ok(job);
  return job;
}

test('finishing › the fields arrive in the job, and the same values in other words are the same request', async t => {
  const key = { 'idempotency-key': randomUUID() };
  const job = await jobOf(imageBody(SHOP), key);
  t.deepEqual([job.outputFormat, job.channels], ['jpeg', 'rgba']);
  t.deepEqual(job.finishing, MEANT);
  const reworded = { ...SHOP, background: 'white', scale: '85.0%', output_width: '1000' };
  const again = await jobOf(imageBody(reworded), key);
  t.is(again.id, job.id);
  const other = await app.post(ASYNC, imageBody({ ...SHOP, scale: '84%' }), key);
  t.is(other.json().code, 'IDEMPOTENCY_CONFLICT');
});

test('finishing › a value that cannot be followed is refused by its name, before the callback', async t => {
  // proto/contract/test/finishing-fields.test.ts has the other mistakes.
  const wrong = { image_base64: '###', callback_url: 'x' };
  for (const [body, field] of [
    [{ ...wrong, scale: '5%' }, 'scale'],
    [{ ...wrong, output_height: '' }, 'output_height'],
    [imageBody({ background_url: 'http://127.0.0.1/' }), 'background_url'],
  ] as const) {
    await assertRefused(t, app, body, 'INVALID_PARAMETER', field);
  }
  for (const format of [
    { output_format: 'jpeg', background: '#ffffff80' },
    { output_format: 'zip' },
  ]) {
    await assertRefused(t, app, imageBody(format), 'UNSUPPORTED_OUTPUT_FORMAT', 'output_format');
  }
});

test('finishing › a frame that fields make larger than the image and than 50 megapixels is refused', async t => {
  const sized = (width: number, height: number, fields: Record<string, unknown>) => ({
    ...imageBody(fields),
    image_base64: pngHeader(width, height).toString('base64'),
  });
  const far = { crop: true, crop_margin: '10000px' };
  for (const [field, body] of [
    ['output_height', sized(1, 1, { output_height: 10_000 })],
    ['crop_margin', sized(24, 18, far)],
    ['crop_margin', sized(24, 18, { ...far, channels: 'alpha', size_max_megapixels: 51 })],
  ] as const) {
    const detail = await assertRefused(t, app, body, 'INVALID_PARAMETER', field);
    t.regex(detail, /^\w+ makes a frame of \d+ pixels\. .* 50 megapixels/);
  }
  await jobOf(sized(24, 18, { ...far, size_max_megapixels: 50 }));
  await jobOf(sized(10_000, 6000, { background: 'white' }));
  await jobOf(sized(10_000, 6000, { crop: true, crop_margin: '1%' }));
});

test('finishing › a region lies within the image, however a camera turned it', async t => {
  const body = (roi: string) => ({
    image_base64: pngHeader(40, 30).toString('base64'),
    roi,
  });
  for (const roi of ['0 0 41px 31px', '9px 9px 9px 20px', '50% 0 50% 100%']) {
    await assertRefused(t, app, body(roi), 'INVALID_PARAMETER', 'roi');
  }
  const job = await jobOf(body('0 0 30px 40px'));
  t.deepEqual(job.finishing?.region?.bottom, { px: 40 });
});

test('finishing › a quality is of the format that the caller accepts, where none is named', async t => {
  const ask = async (accept: string, quality: number) => {
    const headers = { accept, prefer: 'wait=0', 'idempotency-key': randomUUID() };
    const answer = await app.post('/v1/matting', imageBody({ quality }), headers);
    if (answer.statusCode !== 202) return answer.json().code;
    const job = await app.stores.jobs.find(answer.json().job_id);
    return [job?.outputFormat, job?.finishing];
  };
  t.deepEqual(await ask('image/webp', 70), ['webp', { quality: 70 }]);
  t.deepEqual(await ask('image/webp', 90), ['webp', null]);
  t.deepEqual(await ask('image/png, image/avif', 70), ['avif', { quality: 70 }]);
  t.is(await ask('application/json', 70), 'INVALID_PARAMETER');
  t.is(await ask('image/png', 70), 'NOT_ACCEPTABLE');
});

test('finishing › a background by its URL is to be downloaded, and counts by its text', async t => {
  const key = { 'idempotency-key': randomUUID() };
  const url = 'https://backgrounds.example/b.jpg';
  const job = await jobOf(imageBody({ background_url: url }), key);
  t.deepEqual([job.state, job.background], ['accepted', { url, input: null }]);
  t.deepEqual(job.finishing, { background: { kind: 'picture' } });
  const other = await app.post(ASYNC, imageBody({ background_url: `${url}?` }), key);
  t.is(other.json().code, 'IDEMPOTENCY_CONFLICT');
});

test('finishing › a background as a file is stored beside the image, and counts by its bytes', async t => {
  const key = { ...FORM_TYPE, 'idempotency-key': randomUUID() };
  const job = await jobOf(formWith(FILE), key);
  const blob = backgroundBlob(job.id);
  const input = { blob, bytes: FILE.length, format: 'png', width: 7, height: 5 };
  t.deepEqual([job.state, job.background], ['ready', { url: null, input }]);
  t.deepEqual(Buffer.concat(await (await app.blobs.openRead(blob)).toArray()), FILE);
  const was = await snapshot(app);
  t.is((await jobOf(formWith(FILE), key)).id, job.id);
  const other = await app.post(ASYNC, formWith(pngHeader(7, 6)), key);
  t.is(other.json().code, 'IDEMPOTENCY_CONFLICT');
  t.deepEqual(await snapshot(app), was, 'nothing is left of what made no job');
});

test('no_subject › is fail or absent, the same in every form, and no request without it', async t => {
  for (const wrong of ['', 'Fail', 'keep', 'f'.repeat(3000)]) {
    await assertRefused(
      t,
      app,
      imageBody({ no_subject: wrong }),
      'INVALID_PARAMETER',
      'no_subject',
    );
  }
  const key = { 'idempotency-key': randomUUID() };
  const id = (await app.post(ASYNC, imageBody({ no_subject: 'fail' }), key)).json().job_id;
  t.is((await app.stores.jobs.find(id))?.noSubject, 'fail');
  const picture = Buffer.from(String(imageBody().image_base64), 'base64');
  const form = formOf([imagePart(picture), { name: 'no_subject', body: 'fail' }]);
  const raw = { ...key, 'content-type': 'image/png' };
  for (const again of [
    await app.post(ASYNC, form, { ...key, ...FORM_TYPE }),
    await app.post(`${ASYNC}?no_subject=fail`, picture, raw),
  ]) {
    t.is(again.json().job_id, id, again.payload);
  }
  t.is((await app.post(ASYNC, imageBody(), key)).json().code, 'IDEMPOTENCY_CONFLICT');
});

test('every answer with a result says what was seen in it, and warns of it', async t => {
  const box = { left: 1, top: 0, width: 1, height: 1, share: 0.5 };
  const doubtful = { ...SIGHT.subject, cutOff: true, unsure: true };
  for (const [fields, sight, subject, warnings] of [
    [SHOP, SIGHT, box, []],
    [{}, SIGHT, box, []],
    [{}, { ...SIGHT, subject: doubtful }, box, ['subject_unsure', 'subject_cut_off']],
    [SHOP, { ...SIGHT, subject: null }, null, ['no_subject']],
    [{}, null, null, []],
  ] as const) {
    const body = imageBody({ ...fields, ...HOOK });
    app.sight = sight;
    const made = app.onSubmitted(id => app.succeedJob(id));
    const answer = await app.post(SYNC, body);
    await made.stop();
    const { job_id: id, result } = answer.json();
    t.is(answer.statusCode, 200, answer.payload);
    const format = fields === SHOP ? 'jpeg' : 'png';
    t.deepEqual([result.format, result.contentType], [format, `image/${format}`]);
    t.deepEqual([result.subject, result.warnings], [subject, warnings]);
    t.deepEqual((await app.get(`${ASYNC}/${id}`)).json().result, result);
  }
});

function succeeding(t: ExecutionContext): void {
  const jobs = app.onSubmitted(id => app.succeedJob(id, Buffer.from('a result')));
  t.teardown(() => jobs.stop());
}

for (const [version, recorded] of [
  ['4', version4],
  ['5', version5],
] as const) {
  test(`clients in Java › the form of HttpClient ${version}`, async t => {
    succeeding(t);
    const sent = recorded('output_format', 'webp');
    const answer = await app.post('/v1/matting', bytesOf(sent), { 'content-type': sent.type });
    t.is(answer.statusCode, 200, answer.payload);
    t.is((await app.stores.jobs.find(answer.json().job_id))?.outputFormat, 'webp');
  });

  test(`clients in Java › text of HttpClient ${version} that is not ASCII is read as UTF-8 or refused`, async t => {
    succeeding(t);
    const sent = recorded('callback_url', 'https://example.com/ü');
    const latin1 = Buffer.from(bytesOf(sent).toString('latin1').replace('Ã¼', 'ü'), 'latin1');
    const answer = await app.post('/v1/matting', latin1, { 'content-type': sent.type });
    t.is(answer.statusCode, 400, answer.payload);
    const [error] = answer.json().errors;
    t.is(error.field, 'callback_url');
    t.regex(error.detail, version === '4' ? /not ASCII/ : /not UTF-8/);
  });
}

test('clients in Java › UTF-8 under the name of another charset is refused too: its bytes say two things', async t => {
  succeeding(t);
  const sent = version4('callback_url', 'https://example.com/ü');
  const answer = await app.post('/v1/matting', bytesOf(sent), { 'content-type': sent.type });
  t.is(answer.statusCode, 400, answer.payload);
  t.regex(answer.json().detail, /UTF-8/);
});
