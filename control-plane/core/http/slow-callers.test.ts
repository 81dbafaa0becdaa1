import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { syncBuiltinESMExports } from 'node:module';
import net from 'node:net';
import { PassThrough } from 'node:stream';
import timers, { setTimeout as delay } from 'node:timers/promises';
import { REQUEST_BODY_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import ava, { type ExecutionContext } from 'ava';
import sinon from 'sinon';
import type { ResultReaderBounds, ResultReaders } from '../results/result-download.ts';
import { fundedCaller } from '../test/fixtures.ts';
import { until } from '../test/harness.ts';
import {
  imageBody,
  openTestApp,
  type TestApp,
  type TestAppOptions,
} from '../test/support/test-app.ts';
import { readMattingJson } from './read-matting-body.ts';

const PIPELINED_MAX = 16;
const test = ava.serial;

/** Far above the system's buffers for an unread connection. */
const RESULT_BYTES = 32 * 1024 * 1024;
/** Read ahead, and given to the connection. */
const HELD_BYTES_MAX = 3 * 64 * 1024;
const BOUNDS = { bytesMax: REQUEST_BODY_BYTES_MAX };
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
  port = await app.listen();
}

test.afterEach.always(async () => {
  for (const client of clients.splice(0)) client.destroy();
  await app.close();
});

async function link(bytes = RESULT_BYTES): Promise<string> {
  const job = await app.post('/v1/matting/jobs', imageBody());
  const { token } = await app.succeedJob(job.json().job_id, Buffer.alloc(bytes, 1));
  return `/v1/results/${token}`;
}

function connect(): net.Socket {
  const socket = net.connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  clients.push(socket);
  return socket;
}

/** Reads only what is there when the answer begins. */
async function headOf(socket: net.Socket): Promise<string> {
  const [first] = await once(socket, 'data');
  socket.pause();
  return String(first.toString('latin1')).split('\r\n\r\n')[0] ?? '';
}

async function ask(
  path: string,
  ...headers: string[]
): Promise<{ socket: net.Socket; head: string }> {
  const socket = connect();
  socket.write(`${[`GET ${path} HTTP/1.1`, 'Host: x', ...headers].join('\r\n')}\r\n\r\n`);
  return { socket, head: await headOf(socket) };
}

function statusOf(head: string): number {
  return Number(head.split(' ')[1]);
}

const LIVEZ = 'GET /livez HTTP/1.1\r\nHost: x\r\n\r\n';

async function idle(text = ''): Promise<net.Socket> {
  const socket = connect();
  await once(socket, 'connect');
  if (text !== '') {
    socket.write(text);
    await once(socket, 'data');
  }
  return socket.resume();
}

function hold(token: string): Promise<net.Socket> {
  const lines = [
    'GET /v1/account HTTP/1.1',
    'Host: x',
    `Authorization: Bearer ${token}`,
    'Idempotency-Key: one',
  ];
  return idle(`${lines.join('\r\n')}\r\n\r\n`);
}

function readers(): ResultReaders {
  return app.services.resultReaders as ResultReaders;
}

const resultReaders: ResultReaderBounds = { linkMax: 2, accountMax: 3, max: 6 };

test('readers of result links › hold no slot if they leave before the file is found', async t => {
  await open({ resultReaders });
  const path = await link(10);
  const asked = Promise.withResolvers<void>();
  const gone = Promise.withResolvers<void>();
  const { resultDownload } = app.services;
  const find = resultDownload.find.bind(resultDownload);
  const mock = sinon.stub(resultDownload, 'find').callsFake(async token => {
    asked.resolve();
    await gone.promise;
    return find(token);
  });
  const answered = once(app.app.server, 'request');
  const socket = connect();
  socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
  const [, response] = (await answered) as [unknown, ServerResponse];
  await asked.promise;
  const closed = once(response, 'close');
  socket.destroy();
  await closed;
  gone.resolve();
  await mock.firstCall.returnValue;
  // The handler runs on before the next request is read.
  t.is((await app.app.inject(path)).statusCode, 200);
  await until(() => readers().open === 0);
});

