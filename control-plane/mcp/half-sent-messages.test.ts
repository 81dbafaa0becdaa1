import { once } from 'node:events';
import net from 'node:net';
import { fundedCaller } from '@matting/core/test/fixtures.ts';
import { HEAVY } from '@matting/http/answer-shares.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import sinon from 'sinon';
import { SMALL_MESSAGE_BYTES_MAX, TEXT_BYTES_MAX } from './read-message.ts';
import { callOf, HEADERS, openTestApp, post, useTestApp } from './test/mcp-client.ts';

const SMALL_MESSAGE_MS_MAX = 5000;
const test = ava.serial;

const app = useTestApp(test, { credits: 100, jobsInFlightMax: 1000 });

const IMAGE_URL = 'https://images.example.com/photo.jpg';
const ANSWER_MS_MAX = 20_000;

type Token = { readonly token: string };

interface Begun {
  readonly socket: net.Socket;
  readonly answered: Promise<string>;
}

/** @param length undefined: sends chunks, of which `text` is one */
function begin(port: number, { token }: Token, text: string, length?: number): Begun {
  const socket = net.connect(port, '127.0.0.1').on('error', () => undefined);
  const headers = Object.entries({ ...HEADERS, authorization: `Bearer ${token}` });
  const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  const framing = length === undefined ? 'transfer-encoding: chunked' : `content-length: ${length}`;
  const body = length === undefined ? `${text.length.toString(16)}\r\n${text}\r\n` : text;
  socket.write(`POST /mcp HTTP/1.1\r\nhost: x\r\n${lines}${framing}\r\n\r\n${body}`);
  const signal = AbortSignal.timeout(ANSWER_MS_MAX);
  const answered = once(socket, 'data', { signal }).then(([answer]) => String(answer));
  answered.catch(() => undefined);
  return { socket, answered };
}

test('half-sent messages › hold what came of them, until they end', async t => {
  const port = await app.listen();
  const { uploads } = app.services;
  const small = begin(port, app, '{"a":', 70_000);
  await until('what came to be held', () => uploads.textBytes > 0);
  t.true(uploads.textBytes <= 512, `${uploads.textBytes}`);
  const large = begin(port, app, `{"a":${' '.repeat(40_000)}`, 70_000);
  await until(
    () => `more than the ${uploads.textBytes} bytes that are held`,
    () => uploads.textBytes > 40_000,
  );
  t.true(uploads.textBytes <= 2 * 40_000 + 512);
  for (const { socket } of [small, large]) socket.destroy();
  await until(
    () => `no byte to be held, of ${uploads.textBytes}`,
    () => uploads.textBytes === 0,
  );
  t.pass();
});

test('half-sent messages › of one account leave the others room, and get 503 beyond its share', async t => {
  const narrow = await openTestApp({ uploadSlots: { textBytesMax: 128 * 1024 } }, t);
  const { token } = await fundedCaller(narrow.stores, 0);
  const port = await narrow.listen();
  const half = `{"a":${' '.repeat(30_000)}`;
  const own = Array.from({ length: 6 }, () => begin(port, narrow, half, 70_000));
  const refused = await Promise.race(own.map(({ answered }) => answered));
  t.regex(refused, /^HTTP\/1\.1 503 /);
  t.regex(refused, /retry-after: 5/i);
  t.regex(refused, /"code":"SERVICE_UNAVAILABLE"/);
  const answer = await post(narrow, callOf('get_account', {}), {
    authorization: `Bearer ${token}`,
  });
  t.is(answer.statusCode, 200, answer.payload);
  t.true(narrow.services.uploads.textBytes <= 128 * 1024);
  for (const { socket } of own) socket.destroy();
});

test('half-sent messages › that are small have some seconds in all, in chunks too', async t => {
  const port = await app.listen();
  const timers = sinon.spy(globalThis, 'setTimeout');
  t.teardown(() => timers.restore());
  /** The rest of the limit, which is fractional since some time has passed. */
  const isRest = (ms = 0) =>
    ms > SMALL_MESSAGE_MS_MAX / 2 && ms < SMALL_MESSAGE_MS_MAX && !Number.isInteger(ms);
  for (const length of [SMALL_MESSAGE_BYTES_MAX, undefined]) {
    timers.resetHistory();
    const { socket, answered } = begin(port, app, '{"a":"', length);
    const late = () => timers.getCalls().findLast(({ args: [, ms] }) => isRest(ms));
    await until(
      'an end of the wait for the rest',
      () => app.services.uploads.textBytes > 0 && late() !== undefined,
    );
    late()?.args[0]();
    t.regex(await answered, /^HTTP\/1\.1 400 /);
    socket.destroy();
  }
  timers.resetHistory();
  // Long enough for a picture, so it has a picture's time.
  const long = begin(port, app, '{"a":"', SMALL_MESSAGE_BYTES_MAX + 1);
  const waits = () => timers.getCalls().some(({ args: [, ms = 0] }) => ms > SMALL_MESSAGE_MS_MAX);
  await until('a long message to be waited for', waits);
  t.false(timers.getCalls().some(({ args: [, ms] }) => isRest(ms)));
  long.socket.destroy();
});

