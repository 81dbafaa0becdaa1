/** The operator's port: its key, what it tells and changes, and the door to the nodes. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { after, afterEach, before, describe, it, test } from 'node:test';
import type { FastifyInstance } from 'fastify';
import { Registry } from 'prom-client';
import { DIALECTS, skipReason, useTestDatabase } from '../../../../test/support/database.ts';
import { buildOperatorApp } from '../../../src/http/operator-app.ts';
import { OperateJobs } from '../../../src/services/operator/operate-jobs.ts';
import { OperateNodes } from '../../../src/services/operator/operate-nodes.ts';
import type { Stores } from '../../../src/store/stores.ts';
import {
  assertBalanced,
  claimed,
  fundedAccount,
  IMAGE_FAULT,
  newJob,
  reread,
  resultOf,
  running,
  storesOn,
  submitted,
} from '../../store/fixtures.ts';
import { openTestApp } from '../../support/test-app.ts';

const KEY = 'an-operator-key-that-only-a-test-knows';
const LEASE_MS = 15_000;

interface Door {
  readonly silenceMsMax: number;
  readonly answerMsMax: number;
}

function appOn(stores: Stores, changes: { operatorKey?: string | undefined; door?: Door } = {}) {
  return buildOperatorApp(
    {
      operateJobs: new OperateJobs(stores),
      operateNodes: new OperateNodes({ nodes: stores.nodes }),
    },
    { baseUrl: 'http://links.example', operatorKey: KEY, metrics: new Registry(), ...changes },
  );
}

const AUTHORIZED = { authorization: `Bearer ${KEY}` };

function ask(app: FastifyInstance, url: string, method: 'GET' | 'HEAD' | 'POST' = 'GET') {
  return app.inject({ method, url, headers: { ...AUTHORIZED, host: 'operator' } });
}

/** The code of a problem, checked to be one. */
function codeOf(answer: Awaited<ReturnType<typeof ask>>): string {
  assert.match(String(answer.headers['content-type']), /^application\/problem\+json/);
  const problem = answer.json();
  assert.equal(problem.status, answer.statusCode);
  assert.equal(problem.request_id, answer.headers['x-request-id']);
  return problem.code;
}

