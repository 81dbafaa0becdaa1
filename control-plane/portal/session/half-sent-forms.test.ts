/** Forms that stop after their headers. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { KEY, listen } from '@matting/core/test/operator-port.ts';
import { BASE_URL, imageBody } from '@matting/core/test/support/test-app.ts';
import ava from 'ava';
import sinon from 'sinon';
import { operatorAppOn } from '../test/operator-app.ts';
import { openTestApp, type PortalApp } from '../test/portal-app.ts';
import { csrfTokenOf } from './form-token.ts';
import { createSecret } from './secret.ts';

const FORM_MS_MAX = 5000;
const test = ava.serial;

let app: PortalApp;
let port: number;
let ended: string[];

test.beforeEach(async () => {
  ended = [];
  const onEnded = (cause: string) => ended.push(cause);
  app = await openTestApp({ settings: { portal: { sales: SALES } }, onEnded });
  port = await app.listen();
});
test.afterEach.always(() => app.close());

function connect(): net.Socket {
  const socket = net.connect(port, '127.0.0.1');
  return socket.on('error', () => undefined);
}

const CONNECTIONS_MAX = 64;
/** More than the operator's port accepts. */
const OPERATOR_CONNECTIONS = 200;
const FLOOD_MS = 300;
/** Each kind of call runs at least twice, even on a slow machine. */
const CALLS_MIN = 6;
const ANSWER_MS_MAX = 20_000;
const POLLS_MAX = 2000;
/** The flood fills up twenty times in these polls. */
const IDLE_POLLS_MAX = 100;
const FORM = 'Content-Type: application/x-www-form-urlencoded';
const SALES = {
  priceList: 'credit',
  paymentSecret: 'a secret of payments for tests alone',
  paymentInstructions: undefined,
} as const;

function formHead(path: string, bytes = 8000, secret = createSecret()): string[] {
  return [
    `POST ${path} HTTP/1.1`,
    'Host: x',
    `Origin: ${BASE_URL}`,
    `Cookie: __Host-matting-visitor=${secret}`,
    FORM,
    `Content-Length: ${bytes}`,
  ];
}

/** On a connection of its own. Rejects if it is closed without an answer. */
function statusFrom(port: number, options: http.RequestOptions, body?: string): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const signal = AbortSignal.timeout(ANSWER_MS_MAX);
  const connection = { port, host: '127.0.0.1', agent: false, signal };
  const request = http.request({ ...connection, ...options }, answer => {
    answer.resume().once('end', () => resolve(answer.statusCode ?? 0));
  });
  request.once('error', reject).end(body);
  return promise;
}

interface HalfSentFormsOptions {
  readonly port: number;
  /** Request lines and headers, without the empty line. */
  readonly heads: readonly (readonly string[])[];
  /** Each closed connection is opened again. */
  readonly connections: number;
}

/** More would only wait in the system's queue. */
const OPENING_MAX = 64;
/** The pause of an attacker between two connections. */
const AGAIN_MS = 20;

