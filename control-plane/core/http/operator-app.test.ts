import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { onDatabases, useTestDatabase } from '@matting/test-support/database.ts';
import { drip } from '@matting/test-support/dripping.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava, { type ExecutionContext } from 'ava';
import type { FastifyInstance } from 'fastify';
import type { Stores } from '../stores.ts';
import {
  assertBalanced,
  claimed,
  fundedAccount,
  IMAGE_FAULT,
  newJob,
  reread,
  running,
  series,
  storesOn,
  submitted,
  successOf,
  useStores,
} from '../test/fixtures.ts';
import {
  AUTHORIZED,
  appOn,
  ask,
  codeOf,
  KEY,
  listen,
  raw,
  register,
} from '../test/operator-port.ts';
import { linesLogger } from '../test/support/raw-http.ts';
import { openTestApp } from '../test/support/test-app.ts';

const test = ava.serial;

const LEASE_MS = 15_000;

function idOf(job: { readonly id: string }): string {
  return job.id;
}

onDatabases(test, "the operator's port", (test, dialect) => {
  const databases = useTestDatabase(test, dialect, { series });
  let stores: Stores;
  let app: FastifyInstance;

  test.before(async () => {
    stores = storesOn(await databases.open());
    app = appOn(stores);
    await app.ready();
  });
  test.after.always(() => app.close());

  test('lists nodes, drains and undrains them', async t => {
    const nodeId = `node-${randomUUID()}`;
    t.is(codeOf(await ask(app, `/operator/nodes/${nodeId}/drain`, 'POST')), 'NOT_FOUND');
    t.is(codeOf(await ask(app, '/operator/nodes/n%C3%B6de')), 'NOT_FOUND');
    const bootId = await register(stores, nodeId, '10.0.0.7:50052');
    const state = async () => (await ask(app, `/operator/nodes/${nodeId}`)).json().state;
    t.is(await state(), 'joining');
    const seen = { nodeId, bootId, state: 'serving', cause: null, forMs: 0 } as const;
    await stores.sightings.note('replica-1', [seen], LEASE_MS);
    t.is(await state(), 'live');
    const runsOn = async () => (await ask(app, `/operator/nodes/${nodeId}`)).json().runs_on;
    t.is(await runsOn(), null);
    await stores.nodes.noteModels(nodeId, bootId, [], 'cpu (openvino)');
    t.is(await runsOn(), 'cpu (openvino)');
    const told = await ask(app, `/operator/nodes/${nodeId}/drain`, 'POST');
    t.deepEqual(told.json(), { node_id: nodeId, draining: true });
    t.is(await state(), 'draining');
    await ask(app, `/operator/nodes/${nodeId}/undrain`, 'POST');
    t.is(await state(), 'live');
    await stores.nodes.deregister(nodeId, bootId);
    t.is(await state(), 'gone');
    const { nodes } = (await ask(app, '/operator/nodes')).json();
    const found = nodes.find((node: { node_id: string }) => node.node_id === nodeId);
    t.is(found.http_address, '10.0.0.7:50052');
  });

  test('gives the cause if no control plane reaches a node, and the number if some do not', async t => {
    const nodeId = `node-${randomUUID()}`;
    const bootId = await register(stores, nodeId, '');
    const cause = 'its certificate has expired';
    const unreachable = { nodeId, bootId, state: 'unreachable', cause, forMs: 60_000 } as const;
    const shown = async () => (await ask(app, `/operator/nodes/${nodeId}`)).json();
    for (const replica of ['one', 'two']) {
      await stores.sightings.note(replica, [unreachable], LEASE_MS);
    }
    const none = await shown();
    t.deepEqual([none.state, none.cause, none.seen_by.length], ['unreachable', cause, 2]);
    t.deepEqual(Object.keys(none.seen_by[0]), ['control_plane', 'state', 'cause', 'since']);
    t.true(Date.parse(none.seen_by[0].since) < Date.parse(none.heartbeat_at));
    await stores.sightings.note('two', [{ ...unreachable, state: 'serving', cause: null }], 1e5);
    const some = await shown();
    t.deepEqual([some.state, some.cause], ['live', `${cause} (as 1 of 2 control planes see it)`]);
    // A killed replica is silent for longer than its lease.
    await stores.sightings.note('two', [{ ...unreachable, state: 'serving', cause: null }], -1);
    t.is((await shown()).state, 'unreachable');
    // Sightings of the previous process do not count.
    await register(stores, nodeId, '');
    t.is((await shown()).state, 'joining');
    for (const replica of ['one', 'two']) await stores.sightings.remove(replica);
  });

  test('refuses questions it does not understand, naming each', async t => {
    const query = 'state=lost&limit=0&limit=1&since_hours=-1&account=&status=failed';
    const answer = await ask(app, `/operator/jobs?${query}`);
    t.is(codeOf(answer), 'INVALID_REQUEST');
    const fields = answer.json().errors.map(({ field }: { field: string }) => field);
    t.deepEqual([...new Set(fields)].sort(), [
      'account',
      'limit',
      'since_hours',
      'state',
      'status',
    ]);
    t.is(codeOf(await ask(app, '/operator/jobs?account=nobody')), 'NOT_FOUND');
  });

  test('gives long lists page by page', async t => {
    const account = await fundedAccount(stores, 3);
    const jobs = [];
    for (let i = 0; i < 3; i += 1) jobs.push((await submitted(stores, newJob(account))).id);
    const page = async (query: string) =>
      (await ask(app, `/operator/jobs?account=${account}&${query}`)).json();
    const first = await page('limit=2');
    t.is(first.jobs.length, 2);
    t.is(first.next, first.jobs[1].cursor);
    const second = await page(`limit=2&after=${first.next}`);
    t.is(second.next, null);
    const listed = [...first.jobs, ...second.jobs].map(({ job_id: id }) => id);
    t.deepEqual(listed.sort(), jobs.sort());
    for (const after of ['x', 'open-1', `open-1-${randomUUID()}-2`]) {
      const refused = await ask(app, `/operator/jobs?after=${after}`);
      t.is(codeOf(refused), 'INVALID_REQUEST');
      t.is(refused.json().errors[0].field, 'after');
    }
  });

  test('lists open jobs by their place in the queue and ended ones, the latest first', async t => {
    const account = await fundedAccount(stores, 5);
    const asynchronous = await submitted(stores, newJob(account));
    const synchronous = await submitted(stores, newJob(account, { class: 'sync' }));
    const { job: busy, claim } = await running(stores, newJob(account));
    const failed = await running(stores, newJob(account));
    await stores.queue.fail(failed.claim, IMAGE_FAULT);
    const ids = async (query: string) => {
      const answer = await ask(app, `/operator/jobs?account=${account}&${query}`);
      t.is(answer.statusCode, 200, answer.body);
      return answer.json().jobs.map((job: { job_id: string }) => job.job_id);
    };
    t.is((await ids('state=open'))[0], synchronous.id);
    t.deepEqual((await ids('')).sort(), [synchronous, asynchronous, busy].map(idOf).sort());
    t.deepEqual(await ids('state=processing'), [busy.id]);
    t.deepEqual(await ids('state=queued&limit=1'), [synchronous.id]);
    t.deepEqual(await ids('state=failed'), [failed.job.id]);
    await stores.queue.succeed(claim, successOf(claim, { resultTtlMs: 1000 }));
    t.deepEqual((await ids('state=final')).sort(), [busy.id, failed.job.id].sort());
    const shown = (await ask(app, `/operator/jobs/${busy.id}`)).json();
    t.is(shown.state, 'succeeded');
    // The link is a capability, and the source is the caller's.
    t.false(JSON.stringify(shown).includes((await reread(stores, busy.id)).result!.token));
  });

  test('ends the lease of an open job: claimed again, its old holder fenced off', async t => {
    const account = await fundedAccount(stores, 1);
    const { job, claim } = await running(stores, newJob(account));
    const retried = await ask(app, `/operator/jobs/${job.id.toUpperCase()}/retry`, 'POST');
    t.deepEqual(retried.json(), {
      job_id: job.id,
      lease_ended: true,
      holder: claim.holder,
    });
    t.false(await stores.queue.renew(claim, LEASE_MS));
    t.false(await stores.queue.succeed(claim, successOf(claim, { resultTtlMs: 1000 })));
    t.is(await stores.queue.attemptLost(claim, true), undefined);
    const again = await claimed(stores, job, { holder: 'replica-2' });
    const taken = await reread(stores, job.id);
    t.deepEqual([taken.fence, taken.takeovers, taken.lostAttempts], [2, 0, 0]);
    t.truthy(await stores.queue.succeed(again, successOf(again, { resultTtlMs: 1000 })));
    await assertBalanced(stores);
  });

  test('does not change a job that no replica holds, nor one that ended', async t => {
    const account = await fundedAccount(stores, 3);
    const waiting = await submitted(stores, newJob(account));
    const retried = await ask(app, `/operator/jobs/${waiting.id}/retry`, 'POST');
    t.deepEqual(retried.json(), { job_id: waiting.id, lease_ended: false, holder: null });
    for (const end of ['succeeded', 'failed'] as const) {
      const { job, claim } = await running(stores, newJob(account));
      if (end === 'failed') await stores.queue.fail(claim, IMAGE_FAULT);
      else await stores.queue.succeed(claim, successOf(claim, { resultTtlMs: 1000 }));
      const before = await reread(stores, job.id);
      const answer = await ask(app, `/operator/jobs/${job.id}/retry`, 'POST');
      t.is(answer.statusCode, 409);
      t.is(codeOf(answer), 'JOB_FINAL');
      t.regex(answer.json().detail, end === 'failed' ? /returned/ : /charged/);
      const after = await reread(stores, job.id);
      t.deepEqual({ ...after, readAtMs: 0 }, { ...before, readAtMs: 0 });
    }
    for (const id of [randomUUID(), 'no-uuid']) {
      t.is(codeOf(await ask(app, `/operator/jobs/${id}/retry`, 'POST')), 'JOB_NOT_FOUND');
    }
    await assertBalanced(stores);
  });

  test('ends a lease once for many simultaneous requests', async t => {
    const account = await fundedAccount(stores, 1);
    const job = await submitted(stores, newJob(account));
    await claimed(stores, job);
    const asked = Array.from({ length: 8 }, () => stores.queue.endLease(job.id));
    const kinds = (await Promise.all(asked)).map(({ kind }) => kind);
    t.is(kinds.filter(kind => kind === 'ended').length, 1, kinds.join());
  });
});