for (const dialect of DIALECTS) {
  describe(`the operator's port on ${dialect}`, { skip: skipReason(dialect) }, () => {
    const databases = useTestDatabase(dialect);
    let stores: Stores;
    let app: FastifyInstance;

    before(async () => {
      stores = storesOn(await databases.open());
      app = appOn(stores);
      await app.ready();
    });
    after(() => app.close());

    it('lists nodes, drains and undrains them', async () => {
      const nodeId = `node-${randomUUID()}`;
      assert.equal(codeOf(await ask(app, `/operator/nodes/${nodeId}/drain`, 'POST')), 'NOT_FOUND');
      assert.equal(codeOf(await ask(app, '/operator/nodes/n%C3%B6de')), 'NOT_FOUND');
      const bootId = await register(stores, nodeId, '10.0.0.7:50052');
      const state = async () => (await ask(app, `/operator/nodes/${nodeId}`)).json().state;
      assert.equal(await state(), 'live');
      const told = await ask(app, `/operator/nodes/${nodeId}/drain`, 'POST');
      assert.deepEqual(told.json(), { node_id: nodeId, draining: true });
      assert.equal(await state(), 'draining');
      await ask(app, `/operator/nodes/${nodeId}/undrain`, 'POST');
      assert.equal(await state(), 'live');
      await stores.nodes.deregister(nodeId, bootId);
      assert.equal(await state(), 'gone');
      const { nodes } = (await ask(app, '/operator/nodes')).json();
      const found = nodes.find((node: { node_id: string }) => node.node_id === nodeId);
      assert.equal(found.http_address, '10.0.0.7:50052');
    });

    it('refuses questions it does not understand, naming each', async () => {
      const query = 'state=lost&limit=0&limit=1&since_hours=-1&account=&status=failed';
      const answer = await ask(app, `/operator/jobs?${query}`);
      assert.equal(codeOf(answer), 'INVALID_REQUEST');
      const fields = answer.json().errors.map(({ field }: { field: string }) => field);
      assert.deepEqual([...new Set(fields)].sort(), [
        'account',
        'limit',
        'since_hours',
        'state',
        'status',
      ]);
      assert.equal(codeOf(await ask(app, '/operator/jobs?account=nobody')), 'NOT_FOUND');
    });

    it('gives long lists page by page', async () => {
      const account = await fundedAccount(stores, 3);
      const jobs = [];
      for (let i = 0; i < 3; i += 1) jobs.push((await submitted(stores, newJob(account))).id);
      const page = async (query: string) =>
        (await ask(app, `/operator/jobs?account=${account}&${query}`)).json();
      const first = await page('limit=2');
      assert.equal(first.jobs.length, 2);
      assert.equal(first.next, first.jobs[1].cursor);
      const second = await page(`limit=2&after=${first.next}`);
      assert.equal(second.next, null);
      const listed = [...first.jobs, ...second.jobs].map(({ job_id: id }) => id);
      assert.deepEqual(listed.sort(), jobs.sort());
      for (const after of ['x', 'open-1', `open-1-${randomUUID()}-2`]) {
        const refused = await ask(app, `/operator/jobs?after=${after}`);
        assert.equal(codeOf(refused), 'INVALID_REQUEST');
        assert.equal(refused.json().errors[0].field, 'after');
      }
    });

    it('lists open jobs by their place in the queue and ended ones, the latest first', async () => {
      const account = await fundedAccount(stores, 5);
      const asynchronous = await submitted(stores, newJob(account));
      const synchronous = await submitted(stores, newJob(account, { mode: 'sync' }));
      const { job: busy, claim } = await running(stores, newJob(account));
      const failed = await running(stores, newJob(account));
      await stores.jobs.fail(failed.claim, IMAGE_FAULT);
      const ids = async (query: string) => {
        const answer = await ask(app, `/operator/jobs?account=${account}&${query}`);
        assert.equal(answer.statusCode, 200, answer.body);
        return answer.json().jobs.map((job: { job_id: string }) => job.job_id);
      };
      assert.equal((await ids('state=open'))[0], synchronous.id);
      assert.deepEqual((await ids('')).sort(), [synchronous, asynchronous, busy].map(idOf).sort());
      assert.deepEqual(await ids('state=processing'), [busy.id]);
      assert.deepEqual(await ids('state=queued&limit=1'), [synchronous.id]);
      assert.deepEqual(await ids('state=failed'), [failed.job.id]);
      await stores.jobs.succeed(claim, resultOf(claim), 1000, {});
      assert.deepEqual((await ids('state=final')).sort(), [busy.id, failed.job.id].sort());
      const shown = (await ask(app, `/operator/jobs/${busy.id}`)).json();
      assert.equal(shown.state, 'succeeded');
      // The link is the capability, the source the caller's business.
      assert.ok(!JSON.stringify(shown).includes((await reread(stores, busy.id)).result!.token));
    });

    it('ends the lease of an open job: claimed anew, its old holder fenced off', async () => {
      const account = await fundedAccount(stores, 1);
      const { job, claim } = await running(stores, newJob(account));
      const retried = await ask(app, `/operator/jobs/${job.id.toUpperCase()}/retry`, 'POST');
      assert.deepEqual(retried.json(), {
        job_id: job.id,
        lease_ended: true,
        holder: claim.holder,
      });
      assert.equal(await stores.jobs.renew(claim, LEASE_MS), false);
      assert.equal(await stores.jobs.succeed(claim, resultOf(claim), 1000, {}), false);
      assert.equal(await stores.jobs.attemptLost(claim, true), undefined);
      const again = await claimed(stores, job, { holder: 'replica-2' });
      const taken = await reread(stores, job.id);
      assert.deepEqual([taken.fence, taken.takeovers, taken.lostAttempts], [2, 0, 0]);
      assert.ok(await stores.jobs.succeed(again, resultOf(again), 1000, {}));
      await assertBalanced(stores);
    });

    it('leaves a job that nobody holds, and one that ended, as they are', async () => {
      const account = await fundedAccount(stores, 3);
      const waiting = await submitted(stores, newJob(account));
      const retried = await ask(app, `/operator/jobs/${waiting.id}/retry`, 'POST');
      assert.deepEqual(retried.json(), { job_id: waiting.id, lease_ended: false, holder: null });
      for (const end of ['succeeded', 'failed'] as const) {
        const { job, claim } = await running(stores, newJob(account));
        if (end === 'failed') await stores.jobs.fail(claim, IMAGE_FAULT);
        else await stores.jobs.succeed(claim, resultOf(claim), 1000, {});
        const before = await reread(stores, job.id);
        const answer = await ask(app, `/operator/jobs/${job.id}/retry`, 'POST');
        assert.equal(answer.statusCode, 409);
        assert.equal(codeOf(answer), 'JOB_FINAL');
        assert.match(answer.json().detail, end === 'failed' ? /returned/ : /charged/);
        const after = await reread(stores, job.id);
        assert.deepEqual({ ...after, readAtMs: 0 }, { ...before, readAtMs: 0 });
      }
      for (const id of [randomUUID(), 'no-uuid']) {
        assert.equal(codeOf(await ask(app, `/operator/jobs/${id}/retry`, 'POST')), 'JOB_NOT_FOUND');
      }
      await assertBalanced(stores);
    });

    it('ends a lease once where it is asked for many times at once', async () => {
      const account = await fundedAccount(stores, 1);
      const job = await submitted(stores, newJob(account));
      await claimed(stores, job);
      const asked = Array.from({ length: 8 }, () => stores.jobs.endLease(job.id));
      const kinds = (await Promise.all(asked)).map(({ kind }) => kind);
      assert.equal(kinds.filter(kind => kind === 'ended').length, 1, kinds.join());
    });
  });
}

