/** The proxy of the operator's port to the nodes, on real sockets. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import ava, { type ExecutionContext } from 'ava';
import type { FastifyInstance } from 'fastify';
import { useStores } from '../../store/fixtures.ts';
import { openTestApp } from '../../support/test-app.ts';
import { AUTHORIZED, appOn, KEY, listen, raw, register } from './operator-port.ts';

const test = ava.serial;

const { stores } = useStores(test);
let app: FastifyInstance;
let port: number;
let node: Server;
let seen: IncomingMessage[];
let answerAs: (request: IncomingMessage, response: ServerResponse) => void;

test.before(async () => {
  app = appOn(stores, { nodeProxy: { silenceMsMax: 1500, answerMsMax: 4500 } });
  port = await listen(app);
  seen = [];
  node = createServer((request, response) => {
    seen.push(request);
    answerAs(request, response);
  });
  node.on('upgrade', (request, socket) => {
    seen.push(request);
    socket.destroy();
  });
  node.listen(0, '127.0.0.1');
  await once(node, 'listening');
  await register(stores, 'n', `127.0.0.1:${(node.address() as AddressInfo).port}`);
});
const cleanUp = () => seen.splice(0);
test.after.always(async () => {
  await app.close();
  node.closeAllConnections();
  await new Promise(resolve => node.close(resolve));
});

function door(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = { ...AUTHORIZED, ...(init.headers as Record<string, string>) };
  return fetch(`http://127.0.0.1:${port}/operator/nodes/${path}`, { ...init, headers });
}

async function refused(
  t: ExecutionContext,
  path: string,
  status: number,
  code: string,
): Promise<string> {
  const answer = await door(path);
  const problem = (await answer.json()) as { code: string; detail: string };
  t.deepEqual([answer.status, problem.code], [status, code], path);
  t.regex(String(answer.headers.get('content-type')), /^application\/problem\+json/);
  return problem.detail;
}

test('the proxy to a node › does not open to a node that is unknown, has left, or has no endpoints', async t => {
  t.teardown(cleanUp);
  await refused(t, 'nobody/metrics', 404, 'NOT_FOUND');
  const bootId = await register(stores, 'left', '127.0.0.1:9');
  await stores.nodes.deregister('left', bootId);
  t.regex(await refused(t, 'left/metrics', 404, 'NOT_FOUND'), /left/);
  await register(stores, 'mute', '');
  await refused(t, 'mute/info', 404, 'NOT_FOUND');
});

test('the proxy to a node › takes no address from the request, and no path but its own', async t => {
  t.teardown(cleanUp);
  answerAs = (_request, response) => response.end('not to be seen');
  const { port: nodePort } = node.address() as AddressInfo;
  const hostile = [
    `/operator/nodes/127.0.0.1:${nodePort}/metrics`,
    `/operator/nodes/n@127.0.0.1:${nodePort}/metrics`,
    `/operator/nodes/http%3A%2F%2F127.0.0.1%3A${nodePort}/metrics`,
    '/operator/nodes/n/secret',
    '/operator/nodes/n/',
    '/operator/nodes/n//metrics',
    '/operator/nodes/n/metrics/',
    '/operator/nodes/n/metrics/..',
    '/operator/nodes/n/metrics/../secret',
    '/operator/nodes/n/..%2fsecret',
    '/operator/nodes/n/%2e%2e/secret',
    '/operator/nodes/n/..\\secret',
    '/operator/nodes/n/metrics%00',
    '/operator/nodes/n/metrics;x',
    '/operator/nodes/../nodes/n/secret',
    '/operator/nodes/%2e%2e/metrics',
    '/OPERATOR/nodes/n/metrics',
    `http://127.0.0.1:${nodePort}/operator/nodes/n/secret`,
    `//127.0.0.1:${nodePort}/metrics`,
  ];
  for (const target of hostile) {
    const authorized = `Host: x\r\nAuthorization: Bearer ${KEY}\r\n`;
    const text = await raw(port, `GET ${target} HTTP/1.1\r\n${authorized}\r\n`);
    t.regex(text, /^HTTP\/1.1 40[04] /, target);
    t.false(text.includes('not to be seen'), target);
  }
  t.deepEqual(seen, []);
});

test('the proxy to a node › opens for a target in absolute form too, whatever host it names', async t => {
  t.teardown(cleanUp);
  answerAs = (_request, response) => response.end('ok');
  const target = 'http://elsewhere.example/operator/nodes/n/metrics';
  const authorized = `Host: x\r\nAuthorization: Bearer ${KEY}\r\n`;
  const text = await raw(port, `GET ${target} HTTP/1.1\r\n${authorized}\r\n`);
  t.regex(text, /^HTTP\/1.1 200 /);
  t.is(seen[0]?.url, '/metrics');
});

test('the proxy to a node › hands nothing on but the path and what is accepted', async t => {
  t.teardown(cleanUp);
  answerAs = (_request, response) => response.end('ok');
  const sent = [
    'GET /operator/nodes/n/metrics?debug=1 HTTP/1.1',
    'Host: operator.example',
    `Authorization: Bearer ${KEY}`,
    'Accept: text/plain',
    'Cookie: session=1',
    'Proxy-Authorization: Basic x',
    'X-Forwarded-For: 10.0.0.1',
    'Forwarded: for=10.0.0.1',
    'TE: trailers',
    'Connection: upgrade, x-own',
    'Upgrade: websocket',
    'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
    'Sec-WebSocket-Version: 13',
    'X-Own: 1',
    'Transfer-Encoding: chunked',
    '',
    '2c',
    'GET /secret HTTP/1.1\r\nHost: x\r\nX-Padding: 1\r\n',
    '0',
    '',
    '',
  ].join('\r\n');
  t.regex(await raw(port, sent), /^HTTP\/1.1 200 /);
  const [request, ...others] = seen;
  assert.ok(request);
  t.deepEqual(others, []);
  const { method, url, headers } = request;
  t.deepEqual([method, url], ['GET', '/metrics']);
  const { port: nodePort } = node.address() as AddressInfo;
  const { connection, ...rest } = headers;
  t.regex(connection ?? 'close', /^(close|keep-alive)$/);
  t.deepEqual(rest, { host: `127.0.0.1:${nodePort}`, accept: 'text/plain' });
});

test('the proxy to a node › gives back status, type and body, and nothing else of the answer', async t => {
  t.teardown(cleanUp);
  answerAs = (request, response) => {
    const headers = { 'content-type': 'text/plain; version=0.0.4', 'set-cookie': 'a=1' };
    response.writeHead(request.url === '/readyz' ? 503 : 302, {
      ...headers,
      location: 'http://127.0.0.1:1/',
      'access-control-allow-origin': '*',
      connection: 'close, x-own',
      'x-own': '1',
    });
    response.end(request.method === 'HEAD' ? undefined : `for ${request.url}`);
  };
  const unready = await door('n/readyz');
  t.deepEqual([unready.status, await unready.text()], [503, 'for /readyz']);
  t.is(unready.headers.get('content-type'), 'text/plain; version=0.0.4');
  for (const name of ['set-cookie', 'location', 'access-control-allow-origin', 'x-own']) {
    t.is(unready.headers.get(name), null, name);
  }
  t.is(seen.length, 1, 'asked once, also after a 503');
  const moved = await door('n/info', { redirect: 'manual' });
  t.is(moved.status, 302);
  const head = await door('n/metrics', { method: 'HEAD' });
  t.deepEqual([head.status, await head.text()], [302, '']);
  t.is(seen.at(-1)?.method, 'HEAD');
});

test('the proxy to a node › is for GET and HEAD', async t => {
  t.teardown(cleanUp);
  for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']) {
    const answer = await door('n/metrics', { method });
    t.is(answer.status, 405, method);
    t.is(answer.headers.get('allow'), 'GET, HEAD');
  }
  t.deepEqual(seen, []);
});

const broken: Record<string, (request: IncomingMessage, response: ServerResponse) => void> = {
  'does not answer': () => undefined,
  'hangs up': request => request.socket.destroy(),
  'breaks off in its answer': (_request, response) => {
    response.writeHead(200, { 'content-length': 100 });
    response.write('half', () => response.destroy());
  },
  'falls silent in its answer': (_request, response) => void response.write('half'),
  'trickles for ever': (_request, response) => {
    const trickle = setInterval(() => response.write('x'), 20);
    response.on('close', () => clearInterval(trickle));
  },
  'answers without end': (_request, response) => {
    const piece = Buffer.alloc(1024 * 1024);
    const pour = () => {
      if (response.destroyed) return;
      if (response.write(piece)) setImmediate(pour);
      else response.once('drain', pour);
    };
    pour();
  },
  'answers what is no HTTP': request => void request.socket.end('hello\r\n\r\n'),
};
for (const [how, answer] of Object.entries(broken)) {
  test(`the proxy to a node › says that a node ${how}`, async t => {
    t.teardown(cleanUp);
    answerAs = answer;
    await refused(t, 'n/metrics', 502, 'NODE_UNREACHABLE');
    answerAs = (_request, response) => response.end('ok');
    t.is(await (await door('n/metrics')).text(), 'ok', 'the next one is served');
  });
}

test('the proxy to a node › says that nothing listens where a node should', async t => {
  t.teardown(cleanUp);
  const closed = createServer().listen(0, '127.0.0.1');
  await once(closed, 'listening');
  const { port: free } = closed.address() as AddressInfo;
  await new Promise(resolve => closed.close(resolve));
  await register(stores, 'dead', `127.0.0.1:${free}`);
  await refused(t, 'dead/livez', 502, 'NODE_UNREACHABLE');
});

test('the public port knows nothing of the operator', async t => {
  const plane = await openTestApp({}, t);
  for (const url of ['/operator/nodes', '/operator/jobs', '/operator/nodes/n/metrics']) {
    const answer = await plane.app.inject({ url, headers: AUTHORIZED });
    t.is(answer.statusCode, 404, url);
  }
  const document = (await plane.app.inject('/v1/openapi.json')).body;
  t.false(/operator\/|INVALID_OPERATOR_KEY|JOB_FINAL|NODE_UNREACHABLE/.test(document));
});
test('silent connections do not close the port of metrics to a scraper', async t => {
  const made = await openTestApp();
  const app = appOn(made.stores);
  await app.listen({ port: 0, host: '127.0.0.1' });
  const { port } = app.server.address() as AddressInfo;
  const silent = await Promise.all(
    Array.from({ length: 200 }, async () => {
      const socket = connect(port, '127.0.0.1');
      socket.on('error', () => undefined).resume();
      await once(socket, 'connect');
      return socket;
    }),
  );
  for (let scrape = 0; scrape < 5; scrape += 1) {
    t.is((await fetch(`http://127.0.0.1:${port}/metrics`)).status, 200);
  }
  for (const socket of silent) socket.destroy();
  await app.close();
  await made.close();
});