test('readers of result links › are cut off if they take nothing, not if they are slow', async t => {
  await open({ readingPace: { debtMsMax: 1000 } });
  const path = await link();
  await ask(path);
  const { socket: slow } = await ask(path, 'Connection: close');
  let takenBytes = 0;
  slow.on('data', chunk => {
    takenBytes += chunk.length;
  });
  const over = once(slow, 'close');
  // Half a megabyte at a time with pauses: about a hundred times the minimum pace.
  while (ended.length === 0) {
    const nextBytes = takenBytes + 512 * 1024;
    slow.resume();
    await until(() => takenBytes >= nextBytes || slow.closed);
    slow.pause();
    await delay(20);
  }
  t.deepEqual(ended, ['slow_reader']);
  slow.resume();
  await over;
  t.true(takenBytes > RESULT_BYTES - 1024 * 1024);
  await until(() => readers().open === 0);
});

test('readers of result links › that are too many without a key go slowest first', async t => {
  await open({ readingPace: { unreadStrangersMax: 2 } });
  const path = await link();
  for (let count = 0; count < 5; count += 1) await ask(path);
  const keyed = await ask(path, `Authorization: Bearer ${app.token}`);
  t.is(statusOf(keyed.head), 200);
  await until(() => ended.length >= 4);
  t.true(ended.every(cause => cause === 'crowded'));
  await until(() => readers().open === 2);
});

test('readers of result links › that hold too much memory are cut off, the slowest of the largest account first', async t => {
  await open({ readingPace: { unreadBytesMax: 4 * HELD_BYTES_MAX } });
  const path = await link();
  const other = await fundedCaller(app.stores, 1);
  // A link carries no key; the one that the connection showed earlier names the account.
  const askKnown = async (token: string) => {
    const socket = await hold(token);
    socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
    await headOf(socket);
    return socket;
  };
  const few = await askKnown(other.token);
  for (let count = 0; count < 24; count += 1) await askKnown(app.token);
  const held = () => sockets.reduce((sum, { writableLength }) => sum + writableLength, 0);
  await until(() => ended.length > 0 && held() <= 4 * HELD_BYTES_MAX);
  t.true(ended.every(cause => cause === 'crowded'));
  t.true(ended.length < 24, 'some of the account that holds most stay');
  const [first] = sockets;
  t.is(first?.remotePort, few.localPort);
  t.is(first?.destroyed, false, 'the other account keeps its reader');
});