describe("the operator's key", () => {
  const databases = useTestDatabase('sqlite');
  let stores: Stores;
  before(async () => {
    stores = storesOn(await databases.open());
  });

  it('that is not configured leaves everything behind it off, and says so', async () => {
    const app = appOn(stores, { operatorKey: undefined });
    for (const url of ['/operator/nodes', '/operator/jobs', '/operator/nodes/n/metrics']) {
      const answer = await app.inject({ url, headers: AUTHORIZED });
      assert.equal(codeOf(answer), 'NOT_FOUND');
      assert.match(answer.json().detail, /MATTING_OPERATOR_KEY/);
    }
    assert.equal((await app.inject('/metrics')).statusCode, 200);
    await app.close();
  });

  it('that is missing, wrong or not the only one opens nothing', async () => {
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
        assert.equal(answer.statusCode, 401, JSON.stringify(headers));
        assert.equal(codeOf(answer), 'INVALID_OPERATOR_KEY');
        assert.equal(answer.headers['www-authenticate'], 'Bearer');
      }
    }
    const port = await listen(app);
    const twice = `Authorization: Bearer ${KEY}\r\n`.repeat(2);
    const text = await raw(port, `GET /operator/nodes HTTP/1.1\r\nHost: x\r\n${twice}\r\n`);
    assert.match(text, /^HTTP\/1.1 401 /);
    await app.close();
  });

  it('is not asked where there is nothing', async () => {
    const app = appOn(stores);
    assert.equal(codeOf(await ask(app, '/operator')), 'NOT_FOUND');
    assert.equal(codeOf(await ask(app, '/v1/account')), 'NOT_FOUND');
    const answer = await ask(app, '/operator/jobs', 'POST');
    assert.equal(codeOf(answer), 'METHOD_NOT_ALLOWED');
    assert.equal(answer.headers.allow, 'GET, HEAD');
    await app.close();
  });
});

