import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { FORM_TYPE, formOf, imagePart, type Part } from '@matting/http/test/forms.ts';
import type { ErrorCode } from '@matting/proto/contract/errors.ts';
import { BACKGROUND_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import ava, { type ExecutionContext } from 'ava';
import { hintsBlob } from '../jobs/blob-names.ts';
import { ASYNC, SYNC, snapshot } from '../test/refusals.ts';
import { pngHeader, useTestApp } from '../test/support/test-app.ts';

const test = ava.serial;

const app = useTestApp(test, { syncWaitMs: 60_000, credits: 100_000, jobsInFlightMax: 1000 });

const image = pngHeader(40, 30);
const base64 = image.toString('base64');
const JSON_TYPE = { 'content-type': 'application/json' };
const PICTURE = { 'content-type': 'image/png' };

const LINE = {
  line: [
    [10, 20],
    [30.5, 20],
  ],
  radius: 4,
};
const BOX = { box: [0, 0, 10, 10] };

const text = (name: string, body: string): Part => ({ name, body });
const json = (fields: object) => JSON.stringify({ image_base64: base64, ...fields });

async function refused(
  t: ExecutionContext,
  sent: { readonly path?: string; readonly body: string | Buffer; readonly headers: object },
  field: string | null,
  code: ErrorCode = 'INVALID_PARAMETER',
): Promise<void> {
  const was = await snapshot(app);
  for (const at of [ASYNC, SYNC]) {
    const headers = { ...sent.headers } as Record<string, string>;
    const answer = await app.post(`${at}${sent.path ?? ''}`, sent.body, headers);
    const problem = answer.json();
    t.deepEqual(
      [problem.code, problem.errors?.[0]?.field],
      [code, field ?? undefined],
      answer.payload,
    );
  }
  t.deepEqual(await snapshot(app), was);
}

async function taken(
  body: string | Buffer,
  headers: object,
  path = '',
  key: string = randomUUID(),
) {
  const all = { ...headers, 'idempotency-key': key } as Record<string, string>;
  const answer = await app.post(`${ASYNC}${path}`, body, all);
  assert.equal(answer.statusCode, 202, answer.payload);
  const { job_id: id } = answer.json();
  const job = await app.stores.jobs.find(id);
  assert.ok(job);
  return job;
}

const many = Array.from({ length: 65 }, () => BOX);
const long = { line: Array.from({ length: 4097 }, () => [1, 1]), radius: 1 };

/** The value, and the field that the answer names. */
const WRONG: readonly (readonly [value: unknown, field?: string])[] = [
  [[]],
  ['[{'],
  ['{"box": [1, 2, 3, 4]}'],
  [[null], 'keep[0]'],
  [[BOX, { box: [1, 2, 3] }], 'keep[1]'],
  [[{ box: [1, 2, 3, '4'] }], 'keep[0]'],
  [[{ ...LINE, colour: 'red' }], 'keep[0]'],
  [[{ ...LINE, ...BOX }], 'keep[0]'],
  [[{ line: [], radius: 1 }]],
  [[{ line: [[1, 2]] }], 'keep[0]'],
  [[{ line: [[1, 2]], radius: 0 }]],
  [[{ line: [[1, 2]], radius: null }], 'keep[0]'],
  ['[{"line": [[1, 1e999]], "radius": 1}]'],
  ['[{"line": [[1, NaN]], "radius": 1}]'],
  [[{ line: [[-1, 2]], radius: 1 }]],
  [[{ box: [5, 5, 5, 9] }]],
  [[{ box: [0, 0, 10_001, 9] }]],
  [many],
  [[long]],
];

test('shapes that mean nothing are refused by their field, in JSON and in a form', async t => {
  for (const [value, field = 'keep'] of WRONG) {
    const listed = typeof value === 'string' ? value : JSON.stringify(value);
    await refused(t, { body: json({ keep: value }), headers: JSON_TYPE }, field);
    const parts = [imagePart(image), text('keep', listed)];
    await refused(t, { body: formOf(parts), headers: FORM_TYPE }, field);
  }
  const both = json({ keep: many.slice(33), erase: many.slice(32) });
  await refused(t, { body: both, headers: JSON_TYPE }, 'erase');
});

test('a list is an array of JSON or its text, and nothing else', async t => {
  const malformed = 'INVALID_REQUEST';
  for (const value of ['true', '1', '{}', '[1', '[1}']) {
    const body = `{"image_base64": "${base64}", "keep": ${value}}`;
    await refused(t, { body, headers: JSON_TYPE }, 'keep', malformed);
  }
  const wide = `[${' '.repeat(131_072)}]`;
  const body = `{"image_base64": "${base64}", "keep": ${wide}}`;
  await refused(t, { body, headers: JSON_TYPE }, 'keep', malformed);
  const parts = [imagePart(image), text('keep', wide)];
  await refused(t, { body: formOf(parts), headers: FORM_TYPE }, 'keep');
  const list = `{"image_base64": "${base64}", "background": ["white"]}`;
  await refused(t, { body: list, headers: JSON_TYPE }, 'background', malformed);
});

test('a box that is none is refused in every form', async t => {
  for (const box of [
    '',
    '1 2 3',
    '1 2 3 4 5',
    '5 0 5 9',
    '0 9 4 9',
    '60% 0 50% 9',
    '0 0 101% 9',
    '-1 0 4 9',
    'NaN 0 4 9',
    '0 0 0 9',
  ]) {
    await refused(t, { body: json({ subject_box: box }), headers: JSON_TYPE }, 'subject_box');
    const path = `?subject_box=${encodeURIComponent(box)}`;
    await refused(t, { path, body: image, headers: PICTURE }, 'subject_box');
  }
});

test('a query takes no shapes', async t => {
  for (const field of ['keep', 'erase', 'hints_file']) {
    const path = `?${field}=${encodeURIComponent(JSON.stringify([BOX]))}`;
    await refused(t, { path, body: image, headers: PICTURE }, field);
  }
});

const hintsPart = (bytes: Buffer): Part => imagePart(bytes, 'hints_file');

test('a file of hints is judged by its head, and comes without shapes', async t => {
  const jpeg = Buffer.from('ffd8ffe000104a46494600010100000100010000', 'hex');
  const refusedFile = (file: Buffer, code?: ErrorCode, field: string | null = 'hints_file') =>
    refused(
      t,
      { body: formOf([imagePart(image), hintsPart(file)]), headers: FORM_TYPE },
      field,
      code,
    );
  await refusedFile(jpeg);
  await refusedFile(Buffer.from('no picture'));
  await refusedFile(pngHeader(9000, 9000), 'IMAGE_RESOLUTION_TOO_LARGE', null);
  const large = Buffer.concat([image, Buffer.alloc(BACKGROUND_BYTES_MAX)]);
  await refusedFile(large, 'IMAGE_TOO_LARGE', null);
  const parts = [imagePart(image), hintsPart(image), text('erase', JSON.stringify([BOX]))];
  await refused(t, { body: formOf(parts), headers: FORM_TYPE }, 'hints_file');
});

test('the same hints are the same request in every form, and others are another', async t => {
  const fields = { subject_box: '5 0 100% 30', keep: [LINE], erase: [BOX] };
  const listed = Object.entries(fields).map(([name, value]) =>
    text(name, typeof value === 'string' ? value : JSON.stringify(value)),
  );
  const job = await taken(json(fields), JSON_TYPE);
  t.deepEqual(job.hints, {
    subjectBox: { left: { px: 5 }, top: { px: 0 }, right: { percent: 100 }, bottom: { px: 30 } },
    keep: [LINE],
    erase: [BOX],
  });
  const form = await taken(formOf([...listed, imagePart(image)]), FORM_TYPE);
  t.is(form.fingerprint, job.fingerprint);
  const spaced = await taken(json({ ...fields, keep: JSON.stringify([LINE], null, 2) }), JSON_TYPE);
  t.is(spaced.fingerprint, job.fingerprint);
  const other = await taken(json({ ...fields, erase: [BOX, BOX] }), JSON_TYPE);
  t.not(other.fingerprint, job.fingerprint);
  const query = await taken(image, PICTURE, '?subject_box=5px+0+100%25+30');
  t.deepEqual(query.hints?.subjectBox, job.hints?.subjectBox);
  const plain = await taken(json({}), JSON_TYPE);
  t.deepEqual([plain.hints, plain.hintsFile], [null, null]);
});

test('the bytes of a file of hints are stored with the job, and are a part of the request', async t => {
  const send = (file: Buffer, key?: string) =>
    taken(formOf([imagePart(image), hintsPart(file)]), FORM_TYPE, '', key);
  const job = await send(pngHeader(8, 6), 'with-hints');
  const blob = hintsBlob(job.id);
  t.deepEqual(job.hints, { picture: true });
  t.like(job.hintsFile, { blob, format: 'png', width: 8, height: 6 });
  const stored = Buffer.concat(await (await app.blobs.openRead(blob)).toArray());
  t.deepEqual(stored, pngHeader(8, 6));
  t.is((await send(pngHeader(8, 6), 'with-hints')).id, job.id);
  t.not((await send(pngHeader(9, 6))).fingerprint, job.fingerprint);
});