test('the rate › of submissions admits a message that announces more than a small one', async t => {
  const port = await app.listen();
  const slowed = { token: await app.createKey({ submissionsPerMinute: 1 }) };
  const half = begin(port, slowed, '{"a":', SMALL_MESSAGE_BYTES_MAX + 1);
  const { uploads } = app.services;
  await until('the first to be read', () => uploads.textBytes > 0);
  const { socket, answered } = begin(port, slowed, '{"a":', SMALL_MESSAGE_BYTES_MAX + 1);
  t.regex(await answered, /^HTTP\/1\.1 429 .*"code":"RATE_LIMITED"/s);
  // Small messages still count as reads.
  const authorization = `Bearer ${slowed.token}`;
  const read = await post(app, callOf('list_models', {}), { authorization });
  t.is(read.statusCode, 200, read.payload);
  for (const one of [half.socket, socket]) one.destroy();
});

test('the rate › of submissions admits a message that becomes long, before the rest is read', async t => {
  const port = await app.listen();
  const slowed = { token: await app.createKey({ submissionsPerMinute: 1 }) };
  const long = `{"a":${' '.repeat(SMALL_MESSAGE_BYTES_MAX)}`;
  const half = begin(port, slowed, long);
  const { uploads } = app.services;
  await until('the first to be read', () => uploads.textBytes > SMALL_MESSAGE_BYTES_MAX);
  const { socket, answered } = begin(port, slowed, long);
  t.regex(await answered, /^HTTP\/1\.1 429 .*"code":"RATE_LIMITED"/s);
  for (const one of [half.socket, socket]) one.destroy();
});

test('a key that may not submit sends no picture: a long message is refused before the rest', async t => {
  const port = await app.listen();
  const reader = { token: await app.createKey({ scopes: ['read', 'account'] }) };
  const long = `{"a":"${'x'.repeat(2 * SMALL_MESSAGE_BYTES_MAX)}`;
  for (const length of [SMALL_MESSAGE_BYTES_MAX + 1, undefined]) {
    const { socket, answered } = begin(port, reader, length === undefined ? long : '{', length);
    t.regex(await answered, /^HTTP\/1\.1 403 .*"code":"KEY_NOT_ALLOWED"/s);
    t.is(app.services.uploads.open, 0);
    socket.destroy();
  }
});

test('the rate › of submissions is asked once a message, however long it is', async t => {
  const authorization = `Bearer ${await app.createKey({ submissionsPerMinute: 2 })}`;
  const image_url = IMAGE_URL;
  // Too long for a small message, without a picture.
  const padding = { _meta: { note: 'x'.repeat(TEXT_BYTES_MAX - 100), more: 'y'.repeat(1000) } };
  const statuses: string[] = [];
  for (let count = 0; count < 3; count += 1) {
    const call = callOf('remove_background', { image_url, preview: 'wrong' });
    const message = { ...call, params: { ...call.params, ...padding } };
    const answer = await post(app, message, { authorization });
    statuses.push(String(answer.json().code ?? answer.json().result.content[0].text.split(':')[0]));
  }
  t.deepEqual(statuses, ['INVALID_REQUEST', 'INVALID_REQUEST', 'RATE_LIMITED']);
});

test('get_job with a long text beside it holds no slot of uploads while it waits', async t => {
  const slow = await openTestApp({ syncWaitMs: 60_000 }, t);
  const port = await slow.listen();
  const made = await slow.post('/v1/matting/jobs', { image_url: IMAGE_URL });
  const { job_id } = made.json();
  const call = callOf('get_job', { job_id });
  const text = 'x'.repeat(2 * TEXT_BYTES_MAX);
  const message = JSON.stringify({ ...call, params: { ...call.params, _meta: { text } } });
  const waits = sinon.spy(slow.services, 'readJob');
  const { socket, answered } = begin(port, slow, message, message.length);
  t.teardown(() => socket.destroy());
  await until('the job to be read', () => waits.callCount === 1);
  await until('no slot to be held while get_job waits', () => slow.services.uploads.open === 0);
  await slow.succeedJob(job_id, Buffer.from('a cut-out'));
  t.regex(await answered, /^HTTP\/1\.1 200 /);
});

test('calls of get_job that wait for a job keep no other read of their account waiting', async t => {
  const slow = await openTestApp({ syncWaitMs: 60_000 }, t);
  const { job_id } = (await slow.post('/v1/matting/jobs', { image_url: IMAGE_URL })).json();
  const calls = Array.from({ length: 2 * HEAVY }, () =>
    post(slow, callOf('get_job', { job_id }), { authorization: `Bearer ${slow.token}` }),
  );
  const waits = sinon.spy(slow.services, 'readJob');
  await until('all of them to read the job', () => waits.callCount === calls.length);
  t.is((await slow.get('/v1/account')).statusCode, 200);
  await slow.succeedJob(job_id, Buffer.from('a cut-out'));
  for (const answer of await Promise.all(calls)) t.is(answer.statusCode, 200);
});
