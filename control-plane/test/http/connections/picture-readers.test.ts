/** Callers who take the picture as their answer, and read it slowly, in part or not at all. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { afterEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { ResultReaders } from '../../../src/services/reading/result-readers.ts';
import {
  imageBody,
  openTestApp,
  type TestApp,
  type TestAppOptions,
} from '../../support/test-app.ts';

/** Far above what the system takes for a connection that is not read. */
const RESULT_BYTES = 32 * 1024 * 1024;
/** Read ahead, and given to the connection. */
const HELD_BYTES_MAX = 3 * 64 * 1024;
const BODY = JSON.stringify(imageBody());

let app: TestApp;
let port: number;
let ended: string[];
let sockets: net.Socket[];
const clients: net.Socket[] = [];

async function open(options: TestAppOptions = {}): Promise<void> {
  ended = [];
  sockets = [];
  app = await openTestApp({ ...options, onEnded: cause => ended.push(cause) });
  app.app.server.on('connection', socket => sockets.push(socket));
  await app.app.listen({ port: 0, host: '127.0.0.1' });
  port = (app.app.server.address() as AddressInfo).port;
}

afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy();
  await app.close();
});

/** A submission that takes a picture, or JSON. */
function submit(key: string, accept = 'image/png'): net.Socket {
  const socket = net.connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  clients.push(socket);
  const lines = [
    'POST /v1/matting HTTP/1.1',
    'Host: x',
    'Connection: close',
    `Authorization: Bearer ${app.token}`,
    `Idempotency-Key: ${key}`,
    'Content-Type: application/json',
    `Content-Length: ${BODY.length}`,
    `Accept: ${accept}`,
  ];
  socket.write(`${lines.join('\r\n')}\r\n\r\n${BODY}`);
  return socket;
}

/** Reads no more than is there when the answer begins. */
async function headOf(socket: net.Socket): Promise<string> {
  const [first] = await once(socket, 'data');
  socket.pause();
  return String(first.toString('latin1')).split('\r\n\r\n')[0] ?? '';
}

function statusOf(head: string): number {
  return Number(head.split(' ')[1]);
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await delay(5);
}

function readers(): ResultReaders {
  return app.services.resultReaders as ResultReaders;
}

/** A job of that key which has ended with a large picture. */
async function cutOut(key: string): Promise<string> {
  const job = await app.post('/v1/matting/jobs', BODY, { 'idempotency-key': key });
  const jobId = job.json().job_id as string;
  await app.succeedJob(jobId, Buffer.alloc(RESULT_BYTES, 1));
  return jobId;
}

test('slow readers of pictures cost little memory, have few places and give them back', async () => {
  await open({ resultReaders: { linkMax: 2, accountMax: 3, max: 6 } });
  const jobId = await cutOut('photo');
  const slow = [submit('photo'), submit('photo')];
  for (const socket of slow) assert.equal(statusOf(await headOf(socket)), 200);
  assert.equal(readers().open, 2);
  await until(() => sockets.every(({ writableLength }) => writableLength > 0));
  for (const { writableLength } of sockets) assert.ok(writableLength <= HELD_BYTES_MAX);

  const refused = submit('photo');
  const head = await headOf(refused);
  assert.equal(statusOf(head), 429);
  assert.match(head, /retry-after: 5/i);
  // JSON needs no place.
  assert.equal(statusOf(await headOf(submit('photo', '*/*'))), 200);
  const link = (await app.get(`/v1/matting/jobs/${jobId}`)).json().result.url;
  assert.equal((await app.app.inject(new URL(link).pathname)).statusCode, 429);

  // One hangs up in the middle, the other goes on to the end.
  slow[0]!.destroy();
  await until(() => readers().open === 1);
  slow[1]!.resume();
  await once(slow[1]!, 'close');
  await until(() => readers().open === 0);
  // Nothing is lost: the link, and the same request again.
  assert.equal((await app.app.inject(new URL(link).pathname)).rawPayload.length, RESULT_BYTES);
  assert.equal(statusOf(await headOf(submit('photo'))), 200);
  assert.equal((await app.get('/v1/account')).json().credits.available, 999);
});

test('who takes nothing of a picture is cut off, and its places come back', async () => {
  await open({ readingPace: { debtMsMax: 1000 } });
  await cutOut('photo');
  const socket = submit('photo');
  assert.equal(statusOf(await headOf(socket)), 200);
  await until(() => ended.length > 0);
  assert.deepEqual(ended, ['slow_reader']);
  await until(() => readers().open === 0);
});

test('who hangs up while the picture is made loses nothing, and holds no place', async () => {
  await open();
  const { waitForJob } = app.services;
  const socket = submit('photo');
  await until(() => waitForJob.waiting === 1);
  const [job] = await app.stores.jobs.listClaimable(1);
  assert.ok(job);
  socket.destroy();
  await until(() => waitForJob.waiting === 0);
  await app.succeedJob(job.id, Buffer.from('0123456789'));
  assert.equal(readers().open, 0);
  const again = submit('photo');
  const head = await headOf(again);
  assert.equal(statusOf(head), 200);
  assert.match(head, new RegExp(`x-job-id: ${job.id}`, 'i'));
  assert.match(head, /idempotent-replayed: true/i);
});

test('who is gone when the picture is opened holds neither a place nor the file', async t => {
  await open();
  await cutOut('photo');
  const opened = Promise.withResolvers<void>();
  const gone = Promise.withResolvers<void>();
  const openRead = app.blobs.openRead.bind(app.blobs);
  const mock = t.mock.method(
    app.blobs,
    'openRead',
    async (...args: Parameters<typeof openRead>) => {
      opened.resolve();
      await gone.promise;
      return openRead(...args);
    },
  );
  const answered = once(app.app.server, 'request');
  const socket = submit('photo');
  const [, response] = await answered;
  await opened.promise;
  assert.equal(readers().open, 1);
  const closed = once(response, 'close');
  socket.destroy();
  await closed;
  assert.equal(readers().open, 0);
  gone.resolve();
  const stream = await mock.mock.calls[0]!.result!;
  await until(() => stream.destroyed);
});
