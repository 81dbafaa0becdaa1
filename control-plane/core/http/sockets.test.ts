import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import net from 'node:net';
import { setTimeout } from 'node:timers/promises';
import { publicConnectionsMax } from '@matting/http/connections.ts';
import { REQUEST_BODY_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava, { type ExecutionContext } from 'ava';
import { converse, jsonIn, linesLogger, sendPieces } from '../test/support/raw-http.ts';
import { imageBody, useTestApp } from '../test/support/test-app.ts';

const test = ava.serial;

const { lines, logger } = linesLogger<Line>();
const app = useTestApp(test, { logger, syncWaitMs: 60_000 }, async () => {
  port = await app.listen();
});
let port: number;

function head(lines: readonly string[], first = 'POST /v1/matting/jobs HTTP/1.1'): string {
  return `${[first, 'Host: x', ...lines].join('\r\n')}\r\n\r\n`;
}

function keyed(...lines: string[]): string[] {
  return [
    `Authorization: Bearer ${app.token}`,
    `Idempotency-Key: ${randomUUID()}`,
    'Content-Type: application/json',
    ...lines,
  ];
}

async function refused(t: ExecutionContext, text: string, code = 'INVALID_REQUEST') {
  const received = await converse(port, text);
  t.is(received.match(/HTTP\/1\.1 /g)?.length, 1, text.slice(0, 200));
  const { status, code: told } = jsonIn(received);
  t.is(told, code, received);
  t.true(received.startsWith(`HTTP/1.1 ${status} `));
  t.regex(nameIn(received), OURS);
}

const statusesIn = (received: string) =>
  [...received.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status));

test('slow and idle connections have an end', t => {
  const { server } = app.app;
  t.is(server.headersTimeout, 15_000);
  t.is(server.requestTimeout, 120_000);
  t.is(server.keepAliveTimeout, 75_000);
  t.is(server.maxConnections, publicConnectionsMax());
  t.is(publicConnectionsMax(1_048_576), 10_000);
  t.is(publicConnectionsMax(256), 128);
  // Longer than the longest wait for a job, during which nothing is sent.
  t.is(server.timeout, 90_000);
});

test('bytes that are not a request', async t => {
  const hostile = [
    'hello\r\n\r\n',
    'GET / HTTP/9.9\r\n\r\n',
    'GET /livez HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n',
    `GET /livez HTTP/1.1\r\nHost: x\r\nX: ${'a'.repeat(20_000)}\r\n\r\n`,
    head(['Content-Length: 5', 'Content-Length: 6']),
    head(['Content-Length: 5', 'Transfer-Encoding: chunked']),
    head(['Content-Length: -1']),
    head(['Content-Length: +5']),
    head(['Content-Length: 99999999999999999999999']),
    head(['Transfer-Encoding: xchunked']),
  ];
  for (const text of hostile) await refused(t, text);
});

