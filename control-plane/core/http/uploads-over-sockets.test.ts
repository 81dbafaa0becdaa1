import assert from 'node:assert/strict';
import http from 'node:http';
import net from 'node:net';
import { PassThrough, type Readable } from 'node:stream';
import { BOUNDARY, FORM_TYPE, formOf, imagePart, partOf } from '@matting/http/test/forms.ts';
import type { ContractError } from '@matting/proto/contract/errors.ts';
import { REQUEST_BODY_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import { fc } from '@matting/test-support/property-tests.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava, { type ExecutionContext } from 'ava';
import { until } from '../test/harness.ts';
import { sendPieces } from '../test/support/raw-http.ts';
import { openTestApp, pngHeader, useTestApp } from '../test/support/test-app.ts';
import { readMattingForm, readPicture } from './read-matting-body.ts';

const test = ava.serial;

const PATH = '/v1/matting/jobs';
const image = pngHeader(4, 3);
const form = formOf([
  imagePart(image, 'background_file'),
  { name: 'output_format', body: 'webp' },
  imagePart(Buffer.concat([image, Buffer.from(`\r\n--${BOUNDARY.slice(0, -1)}\r\n`)])),
]);
const plainForm = formOf([imagePart(image), { name: 'output_format', body: 'webp' }]);

const ended: string[] = [];
const app = useTestApp(
  test,
  {
    credits: 100_000,
    jobsInFlightMax: 100_000,
    onEnded: cause => ended.push(cause),
  },
  async () => {
    port = await app.listen();
  },
);
let port: number;
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
test.after.always(() => agent.destroy());

async function left() {
  const { open, waiting } = app.services.uploads;
  return { open, waiting, files: (await app.storedFiles()).length, jobs: await app.countJobs() };
}

function send(pieces: Iterable<Buffer>, more: Record<string, string>, path = PATH) {
  return sendPieces(pieces, { port, path, agent, headers: app.headers(more) });
}

test('forms › and pictures come in whatever pieces', async t => {
  const cuts = fc.array(fc.nat(), { maxLength: 12 });
  const property = fc.asyncProperty(cuts, fc.boolean(), async (at, isForm) => {
    const body = isForm ? plainForm : image;
    const ends = [...at.map(n => n % body.length), body.length].sort((a, b) => a - b);
    const pieces = ends.map((end, index) => body.subarray(ends[index - 1] ?? 0, end));
    const type = isForm ? FORM_TYPE : { 'content-type': 'image/png' };
    const answer = await send(pieces, type, isForm ? PATH : `${PATH}?output_format=webp`);
    assert.equal(answer.status, 202, JSON.stringify(answer.body));
    const job = await app.stores.jobs.find(String(answer.body.job_id));
    assert.equal(job?.outputFormat, 'webp');
    const stored = await app.blobs.openRead(`inputs/${job?.id}`);
    assert.deepEqual(Buffer.concat(await stored.toArray()), image);
  });
  await t.notThrowsAsync(fc.assert(property, { numRuns: 25 }));
  t.is(app.services.uploads.open, 0);
});

test('forms › that never end are cut at the bound of a body', async t => {
  const was = await left();
  const piece = Buffer.alloc(1024 * 1024, '\r');
  const endless = Array<Buffer>(REQUEST_BODY_BYTES_MAX / piece.length + 1).fill(piece);
  const head = partOf({ name: 'output_format', body: '' }).subarray(0, -2);
  const text = await send([head, ...endless], FORM_TYPE);
  t.is(text.body.code, 'IMAGE_TOO_LARGE');
  const file = await send([partOf(imagePart(image)).subarray(0, -2), ...endless], FORM_TYPE);
  t.is(file.body.code, 'IMAGE_TOO_LARGE');
  t.regex(String(file.body.detail), /50 MiB/);
  t.deepEqual(await left(), was);
});

test('forms › whose senders disconnect leave nothing, in either file', async t => {
  const was = await left();
  const large = Buffer.concat([image, Buffer.alloc(300_000)]);
  const open = [
    partOf(imagePart(large)).subarray(0, -100_000),
    Buffer.concat([
      partOf(imagePart(large)),
      partOf(imagePart(large, 'background_file')).subarray(0, -100_000),
    ]),
  ];
  for (const [index, body] of open.entries()) {
    for (const end of ['destroy', 'resetAndDestroy', 'end'] as const) {
      const socket = net.connect(port, '127.0.0.1').on('error', () => undefined);
      const { 'content-type': type } = FORM_TYPE;
      const lines = Object.entries(
        app.headers({ 'content-type': type, 'content-length': '9000000' }),
      ).map(([name, value]) => `${name}: ${value}\r\n`);
      socket.write(`POST ${PATH} HTTP/1.1\r\nHost: x\r\n${lines.join('')}\r\n`);
      socket.write(body);
      await until(async () => (await left()).files === was.files + index + 1);
      t.is(app.services.uploads.open, 1);
      socket[end]();
      // The slot is free after the files.
      await until(async () => {
        const { files, open: slots } = await left();
        return files === was.files && slots === 0;
      });
      socket.destroy();
    }
  }
  t.deepEqual(await left(), was);
});

const bounds = { bytesMax: 1_000_000, debtMsMax: 100 };

async function refusedSlow(
  t: ExecutionContext,
  read: (body: Readable) => Promise<unknown>,
  sent: Buffer,
) {
  const body = new PassThrough();
  body.write(sent);
  await rejectsWith(t, read(body), (error: ContractError) => {
    t.is(error.code, 'INVALID_REQUEST');
    t.regex(error.message, /too slowly/);
    return true;
  });
  // The stream stays open for the answer.
  t.false(body.destroyed);
  t.is(body.listenerCount('readable') + body.listenerCount('end'), 0);
}

test('senders of forms and pictures › are refused if they are too slow, and leave nothing', async t => {
  const was = await left();
  for (const sent of [form.subarray(0, 20), form.subarray(0, -40)]) {
    const uploads = app.services.uploads.beginBoth(app.accountId);
    const read = (body: Readable) => readMattingForm(body, { boundary: BOUNDARY, uploads }, bounds);
    await refusedSlow(t, read, sent);
    await uploads.end();
  }
  const upload = app.services.uploads.beginBoth(app.accountId).image;
  await refusedSlow(
    t,
    body => readPicture(body, { texts: new Map(), image: upload }, bounds),
    image,
  );
  await upload.abort();
  t.deepEqual(await left(), was);
});

test('a background › shares its picture’s slot, so that two requests never wait for each other', async t => {
  const narrow = await openTestApp({ uploadSlots: { max: 2, waitMs: 60_000 } }, t);
  const { uploads } = narrow.services;
  // An account has at most one of two slots, so the second request waits.
  let holding = 0;
  let done = 0;
  const requests = [1, 2].map(async () => {
    const both = uploads.beginBoth(narrow.accountId);
    both.image.takeBytes('image_file');
    both.background.takeBytes('background_file');
    await both.image.write(image);
    holding += 1;
    t.deepEqual([uploads.open, holding], [1, 1]);
    await both.background.write(image);
    for (const upload of [both.image, both.background]) {
      const { image: judged } = await upload.finish();
      assert.ok('bytes' in judged);
      t.is(judged.bytes, image.length);
      if (upload === both.background) holding -= 1;
      await upload.abort();
      // The slot passes on once both uploads have ended.
      if (upload === both.image) t.is(uploads.waiting, 1 - done);
    }
    done += 1;
  });
  await Promise.all(requests);
  t.is(uploads.open + uploads.waiting, 0);
});

test('a body in tiny chunks › ends the connection of a stranger, however it would be answered', async t => {
  for (const path of ['/v1/matting', '/v1.0/removebg', '/livez', '/none']) {
    ended.length = 0;
    const socket = net.connect(port, '127.0.0.1');
    socket.on('error', () => undefined);
    socket.write(`POST ${path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n`);
    socket.write('1\r\nx\r\n'.repeat(100 * 1024));
    socket.resume();
    await new Promise(resolve => socket.on('close', resolve));
    t.deepEqual(ended, ['small_chunks'], path);
  }
});
