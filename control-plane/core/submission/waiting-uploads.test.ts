import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import { openTestApp, pngHeader, type TestApp } from '../test/support/test-app.ts';
import { ImageUploads } from './image-uploads.ts';

const test = ava.serial;

const FIRST_BYTES = 10_000;

const image = (bytes: number) => Buffer.concat([pngHeader(40, 30), Buffer.alloc(bytes, 7)]);

async function storedOf(app: TestApp, jobId: string): Promise<Buffer> {
  return Buffer.concat(await (await app.blobs.openRead(`inputs/${jobId}`)).toArray());
}

test('a picture and its background › gather one after the other, and lose no byte of either', async t => {
  const app = await openTestApp({}, t);
  const uploads = app.services.uploads.beginBoth(app.accountId);
  const [picture, background] = [image(100_000), image(50_000)];
  uploads.image.takeBytes('image_file');
  uploads.background.takeBytes('background_file');
  await uploads.image.write(picture.subarray(0, 70_000));
  const written: number[] = [];
  const { writeGathered } = uploads.image;
  uploads.image.writeGathered = async () => {
    written.push(1);
    await writeGathered.call(uploads.image);
  };
  await uploads.image.write(picture.subarray(70_000));
  t.is(written.length, 0);
  await uploads.background.write(background);
  t.is(written.length, 1);
  for (const [upload, bytes] of [
    [uploads.image, picture],
    [uploads.background, background],
  ] as const) {
    const { image: judged } = await upload.finish();
    assert.ok('bytes' in judged);
    await upload.commit();
    const stored = await (await app.blobs.openRead(judged.blob)).toArray();
    t.true(Buffer.concat(stored).equals(bytes));
  }
  await uploads.end();
  t.is(app.services.uploads.open, 0);
});

test('a picture and its background › what the first cannot store is said of the first', async t => {
  const app = await openTestApp({}, t);
  const full = new ContractError('SERVICE_UNAVAILABLE', 'the disk is full');
  const uploads = new ImageUploads({
    createWriter: async name => {
      const writer = await app.blobs.createWriter(name);
      if (name.includes('background')) return writer;
      return Object.assign(writer, { write: () => Promise.reject(full) });
    },
  });
  const both = uploads.beginBoth(app.accountId);
  both.image.takeBytes('image_file');
  both.background.takeBytes('background_file');
  await both.image.write(image(1000));
  await both.background.write(image(2000));
  const [first, second] = [await both.image.finish(), await both.background.finish()];
  t.is(first.image, full);
  t.true('bytes' in second.image);
  t.is(uploads.open, 1);
  await both.end();
  t.is(uploads.open, 0);
});

test('a body whose upload waits for its slot is not read on, and comes whole afterwards', async t => {
  const app = await openTestApp({ uploadSlots: { max: 2, waitMs: 60_000 } }, t);
  const port = await app.listen();
  const served: net.Socket[] = [];
  app.app.server.on('connection', socket => served.push(socket));
  const { uploads } = app.services;
  const holder = uploads.beginBoth(app.accountId);
  holder.image.takeBytes();
  await holder.image.write(image(10));
  t.is(uploads.open, 1);
  const picture = image(40_000);
  const socket = net.connect(port, '127.0.0.1');
  const headers = { 'content-type': 'image/png', 'content-length': String(picture.length) };
  const lines = Object.entries(app.headers(headers)).map(
    ([name, value]) => `${name}: ${value}\r\n`,
  );
  socket.write(`POST /v1/matting/jobs HTTP/1.1\r\nhost: x\r\n${lines.join('')}\r\n`);
  socket.write(picture.subarray(0, FIRST_BYTES));
  await until('the second to wait', () => uploads.waiting === 1);
  const [own] = served;
  assert.ok(own);
  const { bytesRead } = own;
  const more = picture.subarray(FIRST_BYTES);
  await new Promise<void>(resolve => socket.write(more, () => resolve()));
  // Pending bytes are read within a few turns of the loop.
  for (let turns = 0; turns < 200; turns += 1) await nextTurn();
  t.is(own.bytesRead, bytesRead);
  await holder.end();
  const [answer] = await once(socket, 'data');
  t.regex(String(answer), /^HTTP\/1\.1 202 /);
  const { job_id } = JSON.parse(String(answer).split('\r\n\r\n')[1] ?? '');
  t.true((await storedOf(app, job_id)).equals(picture));
  socket.destroy();
});

test('a body that was whole before its upload waits leaves its connection to the next request', async t => {
  const app = await openTestApp({ uploadSlots: { max: 2, waitMs: 60_000 } }, t);
  const port = await app.listen();
  const { uploads } = app.services;
  const holder = uploads.beginBoth(app.accountId);
  holder.image.takeBytes();
  await holder.image.write(image(10));
  const picture = image(2000);
  const headers = { 'content-type': 'image/png', 'content-length': String(picture.length) };
  const lines = Object.entries(app.headers(headers)).map(
    ([name, value]) => `${name}: ${value}\r\n`,
  );
  const head = `POST /v1/matting/jobs HTTP/1.1\r\nhost: x\r\n${lines.join('')}\r\n`;
  const socket = net.connect(port, '127.0.0.1');
  const next = async () => {
    const [answer] = await once(socket, 'data');
    return String(answer);
  };
  const answered = next();
  socket.write(Buffer.concat([Buffer.from(head), picture]));
  await until('it to wait', () => uploads.waiting === 1);
  await holder.end();
  t.regex(await answered, /^HTTP\/1\.1 202 /);
  const alive = next();
  socket.write('GET /livez HTTP/1.1\r\nhost: x\r\n\r\n');
  t.regex(await alive, /^HTTP\/1\.1 200 /);
  socket.destroy();
});