test('HTTP/2 without an upgrade is named', async t => {
  const received = await converse(port, 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
  t.regex(received, /^HTTP\/1\.1 400 .*speaks HTTP\/1\.1, not HTTP\/2/s);
});

test('bodies whose length a proxy may read differently', async t => {
  const before = await app.countJobs();
  const body = JSON.stringify(imageBody());
  const chunk = `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
  const behind = head(keyed(`Content-Length: ${body.length}`)) + body;
  const chunked = keyed('Transfer-Encoding: chunked', 'Connection: keep-alive');
  const hostile = [
    head(chunked, 'POST /v1/matting/jobs HTTP/1.0') + chunk,
    head(['Transfer-Encoding: chunked'], 'GET /livez HTTP/1.0') + chunk,
    head(keyed('Transfer-Encoding: gzip, chunked')) + chunk,
    head(keyed('Transfer-Encoding: chunked, chunked')) + chunk,
    head(keyed('Transfer-Encoding: gzip', 'Transfer-Encoding: chunked')) + chunk,
  ];
  for (const text of hostile) await refused(t, text + behind);
  t.is(await app.countJobs(), before);
  const first = await converse(port, head([], 'GET /livez HTTP/1.1') + hostile[2]);
  t.deepEqual(statusesIn(first), [200, 400]);
  const plain = keyed('Transfer-Encoding: Chunked', 'Connection: close');
  t.deepEqual(statusesIn(await converse(port, head(plain) + chunk)), [202]);
});

test('exactly one Host', async t => {
  await refused(t, 'GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n');
  await refused(t, head(['Host: y', 'Connection: close'], 'GET /livez HTTP/1.1'));
  t.deepEqual(statusesIn(await converse(port, 'GET /livez HTTP/1.0\r\n\r\n')), [200]);
});

test('a body is asked for only when its headers pass', async t => {
  const expecting = ['Expect: 100-continue', 'Connection: close'];
  await refused(t, head([...expecting, 'Content-Length: 1000000']), 'MISSING_API_KEY');
  const next = JSON.stringify(imageBody());
  const taken = head(keyed(...expecting, `Content-Length: ${next.length}`));
  t.deepEqual(statusesIn(await converse(port, taken, { next })), [100, 202]);
});

test('a small body that was refused unread leaves its connection in use', async t => {
  const body = 'x'.repeat(500_000);
  const bodies = [['Content-Length: 500000'], keyed('Content-Length: 500000')];
  const sent = bodies.map(lines => head(lines) + body).join('');
  const last = head(['Connection: close'], 'GET /livez HTTP/1.1');
  t.deepEqual(statusesIn(await converse(port, sent + last)), [401, 400, 200]);
});

test('a body declared too large is refused unread, even while its caller sends', async t => {
  const piece = Buffer.alloc(64 * 1024, 'A');
  let sentBytes = 0;
  function* pieces() {
    for (; sentBytes < REQUEST_BODY_BYTES_MAX; sentBytes += piece.length) yield piece;
  }
  const headers = app.headers({ 'content-length': String(REQUEST_BODY_BYTES_MAX + 1) });
  const answer = await sendPieces(pieces(), { port, path: '/v1/matting/jobs', headers });
  t.deepEqual([answer.status, answer.body.code], [413, 'IMAGE_TOO_LARGE']);
  t.true(sentBytes < REQUEST_BODY_BYTES_MAX / 2, `${sentBytes} bytes were taken`);
});

interface Line {
  readonly reqId?: string;
  readonly msg?: string;
  readonly status?: number;
  readonly code?: string;
  readonly accountId?: string;
  readonly jobId?: string;
  readonly left?: boolean;
}

test.beforeEach(() => {
  lines.length = 0;
});

const OURS = /^req_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

test("the name of a request › a caller's well-formed name is the request's, in the answer, its body and the log", async t => {
  const given = [
    'a',
    '6f1d2c1e-8b1a-4d0e-9a57-2f2b6c3d4e5f',
    '1-67891233-abcdef012345678912345678:x@y.z/~+=_',
    'x'.repeat(128),
  ];
  for (const id of given) {
    lines.length = 0;
    const answer = await app.get('/v1/nothing', { 'x-request-id': id });
    t.is(answer.headers['x-request-id'], id);
    t.is(answer.json().request_id, id);
    t.deepEqual(
      lines.map(({ reqId, msg }) => ({ reqId, msg })),
      [{ reqId: id, msg: 'answered' }],
    );
  }
  const id = 'on-a-success';
  const taken = await app.post('/v1/matting/jobs', imageBody(), { 'x-request-id': id });
  t.is(taken.statusCode, 202);
  t.is(taken.headers['x-request-id'], id);
});

test('the name of a request › the line of a request leads to its account and its job', async t => {
  const { accountId } = app;
  const key = { 'idempotency-key': 'the line of a request' };
  const made = await app.post('/v1/matting/jobs', imageBody(), key);
  const jobId: string = made.json().job_id;
  await app.post('/v1/matting/jobs', imageBody(), key);
  await app.get(`/v1/matting/jobs/${jobId}`);
  const other = await app.post('/v1/matting', imageBody({ output_format: 'webp' }), key);
  t.is(other.statusCode, 409);
  const { token } = await app.succeedJob(jobId);
  await app.app.inject(`/v1/results/${token}`);
  await app.get('/v1/account');
  await app.post('/v1/matting/jobs', imageBody(), { authorization: 'Bearer mk_unknown' });
  const seen = lines.map(line => [line.status, line.accountId, line.jobId]);
  t.deepEqual(seen, [
    [202, accountId, jobId],
    [202, accountId, jobId],
    [200, accountId, jobId],
    [409, accountId, jobId],
    // A result link names the result's owner.
    [200, accountId, jobId],
    [200, accountId, undefined],
    [401, undefined, undefined],
  ]);
});

test('the id of a request › is logged if the caller leaves, while it waits and while it reads', async t => {
  const send = async (text: string) => {
    const socket = net.connect(port, '127.0.0.1');
    await once(socket, 'connect');
    socket.write(text);
    return socket;
  };
  const left = async () => {
    for (;;) {
      const line = lines.find(({ msg }) => msg === 'answered');
      if (line !== undefined) return [line.status, line.left, line.accountId, line.jobId];
      await setTimeout(10);
    }
  };
  const body = JSON.stringify(imageBody());
  const submitted = Promise.withResolvers<string>();
  const watch = app.onSubmitted(async id => submitted.resolve(id));
  const waiting = await send(
    'POST /v1/matting HTTP/1.1\r\nHost: x\r\nIdempotency-Key: leaves\r\n' +
      `Authorization: Bearer ${app.token}\r\nContent-Type: application/json\r\n` +
      `Content-Length: ${body.length}\r\n\r\n${body}`,
  );
  const jobId = await submitted.promise;
  await watch.stop();
  waiting.destroy();
  t.deepEqual(await left(), [499, true, app.accountId, jobId]);

  // More than both ends buffer.
  const { token } = await app.succeedJob(jobId, Buffer.alloc(32 * 1024 * 1024));
  lines.length = 0;
  const reading = await send(`GET /v1/results/${token} HTTP/1.1\r\nHost: x\r\n\r\n`);
  await once(reading, 'data');
  reading.destroy();
  t.deepEqual(await left(), [200, true, app.accountId, jobId]);
  await setTimeout(100);
  t.is(lines.filter(({ msg }) => msg === 'answered').length, 1);
});

test('the name of a request › any other is replaced by one of ours, another one every time', async t => {
  const given = [
    undefined,
    '',
    ' ',
    '-a',
    'x'.repeat(129),
    'a,b',
    '<script>',
    'schlüssel',
    '日本'.replaceAll(/./g, letter => Buffer.from(letter).toString('latin1')),
    'tab\tin',
    ['one', 'two'],
  ];
  const seen = new Set<unknown>();
  for (const id of given) {
    lines.length = 0;
    const answer = await app.get('/v1/account', { 'x-request-id': id });
    t.regex(String(answer.headers['x-request-id']), OURS, String(id));
    t.is(lines.at(-1)?.reqId, String(answer.headers['x-request-id']));
    seen.add(answer.headers['x-request-id']);
  }
  t.is(seen.size, given.length);
});

function nameIn(answer: string): string {
  const inHead = /^x-request-id: (.*)\r$/im.exec(answer)?.[1] ?? '';
  assert.equal(jsonIn(answer).request_id, inHead);
  return inHead;
}

test('the id of a request › is logged and answered without a route too', async t => {
  const junk = await converse(port, 'hello\r\n\r\n');
  t.regex(nameIn(junk), OURS);
  const long = await converse(
    port,
    `GET / HTTP/1.1\r\nHost: x\r\nX: ${'a'.repeat(20_000)}\r\n\r\n`,
  );
  t.regex(long, /^HTTP\/1\.1 400 .*over 16 KiB/s);
  t.regex(nameIn(long), OURS);
  const tunnel = await converse(
    port,
    'CONNECT other:443 HTTP/1.1\r\nHost: other\r\nX-Request-ID: tunnel-1\r\n\r\n',
  );
  t.regex(tunnel, /^HTTP\/1\.1 405 .*\r\nAllow: /s);
  t.is(nameIn(tunnel), 'tunnel-1');
  for (const answer of [junk, long, tunnel]) {
    t.regex(answer, /^content-security-policy: .*frame-ancestors 'none'\r$/im);
    t.regex(answer, /^x-content-type-options: nosniff\r$/im);
    t.regex(answer, /^cache-control: no-store\r$/im);
  }
  t.deepEqual(
    lines.map(({ reqId, status, code }) => ({ reqId, status, code })),
    [
      { reqId: nameIn(junk), status: 400, code: 'INVALID_REQUEST' },
      { reqId: nameIn(long), status: 400, code: 'INVALID_REQUEST' },
      { reqId: 'tunnel-1', status: 405, code: 'METHOD_NOT_ALLOWED' },
    ],
  );
});

test('the id of a request › stays the same if the body breaks off, and the next request gets another', async t => {
  const head = [
    'POST /v1/matting HTTP/1.1',
    'Host: x',
    `Authorization: Bearer ${app.token}`,
    'Idempotency-Key: k',
    'Content-Type: application/json',
    'Transfer-Encoding: chunked',
    'X-Request-ID: broken-1',
  ].join('\r\n');
  const broken = await converse(port, `${head}\r\n\r\n5\r\n{"ima\r\nno chunk\r\n`);
  t.regex(broken, /^HTTP\/1\.1 400 /);
  t.is(nameIn(broken), 'broken-1');

  const first = 'GET /livez HTTP/1.1\r\nHost: x\r\nX-Request-ID: first-1\r\n\r\n';
  const both = await converse(port, first, { next: 'nonsense\r\n\r\n' });
  const names = [...both.matchAll(/^x-request-id: (.*)\r$/gim)].map(match => match[1]);
  t.is(names[0], 'first-1');
  t.regex(names[1] ?? '', OURS);
});

test('the name of a request › a caller too slow with headers or body gets that error', async t => {
  const { server } = app.app;
  const sockets: net.Socket[] = [];
  const onConnection = (socket: net.Socket) => sockets.push(socket);
  server.on('connection', onConnection);
  t.teardown(() => server.off('connection', onConnection));
  const filesBefore = await app.storedFiles();
  const slowHead = converse(port, 'GET /livez HTTP/1.1\r\nHost: x\r\n');
  const slowBody = converse(
    port,
    [
      'POST /v1/matting HTTP/1.1',
      'Host: x',
      `Authorization: Bearer ${app.token}`,
      'Idempotency-Key: slow',
      'Content-Type: application/json',
      'Content-Length: 1000000',
      'X-Request-ID: slow-1',
      '',
      '{"image_base64":"AAAA',
    ].join('\r\n'),
  );
  await until(
    'two connections and an upload',
    () => sockets.length >= 2 && app.services.uploads.open > 0,
  );
  // Node does so after headersTimeout or requestTimeout.
  const late = Object.assign(new Error('late'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' });
  for (const socket of sockets) server.emit('clientError', late, socket);
  for (const answer of await Promise.all([slowHead, slowBody])) {
    t.regex(answer, /^HTTP\/1\.1 400 /);
    const problem = jsonIn(answer);
    t.is(problem.code, 'INVALID_REQUEST');
    t.regex(problem.detail, /in time/);
  }
  t.is(nameIn(await slowBody), 'slow-1');
  await until('the uploads to end', () => app.services.uploads.open === 0);
  t.deepEqual(await app.storedFiles(), filesBefore);
});