describe('the door to a node', () => {
  const databases = useTestDatabase('sqlite');
  let stores: Stores;
  let app: FastifyInstance;
  let port: number;
  let node: Server;
  let seen: IncomingMessage[];
  let answerAs: (request: IncomingMessage, response: ServerResponse) => void;

  before(async () => {
    stores = storesOn(await databases.open());
    app = appOn(stores, { door: { silenceMsMax: 1500, answerMsMax: 4500 } });
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
  afterEach(() => seen.splice(0));
  after(async () => {
    await app.close();
    node.closeAllConnections();
    await new Promise(resolve => node.close(resolve));
  });

  function door(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = { ...AUTHORIZED, ...(init.headers as Record<string, string>) };
    return fetch(`http://127.0.0.1:${port}/operator/nodes/${path}`, { ...init, headers });
  }

  async function refused(path: string, status: number, code: string): Promise<string> {
    const answer = await door(path);
    const problem = (await answer.json()) as { code: string; detail: string };
    assert.deepEqual([answer.status, problem.code], [status, code], path);
    assert.match(String(answer.headers.get('content-type')), /^application\/problem\+json/);
    return problem.detail;
  }

  it('does not open to a node that is unknown, has left, or has no endpoints', async () => {
    await refused('nobody/metrics', 404, 'NOT_FOUND');
    const bootId = await register(stores, 'left', '127.0.0.1:9');
    await stores.nodes.deregister('left', bootId);
    assert.match(await refused('left/metrics', 404, 'NOT_FOUND'), /left/);
    await register(stores, 'mute', '');
    await refused('mute/info', 404, 'NOT_FOUND');
  });

  it('takes no address from the request, and no path but its own', async () => {
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
      assert.match(text, /^HTTP\/1.1 40[04] /, target);
      assert.ok(!text.includes('not to be seen'), target);
    }
    assert.deepEqual(seen, []);
  });

  it('opens for a target in absolute form too, whatever host it names', async () => {
    answerAs = (_request, response) => response.end('ok');
    const target = 'http://elsewhere.example/operator/nodes/n/metrics';
    const authorized = `Host: x\r\nAuthorization: Bearer ${KEY}\r\n`;
    const text = await raw(port, `GET ${target} HTTP/1.1\r\n${authorized}\r\n`);
    assert.match(text, /^HTTP\/1.1 200 /);
    assert.equal(seen[0]?.url, '/metrics');
  });

  it('hands nothing on but the path and what is accepted', async () => {
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
    assert.match(await raw(port, sent), /^HTTP\/1.1 200 /);
    const [request, ...others] = seen;
    assert.ok(request);
    assert.deepEqual(others, []);
    const { method, url, headers } = request;
    assert.deepEqual([method, url], ['GET', '/metrics']);
    const { port: nodePort } = node.address() as AddressInfo;
    const { connection, ...rest } = headers;
    assert.match(connection ?? 'close', /^(close|keep-alive)$/);
    assert.deepEqual(rest, { host: `127.0.0.1:${nodePort}`, accept: 'text/plain' });
  });

  it('gives back status, type and body, and nothing else of the answer', async () => {
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
    assert.deepEqual([unready.status, await unready.text()], [503, 'for /readyz']);
    assert.equal(unready.headers.get('content-type'), 'text/plain; version=0.0.4');
    for (const name of ['set-cookie', 'location', 'access-control-allow-origin', 'x-own']) {
      assert.equal(unready.headers.get(name), null, name);
    }
    assert.equal(seen.length, 1, 'asked once, also after a 503');
    const moved = await door('n/info', { redirect: 'manual' });
    assert.equal(moved.status, 302);
    const head = await door('n/metrics', { method: 'HEAD' });
    assert.deepEqual([head.status, await head.text()], [302, '']);
    assert.equal(seen.at(-1)?.method, 'HEAD');
  });

  it('is for GET and HEAD', async () => {
    for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']) {
      const answer = await door('n/metrics', { method });
      assert.equal(answer.status, 405, method);
      assert.equal(answer.headers.get('allow'), 'GET, HEAD');
    }
    assert.deepEqual(seen, []);
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
    it(`says that a node ${how}`, async () => {
      answerAs = answer;
      await refused('n/metrics', 502, 'NODE_UNREACHABLE');
      answerAs = (_request, response) => response.end('ok');
      assert.equal(await (await door('n/metrics')).text(), 'ok', 'the next one is served');
    });
  }

  it('says that nothing listens where a node should', async () => {
    const closed = createServer().listen(0, '127.0.0.1');
    await once(closed, 'listening');
    const { port: free } = closed.address() as AddressInfo;
    await new Promise(resolve => closed.close(resolve));
    await register(stores, 'dead', `127.0.0.1:${free}`);
    await refused('dead/livez', 502, 'NODE_UNREACHABLE');
  });
});

it('the public port knows nothing of the operator', async () => {
  const plane = await openTestApp();
  try {
    for (const url of ['/operator/nodes', '/operator/jobs', '/operator/nodes/n/metrics']) {
      const answer = await plane.app.inject({ url, headers: AUTHORIZED });
      assert.equal(answer.statusCode, 404, url);
    }
    const document = (await plane.app.inject('/v1/openapi.json')).body;
    assert.ok(!/operator\/|INVALID_OPERATOR_KEY|JOB_FINAL|NODE_UNREACHABLE/.test(document));
  } finally {
    await plane.close();
  }
});

function idOf(job: { readonly id: string }): string {
  return job.id;
}

async function register(stores: Stores, nodeId: string, httpAddress: string): Promise<string> {
  const bootId = randomUUID();
  const node = { nodeId, bootId, address: '10.0.0.7:50051', httpAddress, version: 'test' };
  await stores.nodes.register(node, 60_000);
  return bootId;
}

async function listen(app: FastifyInstance): Promise<number> {
  await app.listen({ host: '127.0.0.1', port: 0 });
  return (app.server.address() as AddressInfo).port;
}

/** What is answered to these very bytes. */
async function raw(port: number, bytes: string): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  let text = '';
  socket.setEncoding('latin1').on('data', part => {
    text += part;
    if (text.includes('\r\n\r\n')) socket.end();
  });
  socket.write(bytes);
  await once(socket, 'close');
  return text;
}

test('silent connections do not close the port of metrics to a scraper', async () => {
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
    assert.equal((await fetch(`http://127.0.0.1:${port}/metrics`)).status, 200);
  }
  for (const socket of silent) socket.destroy();
  await app.close();
  await made.close();
});