const { stores } = useStores(test);

test("the operator's key › that is not configured leaves everything behind it off, and says so", async t => {
  const app = appOn(stores, { operatorKey: undefined });
  for (const url of ['/operator', '/operator/nodes', '/operator/nodes/n/metrics']) {
    const answer = await app.inject({ url, headers: AUTHORIZED });
    t.is(codeOf(answer), 'NOT_FOUND');
    t.regex(answer.json().detail, /MATTING_OPERATOR_KEY/);
  }
  t.is((await app.inject('/metrics')).statusCode, 200);
  await app.close();
});

const AGENT = 'matting-service/1 (image fetch)';
const WHO: readonly [headers: Record<string, string>, isChosen: boolean][] = [
  // Prometheus by address, container, service or configured name.
  [{ host: '10.4.0.7:9464' }, true],
  [{ host: '[fd00::7]:9464' }, true],
  [{ host: 'control-plane-1:9464' }, true],
  [{ host: 'matting.shop.svc.cluster.local:9464' }, true],
  [{ host: 'links.example' }, true],
  [{ host: 'Metrics.Example:9464' }, true],
  // Hostile pages whose names resolve to this machine.
  [{ host: 'evil.example:9464' }, false],
  [{ host: 'links.example.evil.example' }, false],
  [{ host: 'evil.example@127.0.0.1' }, false],
  // The service's own fetch of a caller's URL.
  [{ host: '127.0.0.1:9464', 'user-agent': AGENT }, false],
  [{ host: '127.0.0.1:9464', 'user-agent': 'Prometheus/3.4' }, true],
];

