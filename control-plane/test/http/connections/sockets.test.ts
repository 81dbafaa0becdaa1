import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import net from 'node:net';
import ava, { type ExecutionContext } from 'ava';
import { REQUEST_BODY_BYTES_MAX } from '#contract/limits.ts';
import { publicConnectionsMax } from '../../../src/http/connections/connections.ts';
import { imageBody, pngHeader, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

const app = useTestApp(test, { syncWaitMs: 60_000 }, async () => {
  port = await app.listen();
});
let port: number;

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** One connection, bytes as they are. */
class Connection {
  readonly socket: net.Socket;
  readonly ended: Promise<void>;
  #received = Buffer.alloc(0);
  #wake: () => void = () => undefined;

  private constructor(socket: net.Socket) {
    this.socket = socket;
    socket.on('data', chunk => {
      this.#received = Buffer.concat([this.#received, chunk]);
      this.#wake();
    });
    // A reset after the answer is no error of this client; one before it is an answer too few.
    socket.on('error', () => this.#wake());
    this.ended = new Promise(resolve => {
      socket.once('close', () => {
        this.#wake();
        resolve();
      });
    });
  }

  static async open(): Promise<Connection> {
    const socket = net.connect(port, '127.0.0.1');
    await new Promise(resolve => socket.once('connect', resolve));
    return new Connection(socket);
  }

  send(text: string | Buffer): void {
    if (!this.socket.destroyed) this.socket.write(text);
  }

  /** Resolves once the bytes left this process, or the connection is gone. */
  async sendAll(bytes: Buffer): Promise<void> {
    if (this.socket.destroyed || this.socket.write(bytes)) return;
    await Promise.race([new Promise(resolve => this.socket.once('drain', resolve)), this.ended]);
  }

  /** The next answer; interim ones too. */
  async answer(): Promise<Answer> {
    for (;;) {
      const answer = this.#take();
      if (answer !== undefined) return answer;
      assert.ok(!this.socket.destroyed, `closed after ${this.#received.toString('latin1')}`);
      await new Promise<void>(resolve => {
        this.#wake = resolve;
      });
    }
  }

  #take(): Answer | undefined {
    const end = this.#received.indexOf('\r\n\r\n');
    if (end === -1) return undefined;
    const [first = '', ...lines] = this.#received.toString('latin1', 0, end).split('\r\n');
    const headers = Object.fromEntries(
      lines.map(line => {
        const colon = line.indexOf(':');
        return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
      }),
    );
    const length = Number(headers['content-length'] ?? 0);
    const whole = end + 4 + length;
    if (this.#received.length < whole) return undefined;
    const body = this.#received.toString('utf8', end + 4, whole);
    this.#received = this.#received.subarray(whole);
    return { status: Number(first.split(' ')[1]), headers, body };
  }
}

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

function assertProblem(t: ExecutionContext, answer: Answer, status: number, code: string): void {
  t.is(answer.status, status, answer.body);
  t.is(answer.headers['content-type'], 'application/problem+json');
  const problem = JSON.parse(answer.body);
  t.is(problem.code, code);
  t.is(problem.status, status);
  t.regex(problem.request_id, /^req_/);
  t.is(answer.headers['x-request-id'], problem.request_id);
}

async function exchange(text: string): Promise<Answer> {
  const connection = await Connection.open();
  connection.send(text);
  const answer = await connection.answer();
  connection.socket.destroy();
  return answer;
}

test('slow and idle connections have an end', t => {
  const { server } = app.app;
  t.is(server.headersTimeout, 15_000);
  t.is(server.requestTimeout, 120_000);
  t.is(server.keepAliveTimeout, 75_000);
  t.is(server.maxConnections, publicConnectionsMax());
  t.is(publicConnectionsMax(1_048_576), 10_000);
  t.is(publicConnectionsMax(256), 128);
  // Longer than the longest wait for a job, on which nothing is sent.
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
    head(['Content-Length: many']),
  ];
  for (const text of hostile) {
    const connection = await Connection.open();
    connection.send(text);
    assertProblem(t, await connection.answer(), 400, 'INVALID_REQUEST');
    await connection.ended;
  }
});

test('bodies whose end something before us may see elsewhere', async t => {
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
  for (const text of hostile) {
    const connection = await Connection.open();
    connection.send(text + behind);
    assertProblem(t, await connection.answer(), 400, 'INVALID_REQUEST');
    // What is behind it is no request.
    await connection.ended;
    await t.throwsAsync(connection.answer(), { message: /closed after $/ });
  }
  t.is(await app.countJobs(), before);
  // An answer that is under way comes first.
  const connection = await Connection.open();
  connection.send(head([], 'GET /livez HTTP/1.1') + hostile[2]);
  t.is((await connection.answer()).status, 200);
  assertProblem(t, await connection.answer(), 400, 'INVALID_REQUEST');
  await connection.ended;
  const plain = await exchange(head(keyed('Transfer-Encoding: Chunked')) + chunk);
  t.is(plain.status, 202);
});

test('a connection that sends nothing gets no answer', async t => {
  const connection = await Connection.open();
  connection.socket.end();
  await connection.ended;
  await t.throwsAsync(connection.answer(), { message: /closed after $/ });
});

test('exactly one Host', async t => {
  const none = await exchange('GET /livez HTTP/1.1\r\n\r\n');
  assertProblem(t, none, 400, 'INVALID_REQUEST');
  assertProblem(
    t,
    await exchange(head(['Host: y'], 'GET /livez HTTP/1.1')),
    400,
    'INVALID_REQUEST',
  );
  const old = await exchange('GET /livez HTTP/1.0\r\n\r\n');
  t.is(old.status, 200);
});

test('a body is asked for only when its headers pass', async t => {
  const expecting = ['Expect: 100-continue', 'Content-Length: 1000000'];
  const refused = await Connection.open();
  refused.send(head(expecting));
  assertProblem(t, await refused.answer(), 401, 'MISSING_API_KEY');
  refused.socket.destroy();

  const body = JSON.stringify(imageBody());
  const taken = await Connection.open();
  taken.send(head(keyed('Expect: 100-continue', `Content-Length: ${body.length}`)));
  t.is((await taken.answer()).status, 100);
  taken.send(body);
  t.is((await taken.answer()).status, 202);
  taken.socket.destroy();
});

test('an unknown expectation is ignored', async t => {
  const answer = await exchange(head(['Expect: miracles'], 'GET /livez HTTP/1.1'));
  t.is(answer.status, 200);
});

test('a small body that was refused unread leaves its connection in use', async t => {
  const connection = await Connection.open();
  for (const lines of [['Content-Length: 500000'], keyed('Content-Length: 500000')]) {
    connection.send(head(lines));
    connection.send('x'.repeat(500_000));
    const { status, headers } = await connection.answer();
    t.true(status === 401 || status === 400);
    t.not(headers.connection, 'close');
  }
  connection.send(head([], 'GET /livez HTTP/1.1'));
  t.is((await connection.answer()).status, 200);
  connection.socket.destroy();
});

test('a body declared too large is answered unread, to a caller who goes on sending', async t => {
  const connection = await Connection.open();
  connection.send(head(keyed(`Content-Length: ${REQUEST_BODY_BYTES_MAX + 1}`)));
  const piece = Buffer.alloc(64 * 1024, 'A');
  let sentBytes = 0;
  let stopped = false;
  void connection.ended.then(() => {
    stopped = true;
  });
  const sending = (async () => {
    while (!stopped && sentBytes < REQUEST_BODY_BYTES_MAX) {
      await connection.sendAll(piece);
      sentBytes += piece.length;
    }
  })();
  const answer = await connection.answer();
  assertProblem(t, answer, 413, 'IMAGE_TOO_LARGE');
  t.is(answer.headers.connection, 'close');
  await sending;
  t.true(sentBytes < REQUEST_BODY_BYTES_MAX / 2, `${sentBytes} bytes were taken`);
});

test('requests of one connection, a body in many pieces', async t => {
  const connection = await Connection.open();
  const body = Buffer.from(JSON.stringify({ image_base64: pngHeader(7, 7).toString('base64') }));
  for (let round = 0; round < 3; round += 1) {
    connection.send(head(keyed('Transfer-Encoding: chunked')));
    for (const byte of body) connection.send(`1\r\n${String.fromCharCode(byte)}\r\n`);
    connection.send('0\r\n\r\n');
    const answer = await connection.answer();
    t.is(answer.status, 202, answer.body);
  }
  connection.socket.destroy();
});