class HalfSentForms {
  began = 0;
  ended = 0;
  readonly #options: HalfSentFormsOptions;
  readonly #open = new Set<net.Socket>();
  #opening = 0;
  #tried = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: HalfSentFormsOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => this.#fill(), AGAIN_MS);
    this.#fill();
  }

  stop(): void {
    clearInterval(this.#timer);
    for (const socket of this.#open) socket.destroy();
  }

  #fill(): void {
    const { connections } = this.#options;
    while (this.#opening < OPENING_MAX && this.#open.size < connections) this.#connect();
  }

  #connect(): void {
    const { port, heads } = this.#options;
    const head = heads[this.#tried % heads.length] ?? [];
    this.#tried += 1;
    const socket = net.connect(port, '127.0.0.1');
    let isOpen = false;
    this.#open.add(socket);
    this.#opening += 1;
    const opened = () => {
      if (!isOpen) this.#opening -= 1;
      isOpen = true;
    };
    socket.once('connect', () => {
      opened();
      this.began += 1;
      socket.write(`${head.join('\r\n')}\r\n\r\n`);
    });
    // A reset also ends a connection. The answer does not matter.
    socket.on('error', () => undefined).resume();
    socket.once('close', () => {
      opened();
      this.ended += 1;
      this.#open.delete(socket);
    });
  }
}

async function answersDuring(
  flood: HalfSentForms,
  connections: number,
  call: () => Promise<number>,
) {
  const answers: number[] = [];
  flood.start();
  try {
    // A port that makes no room is full before the first call, and stays so.
    for (let idle = 0, began = 0; began <= 4 * connections; idle += 1) {
      if (flood.began > began) idle = 0;
      began = flood.began;
      assert.ok(idle < IDLE_POLLS_MAX, 'no room is made for whoever comes new');
      await delay(5);
    }
    const untilMs = performance.now() + FLOOD_MS;
    while (performance.now() < untilMs || answers.length < CALLS_MIN) answers.push(await call());
    return answers;
  } finally {
    flood.stop();
  }
}

async function answerTo(socket: net.Socket, text: string): Promise<number> {
  socket.write(text);
  const [answer] = await once(socket, 'data', { signal: AbortSignal.timeout(ANSWER_MS_MAX) });
  return Number(String(answer).split(' ')[1]);
}

test('half-sent forms on the public port › from one network keep no caller with a key out, and no form that is sent', async t => {
  app.app.server.maxConnections = CONNECTIONS_MAX;
  const heads = [
    formHead('/account/sign-in'),
    formHead(`/account/links/${createSecret()}`),
    [
      'POST /account/payments/notifications HTTP/1.1',
      'Host: x',
      'Content-Type: application/json',
      'Content-Length: 800',
    ],
    // The service refuses this at once, and discards the rest.
    ['POST /v1/matting HTTP/1.1', 'Host: x', 'Content-Length: 30000000'],
  ];
  const connections = CONNECTIONS_MAX;
  const flood = new HalfSentForms({ port, heads, connections });
  const secret = createSecret();
  const fields = { csrf: csrfTokenOf(secret), mail: 'ann@example.org', password: 'wrong' };
  const form = new URLSearchParams(fields).toString();
  const headers = {
    origin: BASE_URL,
    cookie: `__Host-matting-visitor=${secret}`,
    'content-type': 'application/x-www-form-urlencoded',
  };
  const calls = [
    { method: 'POST', path: '/v1/matting/jobs', body: JSON.stringify(imageBody()) },
    { method: 'POST', path: '/account/sign-in', body: form, headers },
  ];
  let count = 0;
  const answers = await answersDuring(flood, connections, async () => {
    const { body, ...options } = calls[count++ % calls.length]!;
    return statusFrom(port, { headers: app.headers(), ...options }, body);
  });
  const submitted = answers.filter((_, index) => index % 2 === 0);
  const signedIn = answers.filter((_, index) => index % 2 === 1);
  t.deepEqual(new Set(submitted), new Set([202]));
  // The answers are wrong, or throttled after ten, but they come.
  t.true(signedIn.length > 0 && signedIn.every(status => status === 422 || status === 429));
  t.deepEqual(new Set(ended), new Set(['crowded']));
});

test('half-sent forms on the public port › are refused for what their headers say before a byte is awaited', async t => {
  app.app.server.maxConnections = CONNECTIONS_MAX;
  const [request = '', host = '', origin = '', cookie = '', type = ''] =
    formHead('/account/sign-in');
  const refused: [number, readonly string[]][] = [
    [403, [request, host, cookie, type, 'Content-Length: 800']],
    [403, [request, host, origin, type, 'Content-Length: 800']],
    [400, [request, host, origin, cookie, 'Content-Type: text/plain', 'Content-Length: 800']],
    [400, [request, host, origin, cookie, type, `Content-Length: ${32 * 1024 + 1}`]],
    [400, [request, host, origin, cookie, type, 'Content-Encoding: gzip', 'Content-Length: 80']],
  ];
  for (const [status, head] of refused) {
    const socket = connect();
    t.is(await answerTo(socket, `${head.join('\r\n')}\r\n\r\n`), status, head.join());
    socket.destroy();
  }
});

test('half-sent forms on the public port › have some seconds in all', async t => {
  app.app.server.maxConnections = CONNECTIONS_MAX;
  const timers = sinon.spy(globalThis, 'setTimeout');
  t.teardown(() => timers.restore());
  /** The rest of the limit, which is fractional since some time has passed. */
  const isRest = (ms = 0) => ms > FORM_MS_MAX / 2 && ms < FORM_MS_MAX && !Number.isInteger(ms);
  for (const path of ['/account/sign-in', '/account/payments/notifications']) {
    timers.resetHistory();
    const socket = connect();
    socket.write(`${formHead(path, 800).join('\r\n')}\r\n\r\nmail=`);
    const late = () => timers.getCalls().find(({ args: [, ms] }) => isRest(ms));
    for (let polls = 0; polls < POLLS_MAX && late() === undefined; polls += 1) await delay(2);
    const timer = late();
    assert.ok(timer, 'nothing ends the wait for the rest of the form');
    const answered = once(socket, 'data');
    timer.args[0]();
    const [answer] = await answered;
    t.regex(String(answer), /^HTTP\/1\.1 400 /);
    socket.destroy();
  }
});

test("half-sent forms on the operator's port › from one network keep no scraper and no key out", async t => {
  const operator = operatorAppOn(app.stores);
  try {
    const port = await listen(operator);
    const host = `localhost:${port}`;
    const origin = `http://${host}`;
    const head = [
      'POST /operator/sign-in HTTP/1.1',
      `Host: ${host}`,
      `Origin: ${origin}`,
      FORM,
      'Content-Length: 8000',
    ];
    const connections = OPERATOR_CONNECTIONS;
    const flood = new HalfSentForms({ port, heads: [head], connections });
    const form = { 'content-type': 'application/x-www-form-urlencoded', host, origin };
    const calls = [
      { path: '/metrics', expected: 200 },
      { path: '/operator/nodes', headers: { authorization: `Bearer ${KEY}` }, expected: 200 },
      {
        method: 'POST',
        path: '/operator/sign-in',
        headers: form,
        body: `key=${KEY}`,
        expected: 303,
      },
    ];
    let count = 0;
    await answersDuring(flood, connections, async () => {
      const { body, expected, ...options } = calls[count++ % calls.length]!;
      const status = await statusFrom(port, options, body);
      t.is(status, expected, options.path);
      return status;
    });
    t.true(count >= CALLS_MIN && flood.ended > 0);
  } finally {
    await operator.close();
  }
});