test('metrics › need no key if their reader chose the address', async t => {
  const app = appOn(stores);
  const off = appOn(stores, { operatorKey: undefined });
  for (const [headers, isChosen] of WHO) {
    const what = JSON.stringify(headers);
    const answer = await app.inject({ url: '/metrics', headers });
    t.is(answer.statusCode, isChosen ? 200 : 401, what);
    if (!isChosen) t.is(codeOf(answer), 'INVALID_OPERATOR_KEY', what);
    t.is((await off.inject({ url: '/metrics', headers })).statusCode, answer.statusCode, what);
    const keyed = { ...headers, ...AUTHORIZED };
    t.is((await app.inject({ url: '/metrics', headers: keyed })).statusCode, 200, what);
    t.is((await app.inject({ url: '/operator/nodes', headers: keyed })).statusCode, 200, what);
    const wrong = { ...headers, authorization: 'Bearer undefined' };
    const shown = await off.inject({ url: '/metrics', headers: wrong });
    t.is(shown.statusCode, answer.statusCode, what);
  }
  await app.close();
  await off.close();
});

test("the operator's key › that is missing, wrong or not the only one opens nothing", async t => {
  const app = appOn(stores);
  await fundedAccount(stores, 1);
  const { token } = await stores.apiKeys.create(await fundedAccount(stores, 1), 'a caller');
  const wrong = [
    {},
    { authorization: '' },
    { authorization: KEY },
    { authorization: `Basic ${KEY}` },
    { authorization: `Bearer ${KEY.slice(1)}` },
    { authorization: `Bearer ${KEY}x` },
    { authorization: `Bearer ${token}` },
  ];
  for (const headers of wrong) {
    for (const url of ['/operator/nodes', '/operator/nodes/n/info', '/operator/jobs/x']) {
      const answer = await app.inject({ url, headers });
      t.is(answer.statusCode, 401, JSON.stringify(headers));
      t.is(codeOf(answer), 'INVALID_OPERATOR_KEY');
      t.is(answer.headers['www-authenticate'], 'Bearer');
    }
  }
  const port = await listen(app);
  const twice = `Authorization: Bearer ${KEY}\r\n`.repeat(2);
  const text = await raw(port, `GET /operator/nodes HTTP/1.1\r\nHost: x\r\n${twice}\r\n`);
  t.regex(text, /^HTTP\/1.1 401 /);
  await app.close();
});