function submit(key: string, accept = 'image/png'): net.Socket {
  const socket = connect();
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

async function cutOut(key: string): Promise<string> {
  const job = await app.post('/v1/matting/jobs', BODY, { 'idempotency-key': key });
  const jobId = job.json().job_id as string;
  await app.succeedJob(jobId, Buffer.alloc(RESULT_BYTES, 1));
  return jobId;
}

test('callers who take the picture as their answer › slow readers of pictures cost little memory, have few places and give them back', async t => {
  await open({ resultReaders: { linkMax: 2, accountMax: 3, max: 6 } });
  const jobId = await cutOut('photo');
  const slow = [submit('photo'), submit('photo')];
  for (const socket of slow) t.is(statusOf(await headOf(socket)), 200);
  t.is(readers().open, 2);
  await until(() => sockets.every(({ writableLength }) => writableLength > 0));
  for (const { writableLength } of sockets) t.true(writableLength <= HELD_BYTES_MAX);

  const refused = submit('photo');
  const head = await headOf(refused);
  t.is(statusOf(head), 429);
  t.regex(head, /retry-after: 5/i);
  // JSON takes no slot.
  t.is(statusOf(await headOf(submit('photo', '*/*'))), 200);
  const link = (await app.get(`/v1/matting/jobs/${jobId}`)).json().result.url;
  t.is((await app.app.inject(new URL(link).pathname)).statusCode, 429);

  slow[0]!.destroy();
  await until(() => readers().open === 1);
  slow[1]!.resume();
  await once(slow[1]!, 'close');
  await until(() => readers().open === 0);
  t.is((await app.app.inject(new URL(link).pathname)).rawPayload.length, RESULT_BYTES);
  t.is(statusOf(await headOf(submit('photo'))), 200);
  t.is((await app.get('/v1/account')).json().credits.available, 999);
});

test('callers who take the picture as their answer › who is gone when the picture is opened holds neither a place nor the file', async t => {
  await open();
  await cutOut('photo');
  const opened = Promise.withResolvers<void>();
  const gone = Promise.withResolvers<void>();
  const openRead = app.blobs.openRead.bind(app.blobs);
  const mock = sinon.stub(app.blobs, 'openRead').callsFake(async (...args) => {
    opened.resolve();
    await gone.promise;
    return openRead(...args);
  });
  const answered = once(app.app.server, 'request');
  const socket = submit('photo');
  const [, response] = await answered;
  await opened.promise;
  t.is(readers().open, 1);
  const closed = once(response, 'close');
  socket.destroy();
  await closed;
  t.is(readers().open, 0);
  gone.resolve();
  const stream = await mock.firstCall.returnValue;
  await until(() => stream.destroyed);
});

test('connections › without a key make room for newcomers, those that have been idle for longest first', async t => {
  await open();
  app.app.server.maxConnections = 10;
  const known = await hold(app.token);
  const strangers: net.Socket[] = [];
  for (let count = 0; count < 30; count += 1) {
    // Silent, answered, or in the middle of their headers.
    const text = count % 3 === 1 ? LIVEZ : '';
    const socket = await idle(text);
    if (count % 3 === 2) socket.write('GET /livez HTTP/1.1\r\n');
    strangers.push(socket);
    const { head, socket: caller } = await ask('/livez');
    t.is(statusOf(head), 200);
    caller.destroy();
  }
  await until(() => strangers.filter(({ closed }) => !closed).length <= 9);
  t.false(known.closed);
  t.false(strangers.at(-1)!.closed);
  t.true(ended.every(cause => cause === 'crowded') && ended.length >= 20);
  known.write(LIVEZ);
  await once(known, 'data');
});

test('requests sent ahead of their answers › are answered up to a bound, beyond which the connection ends', async t => {
  await open();
  const socket = connect();
  let answers = 0;
  socket.on('data', data => {
    answers += String(data).split('HTTP/1.1 200').length - 1;
  });
  socket.write(LIVEZ.repeat(PIPELINED_MAX));
  await until(() => answers === PIPELINED_MAX);
  socket.write(LIVEZ.repeat(100 * PIPELINED_MAX));
  await once(socket, 'close');
  t.true(answers < 100 * PIPELINED_MAX);
  t.deepEqual(ended, ['pipelined']);
});

function submitting(token: string, key: string): net.Socket {
  const socket = connect();
  const lines = [
    'POST /v1/matting/jobs HTTP/1.1',
    'Host: x',
    `Authorization: Bearer ${token}`,
    `Idempotency-Key: ${key}`,
    'Content-Type: application/json',
    'Content-Length: 1000',
  ];
  socket.write(`${lines.join('\r\n')}\r\n\r\n`);
  return socket;
}

async function refused(t: ExecutionContext, token: string): Promise<net.Socket> {
  const socket = submitting(token, 'refused');
  const [head] = await once(socket, 'data');
  t.is(statusOf(String(head)), 503);
  t.regex(String(head), /retry-after: 5/i);
  return socket;
}

test('an account that submits slowly › leaves slots to the others, and may use those that they leave', async t => {
  await open();
  const begin = sinon.spy(app.services.uploads, 'beginBoth');
  // Ten times 0.8.
  app.app.server.maxConnections = 10;
  const { token } = await fundedCaller(app.stores, 0);
  const slow: net.Socket[] = [];
  for (let count = 1; count <= 4; count += 1) {
    slow.push(submitting(app.token, `slow-${count}`));
    await until(() => begin.callCount === count);
  }
  (await refused(t, app.token)).destroy();
  submitting(token, 'one');
  submitting(token, 'two');
  await until(() => begin.callCount === 6);
  (await refused(t, token)).destroy();
  for (const socket of slow) socket.destroy();
  // Its slot is free once the connection has ended.
  while (begin.callCount === 6) {
    const again = submitting(app.token, 'again');
    await Promise.race([once(again, 'data'), until(() => begin.callCount > 6)]);
    again.destroy();
  }
});

test('senders of bodies › may continue while their bytes pay for the time', async t => {
  await open();
  const body = new PassThrough();
  const uploads = app.services.uploads.beginBoth(app.accountId);
  const started = readMattingJson(body, uploads, { ...BOUNDS, debtMsMax: 250 });
  body.write('{"image_base64":"');
  // Each piece buys many times the pause after it.
  for (let count = 0; count < 12; count += 1) {
    body.write('A'.repeat(4096));
    await delay(25);
  }
  body.end('"}');
  await t.notThrowsAsync(started);
  await uploads.end();
});

const CALLERS = 30;

class Caller {
  readonly socket: net.Socket;
  /** Rejects with the connection's error. */
  readonly end: Promise<string>;

  constructor() {
    this.socket = net.connect(port, '127.0.0.1');
    this.end = new Promise(resolve => {
      let received = '';
      this.socket.on('data', chunk => {
        received += String(chunk);
      });
      this.socket.once('error', error => resolve(String(error)));
      this.socket.once('close', () => resolve(received));
    });
  }

  async answered(t: ExecutionContext): Promise<void> {
    t.regex(await this.end, /^HTTP\/1\.1 200 .*\r\nconnection: close\r\n/is);
  }
}

function close(): Promise<void> {
  app.setReadiness({ ready: false, causes: ['draining'] });
  return app.app.close();
}

test('a port that closes › those whom the system has accepted and Node has not taken yet', async t => {
  await open();
  const callers = Array.from({ length: CALLERS }, () => new Caller());
  for (const { socket } of callers) socket.write(LIVEZ);
  const closed = close();
  await Promise.all(callers.map(caller => caller.answered(t)));
  await closed;
});

test('a port that closes › a connected caller whose request is still on its way is answered', async t => {
  await open();
  const callers = Array.from({ length: CALLERS }, () => new Caller());
  await Promise.all(callers.map(({ socket }) => once(socket, 'connect')));
  const kept = new Caller();
  kept.socket.write(LIVEZ);
  await once(kept.socket, 'data');
  const closed = close();
  await until(() => !app.app.server.listening);
  t.regex(await new Caller().end, /ECONNREFUSED/);
  for (const { socket } of [...callers, kept]) socket.write(LIVEZ);
  await Promise.all(callers.map(caller => caller.answered(t)));
  await closed;
  t.is((await kept.end).match(/HTTP\/1\.1 200 /g)?.length, 2);
});

test('a port that closes › a connection without a request is closed', async t => {
  await open();
  const idle = new Caller();
  await once(idle.socket, 'connect');
  await close();
  t.is(await idle.end, '');
});

test('a port that closes › a server whose connections are cut does not wait', async t => {
  await open();
  const never = sinon.stub(timers, 'setTimeout').returns(new Promise<never>(() => undefined));
  syncBuiltinESMExports();
  t.teardown(() => {
    never.restore();
    syncBuiltinESMExports();
  });
  const idle = new Caller();
  await once(idle.socket, 'connect');
  const closed = close();
  await until(() => !app.app.server.listening);
  app.app.server.closeAllConnections();
  await closed;
  t.is(await idle.end, '');
  t.true(never.called, 'nothing was waited for');
});