test("the operator's key › is not needed for unknown paths", async t => {
  const app = appOn(stores);
  t.is(codeOf(await ask(app, '/operator/nothing')), 'NOT_FOUND');
  t.is(codeOf(await ask(app, '/v1/account')), 'NOT_FOUND');
  const answer = await ask(app, '/operator/jobs', 'POST');
  t.is(codeOf(answer), 'METHOD_NOT_ALLOWED');
  t.is(answer.headers.allow, 'GET, HEAD');
  await app.close();
});

interface Line {
  readonly msg: string;
  readonly route?: string;
  readonly status?: number;
  readonly left?: boolean;
}

const { lines, logger } = linesLogger<Line>();
const asked = Promise.withResolvers<void>();
const silent = createServer(() => asked.resolve());
let logging: FastifyInstance;
let loggingPort: number;

test.before(async () => {
  logging = appOn(stores, { logger });
  loggingPort = await listen(logging);
  silent.listen(0, '127.0.0.1');
  await once(silent, 'listening');
  await register(stores, 'silent', `127.0.0.1:${(silent.address() as AddressInfo).port}`);
});
test.after.always(async () => {
  await logging.close();
  silent.closeAllConnections();
  await new Promise(resolve => silent.close(resolve));
});

const answers = () => lines.filter(({ msg }) => msg === 'answered the operator');

test('the log › has a line per answer, also if it is refused before its route, and none for scrapes', async t => {
  const base = `http://127.0.0.1:${loggingPort}`;
  await fetch(`${base}/metrics`);
  await fetch(`${base}/operator/nodes`, { headers: AUTHORIZED });
  await fetch(`${base}/operator/nodes`);
  const noHost = connect(loggingPort, '127.0.0.1').resume();
  noHost.write('GET /operator/nodes HTTP/1.1\r\nConnection: close\r\n\r\n');
  await once(noHost, 'close');
  t.deepEqual(
    answers().map(({ route, status, left }) => [route, status, left]),
    [
      ['/operator/nodes', 200, undefined],
      ['/operator/nodes', 401, undefined],
      ['/operator/nodes', 400, undefined],
    ],
  );
});

test('the log › has one of a caller who leaves', async t => {
  lines.length = 0;
  const caller = connect(loggingPort, '127.0.0.1');
  const lead = `Host: x\r\nAuthorization: Bearer ${KEY}\r\n\r\n`;
  caller.write(`GET /operator/nodes/silent/info HTTP/1.1\r\n${lead}`);
  await asked.promise;
  caller.destroy();
  await until('the line of an answer', () => answers().length > 0);
  await delay(50);
  t.deepEqual(
    answers().map(({ status, left }) => [status, left]),
    [[499, true]],
  );
});

let app: FastifyInstance;
let port: number;
let node: Server;
let seen: IncomingMessage[];
let answerAs: (request: IncomingMessage, response: ServerResponse) => void;

test.before(async () => {
  app = appOn(stores, { nodeProxy: { silenceMsMax: 500, answerMsMax: 1500 } });
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
    '/operator/nodes/n//metrics',
    '/operator/nodes/n/metrics/..',
    '/operator/nodes/n/metrics/../secret',
    '/operator/nodes/n/..%2fsecret',
    '/operator/nodes/n/%2e%2e/secret',
    '/operator/nodes/n/..\\secret',
    '/operator/nodes/n/metrics%00',
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

test('the proxy to a node › passes on only the path and the Accept header', async t => {
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
  'answers in pieces of one byte': (_request, response) => drip(response),
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

test('the public port knows nothing of the operator', async t => {
  const plane = await openTestApp({}, t);
  for (const url of ['/operator/nodes', '/operator/jobs', '/operator/nodes/n/metrics']) {
    const answer = await plane.app.inject({ url, headers: AUTHORIZED });
    t.is(answer.statusCode, 404, url);
  }
  const document = (await plane.app.inject('/v1/openapi.json')).body;
  t.false(/operator\/|INVALID_OPERATOR_KEY|JOB_FINAL|NODE_UNREACHABLE/.test(document));
});
