import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo, Socket as TcpSocket } from 'node:net';
import path from 'node:path';
import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { drip } from '@matting/test-support/dripping.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava from 'ava';
import {
  type LoopbackSource,
  openRawSource,
  openSource,
  type RecordingConnector,
  recordingConnector,
  scriptedResolver,
} from '../test/loopback-source.ts';
import { FetchFailedError, type FetchLimits, GuardedFetch } from './guarded-fetch.ts';
import { GuardedPost, PostFailedError, type PostFailure, type PostLimits } from './guarded-post.ts';
import { createPinnedConnector, OutgoingGuard } from './outgoing-guard.ts';
import { ForbiddenUrlError } from './outgoing-url.ts';
import type { ResolveHost } from './resolve-host.ts';

const test = ava.serial;

const directory = await temporaryFolder({ teardown: test.after.always });

const PUBLIC = '93.184.215.14';
const OTHER_PUBLIC = '2606:4700:4700::1111';
const NEVER = new AbortController().signal;

interface Bench {
  readonly fetch: GuardedFetch;
  readonly connector: RecordingConnector;
}

/** Takes all names as public; its recorded connections end on loopback. */
function benchOf(
  port: number,
  resolveHost: ResolveHost,
  limits: Partial<FetchLimits> = {},
  own: readonly string[] = [],
): Bench {
  const connector = recordingConnector();
  const guard = new OutgoingGuard({
    policy: { fetchPorts: [port, 80, 443], allowPrivateAddresses: false },
    resolveHost,
    createConnector: connector.createConnector,
    ownAddresses: () => new Set(own),
  });
  return { fetch: new GuardedFetch(guard, limits), connector };
}

function trustedFetch(resolveHost?: ResolveHost): GuardedFetch {
  const policy = { fetchPorts: [80, 443], allowPrivateAddresses: true };
  const guard = new OutgoingGuard({ policy, ...(resolveHost && { resolveHost }) });
  return new GuardedFetch(guard);
}

async function textOf(fetch: GuardedFetch, url: string, signal = NEVER): Promise<string> {
  const request = { accountId: 'account', signal, bytesMax: 1000 };
  return fetch.get(url, request, async response => {
    const parts: Uint8Array[] = [];
    for await (const chunk of response.body) parts.push(chunk);
    return Buffer.concat(parts).toString();
  });
}

const serveHello = (): Promise<LoopbackSource> =>
  openSource((_request, response) => response.end('hello'));

test('an answer › in more pieces than its bytes are worth is no picture, and not asked for again', async t => {
  await using source = await openSource((_request, response) => drip(response));
  const request = { accountId: 'account', signal: NEVER, bytesMax: 1_000_000 };
  const read = trustedFetch().get(source.url, request, async ({ body }) => {
    for await (const _ of body);
  });
  const error = await t.throwsAsync(read, { instanceOf: FetchFailedError });
  t.regex(error.message, /more pieces/);
  t.false(error.retryable);
});

for (const [interim, isTaken] of [
  [3, true],
  [1000, false],
] as const) {
  test(`an answer › after ${interim} interim ones is ${isTaken ? '' : 'not '}taken`, async t => {
    await using source = await openRawSource(socket => {
      socket.write('HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(interim));
      socket.end('HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello');
    });
    const read = textOf(trustedFetch(), source.url);
    if (isTaken) t.is(await read, 'hello');
    else await t.throwsAsync(read, { instanceOf: FetchFailedError });
  });
}

const INTERIM = [
  ['HTTP/1.1 100 Continue\r\n\r\n'],
  ['HTTP/1.1 100 Continue\r\n', '\r\n'],
  ['HTTP/1.', '1 100\r\nserver: x\r\n\r', '\n'],
  ['HTTP/1.0 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n'],
  ['HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n', 'HTTP/1.1 100 Continue\n\n'],
  ['HTTP/1.1 199 Unheard\r\n\r\n'],
];
for (const pieces of INTERIM) {
  test(`an answer › counts behind what is skipped: ${JSON.stringify(pieces)}`, async t => {
    await using source = await openRawSource(async socket => {
      socket.setNoDelay(true);
      const answer = 'HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello';
      for (const piece of [...pieces, answer.slice(0, 9), answer.slice(9)]) {
        socket.write(piece);
        await delay(10);
      }
      socket.end();
    });
    t.is(await textOf(trustedFetch(), source.url), 'hello');
    const url = source.url.replace('127.0.0.1', 'hooks.example.com');
    const { status } = await postOf(here).post(url, MESSAGE, NEVER);
    t.is(status, 200);
  });
}

for (const [what, answer] of [
  [
    'another protocol',
    'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n',
  ],
  ['an interim answer alone', 'HTTP/1.1 100 Continue\r\n\r\n'],
  ['an interim answer without end', `HTTP/1.1 100 Continue\r\n${'a: b\r\n'.repeat(100_000)}`],
] as const) {
  test(`an answer › of ${what} is none`, async t => {
    await using source = await openRawSource(socket => socket.end(answer));
    const read = textOf(trustedFetch(), source.url);
    await t.throwsAsync(read, { instanceOf: FetchFailedError });
  });
}

test('an answer › of interim ones in pieces of one byte ends long before their bound', async t => {
  let sent = 0;
  await using source = await openRawSource(async socket => {
    socket.setNoDelay(true);
    socket.on('error', () => undefined);
    for (; sent < 12_000 && !socket.destroyed; sent += 1) {
      socket.write(sent === 0 ? 'HTTP/1.1 103 Early Hints\r\nlink: <' : 'x');
      await nextTurn();
    }
    socket.destroy();
  });
  const error = await t.throwsAsync(textOf(trustedFetch(), source.url), {
    instanceOf: FetchFailedError,
  });
  t.true(sent < 6000, `${sent} pieces, ${error.message}`);
});

test("addresses behind a name › refuses this machine's own public address", async t => {
  await using source = await serveHello();
  const bench = benchOf(source.port, async () => [PUBLIC], {}, [PUBLIC]);
  await t.throwsAsync(textOf(bench.fetch, 'http://a.example.com/'), {
    instanceOf: ForbiddenUrlError,
  });
  t.deepEqual(bench.connector.dialled, []);
});

test('addresses behind a name › connects to the checked addresses and no others', async t => {
  await using source = await serveHello();
  const bench = benchOf(source.port, async () => [PUBLIC, OTHER_PUBLIC]);
  const url = `http://a.example.com:${source.port}/x?y=1#z`;
  t.is(await textOf(bench.fetch, url), 'hello');
  t.deepEqual(bench.connector.dialled, [OTHER_PUBLIC, PUBLIC]);
  t.deepEqual(source.requests, [`a.example.com:${source.port} /x?y=1`]);
});

test('addresses behind a name › tries a few of very many, all of them checked', async t => {
  await using source = await serveHello();
  const many = Array.from({ length: 50 }, (_, i) => `93.184.215.${i}`);
  const bench = benchOf(source.port, async () => many);
  await textOf(bench.fetch, `http://a.example.com:${source.port}/`);
  t.deepEqual(bench.connector.dialled, many.slice(0, 4));
  const mixed = benchOf(source.port, async () => [...many, OTHER_PUBLIC]);
  await textOf(mixed.fetch, `http://a.example.com:${source.port}/`);
  t.deepEqual(mixed.connector.dialled, [OTHER_PUBLIC, ...many.slice(0, 3)]);
  const poisoned = benchOf(source.port, async () => [...many, '127.0.0.1']);
  const refused = textOf(poisoned.fetch, `http://a.example.com:${source.port}/`);
  await t.throwsAsync(refused, { instanceOf: ForbiddenUrlError });
  t.deepEqual(poisoned.connector.dialled, []);
});

test('addresses behind a name › asks once a request, so that a second answer changes nothing', async t => {
  await using source = await serveHello();
  const resolver = scriptedResolver({ 'a.example.com': [[PUBLIC], ['127.0.0.1']] });
  const bench = benchOf(source.port, resolver.resolveHost);
  const url = `http://a.example.com:${source.port}/`;
  t.is(await textOf(bench.fetch, url), 'hello');
  t.deepEqual(resolver.lookedUp, ['a.example.com']);
  await t.throwsAsync(textOf(bench.fetch, url), { instanceOf: ForbiddenUrlError });
  t.deepEqual(bench.connector.dialled, [PUBLIC]);
});

test('addresses behind a name › checks again for a redirect to the same name', async t => {
  await using source = await openSource((_request, response) => {
    response.writeHead(302, { location: '/again' }).end();
  });
  const resolver = scriptedResolver({ 'a.example.com': [[PUBLIC], ['127.0.0.1']] });
  const bench = benchOf(source.port, resolver.resolveHost);
  const url = `http://a.example.com:${source.port}/`;
  await t.throwsAsync(textOf(bench.fetch, url), { instanceOf: ForbiddenUrlError });
  t.deepEqual(bench.connector.dialled, [PUBLIC]);
  t.is(source.requests.length, 1);
});

test('addresses behind a name › fails for good without an address, and for now while the DNS is silent', async t => {
  const failing = (code: string): ResolveHost => {
    return async () => {
      throw Object.assign(new Error(code), { code });
    };
  };
  const hanging: ResolveHost = () => Promise.withResolvers<string[]>().promise;
  const cases: [ResolveHost, boolean][] = [
    [async () => [], false],
    [failing('ESERVFAIL'), true],
    [failing('ETIMEOUT'), true],
    [hanging, true],
  ];
  for (const [resolveHost, retryable] of cases) {
    const { fetch } = benchOf(80, resolveHost, { resolveMs: 20 });
    await rejectsWith(t, textOf(fetch, 'http://a.example.com/'), error => {
      assert.ok(error instanceof FetchFailedError);
      t.is(error.retryable, retryable);
      return true;
    });
  }
});

const FORBIDDEN_TARGETS = [
  'http://169.254.169.254/latest/meta-data/',
  'http://127.0.0.1/',
  'http://[::1]/',
  'http://2130706433/',
  'http://localhost/',
  'http://inside.example.com/',
  '//127.0.0.1/',
  'http://user:word@a.example.com/',
  'http://a.example.com:22/',
  'file:///etc/passwd',
  'ftp://a.example.com/',
  `http://a.example.com/${'x'.repeat(3000)}`,
];
for (const status of [301, 302, 303, 307, 308]) {
  test(`redirects › ${status} to a forbidden place is refused, without connecting there`, async t => {
    for (const location of FORBIDDEN_TARGETS) {
      await using source = await openSource((_request, response) => {
        response.writeHead(status, { location }).end('moved');
      });
      const resolver = scriptedResolver({
        'a.example.com': [[PUBLIC]],
        'inside.example.com': [['10.0.0.1']],
      });
      const { fetch, connector } = benchOf(source.port, resolver.resolveHost);
      const fetched = textOf(fetch, `http://a.example.com:${source.port}/`);
      await t.throwsAsync(fetched, { instanceOf: ForbiddenUrlError }, location);
      t.deepEqual(connector.dialled, [PUBLIC], location);
    }
  });
}

test('redirects › follows three, and not a fourth', async t => {
  await using source = await openSource((request, response) => {
    const left = Number(request.url?.slice(1));
    if (left === 0) response.end('arrived');
    else response.writeHead(302, { location: `./${left - 1}` }).end();
  });
  const { fetch } = benchOf(source.port, async () => [PUBLIC]);
  const url = `http://a.example.com:${source.port}`;
  t.is(await textOf(fetch, `${url}/3`), 'arrived');
  const before = source.requests.length;
  await rejectsWith(t, textOf(fetch, `${url}/4`), { name: 'FetchFailedError', retryable: false });
  t.is(source.requests.length, before + 4);
});

test('redirects › does not go from https to http, and does go from http to https', async t => {
  await using source = await openSource((request, response) => {
    const { port } = source;
    const to = {
      '/down': `http://b.example.com:${port}/`,
      '/up': `https://b.example.com:${port}/`,
    };
    const location = to[request.url as keyof typeof to];
    if (location === undefined) response.end('arrived');
    else response.writeHead(302, { location }).end();
  });
  const { fetch, connector } = benchOf(source.port, async () => [PUBLIC]);
  const host = `a.example.com:${source.port}`;
  t.is(await textOf(fetch, `http://${host}/up`), 'arrived');
  const before = connector.dialled.length;
  const down = textOf(fetch, `https://${host}/down`);
  await rejectsWith(t, down, { name: 'FetchFailedError', retryable: false });
  t.is(connector.dialled.length, before + 1);
});

test('redirects › carries no cookie, credential or referrer, and asks for no encoding', async t => {
  const seen: Record<string, unknown>[] = [];
  await using source = await openSource((request, response) => {
    seen.push(request.headers);
    if (request.url === '/next') response.end('arrived');
    else response.writeHead(302, { location: '/next', 'set-cookie': 'a=b' }).end();
  });
  const { fetch } = benchOf(source.port, async () => [PUBLIC]);
  await textOf(fetch, `http://a.example.com:${source.port}/`);
  t.is(seen.length, 2);
  for (const headers of seen) {
    const names = Object.keys(headers).sort();
    t.deepEqual(names, ['accept', 'accept-encoding', 'connection', 'host', 'user-agent']);
    t.is(headers['accept-encoding'], 'identity');
  }
});

test('a request names the service, and the contact that the operator set', async t => {
  const seen: unknown[] = [];
  await using source = await openSource((request, response) => {
    seen.push(request.headers['user-agent']);
    response.end('hello');
  });
  for (const fetchContact of [undefined, 'https://shop.example/contact']) {
    const policy = { fetchPorts: [], allowPrivateAddresses: true, fetchContact };
    await textOf(new GuardedFetch(new OutgoingGuard({ policy })), source.url);
  }
  t.deepEqual(seen, [
    'matting-service/1 (image fetch)',
    'matting-service/1 (image fetch; https://shop.example/contact)',
  ]);
});

test('redirects › is none without Location or with another status', async t => {
  for (const [status, headers] of [
    [302, {}],
    [300, { location: '/next' }],
    [201, { location: '/next' }],
  ] as const) {
    await using source = await openSource((_request, response) => {
      response.writeHead(status, headers).end();
    });
    const { fetch } = benchOf(source.port, async () => [PUBLIC]);
    const fetched = textOf(fetch, `http://a.example.com:${source.port}/`);
    await rejectsWith(t, fetched, { name: 'FetchFailedError', retryable: false });
    t.is(source.requests.length, 1);
  }
});

test('the pinned connector › does not resolve the name again', async t => {
  await using source = await serveHello();
  const fetch = trustedFetch(async () => ['127.0.0.1']);
  // No resolver knows this name, so the client must have used the checked address.
  t.is(await textOf(fetch, `http://nowhere.invalid:${source.port}/`), 'hello');
});

test('the pinned connector › tries the next address when one refuses', async t => {
  await using source = await serveHello();
  const fetch = trustedFetch(async () => ['127.0.0.2', '127.0.0.1']);
  t.is(await textOf(fetch, `http://nowhere.invalid:${source.port}/`), 'hello');
});

test('the pinned connector › does not speak to a peer that was not checked', async t => {
  await using source = await serveHello();
  const { promise, resolve } = Promise.withResolvers<Error | null>();
  const connect = createPinnedConnector([PUBLIC], 1000);
  // Node connects to a literal address without a look-up.
  const target = { protocol: 'http:', hostname: '127.0.0.1', port: String(source.port) };
  connect(target, (...[error]) => resolve(error));
  t.regex(String(await promise), /not checked/);
  t.deepEqual(source.requests, []);
});

const trustedOnly = (): GuardedFetch => trustedFetch();

test('a trustedOnly network › reaches loopback by address and by name, on any port', async t => {
  await using source = await serveHello();
  t.is(await textOf(trustedOnly(), `${source.url}/`), 'hello');
  t.is(await textOf(trustedOnly(), `http://localhost:${source.port}/`), 'hello');
  t.is(await textOf(trustedOnly(), `http://[::ffff:127.0.0.1]:${source.port}/`), 'hello');
});

test('a trustedOnly network › ignores the proxies of the environment', async t => {
  await using source = await serveHello();
  await using proxy = await serveHello();
  const names = ['http_proxy', 'HTTP_PROXY', 'all_proxy', 'NODE_USE_ENV_PROXY'];
  const before = names.map(name => process.env[name]);
  for (const name of names) process.env[name] = proxy.url;
  try {
    t.is(await textOf(trustedOnly(), `${source.url}/`), 'hello');
  } finally {
    names.forEach((name, i) => {
      if (before[i] === undefined) delete process.env[name];
      else process.env[name] = before[i];
    });
  }
  t.is(source.requests.length, 1);
  t.deepEqual(proxy.requests, []);
});

const MESSAGE = {
  accountId: 'account',
  headers: { 'content-type': 'application/json' },
  body: Buffer.from('{}'),
};

function postOf(resolveHost: ResolveHost, options: { http?: boolean } & Partial<PostLimits> = {}) {
  const { http = true, ...limits } = options;
  const policy = {
    fetchPorts: [],
    allowPrivateAddresses: false,
    allowedNetworks: ['127.0.0.0/8'],
    allowHttpCallbacks: http,
  };
  const guard = new OutgoingGuard({ policy, resolveHost });
  return new GuardedPost(guard, policy, { totalMs: 20_000, ...limits });
}

const here: ResolveHost = async () => ['127.0.0.1'];

function fails(failure: PostFailure, code?: string) {
  return (error: unknown) => {
    assert.ok(error instanceof PostFailedError, String(error));
    assert.equal(error.failure, failure);
    if (code !== undefined) assert.equal(error.code, code);
    assert.ok(!error.message.includes('example'));
    return true;
  };
}

test('a post › goes to the checked address with the name it was given', async t => {
  await using source = await openSource((_request, response) => response.writeHead(202).end());
  const answer = await postOf(here).post(
    `http://hooks.example.com:${source.port}/a?b`,
    MESSAGE,
    NEVER,
  );
  t.deepEqual(answer, { status: 202, retryAfter: undefined });
  t.deepEqual(source.requests, [`hooks.example.com:${source.port} /a?b`]);
});

test('a post › says how it failed, and nothing of where', async t => {
  const never: ResolveHost = () => Promise.withResolvers<string[]>().promise;
  const cases: [PostFailure, ResolveHost, string][] = [
    ['unresolved', async () => [], 'http://a.example.com/'],
    ['unreachable', () => Promise.reject(new Error('SERVFAIL')), 'http://a.example.com/'],
    ['timeout', never, 'http://a.example.com/'],
    ['forbidden', async () => ['127.0.0.1', '10.0.0.1'], 'http://a.example.com/'],
    ['forbidden', here, 'http://user@a.example.com/'],
    ['forbidden', here, 'ftp://a.example.com/'],
    ['connection_refused', here, 'http://a.example.com:1/'],
  ];
  for (const [failure, resolveHost, url] of cases) {
    const totalMs = failure === 'timeout' ? 100 : 20_000;
    const sent = postOf(resolveHost, { totalMs }).post(url, MESSAGE, NEVER);
    await rejectsWith(t, sent, fails(failure));
  }
  const noHttp = postOf(here, { http: false });
  await rejectsWith(t, noHttp.post('http://a.example.com/', MESSAGE, NEVER), fails('forbidden'));
});

function repeating(text: string, everyMs: number) {
  return (socket: TcpSocket) => {
    const timer = setInterval(() => socket.write(text), everyMs);
    socket.once('close', () => clearInterval(timer));
  };
}

const UNANSWERED: readonly (readonly [string, PostFailure, (socket: TcpSocket) => void])[] = [
  ['hangs', 'timeout', () => undefined],
  ['hangs in its headers', 'timeout', socket => void socket.write('HTTP/1.1 200 OK\r\nx:')],
  ['drips its headers', 'unreachable', repeating('H', 20)],
  ['sends headers without end', 'unreachable', repeating(`x: ${'y'.repeat(8000)}\r\n`, 1)],
  ['says "continue" for ever', 'timeout', repeating('HTTP/1.1 102 Wait\r\n\r\n', 5)],
  ['speaks no HTTP', 'unreachable', socket => void socket.end('+OK nothing here\r\n')],
];
for (const [what, failure, serve] of UNANSWERED) {
  test(`a post › is over in time where its receiver ${what}`, async t => {
    await using source = await openRawSource(socket => {
      if (what.includes('without end')) socket.write('HTTP/1.1 200 OK\r\n');
      serve(socket);
    });
    const totalMs = failure === 'timeout' ? 200 : 20_000;
    const sent = postOf(here, { totalMs }).post(`${source.url}/`, MESSAGE, NEVER);
    await rejectsWith(t, sent, fails(failure));
  });
}

const ANSWERED: readonly (readonly [string, string, (socket: TcpSocket) => void])[] = [
  ['drips its body', 'x: y', repeating('z', 20)],
  ['answers without end', 'x: y', repeating('z'.repeat(65_536), 1)],
  ['cuts its own answer off', 'content-length: 1000', socket => socket.resetAndDestroy()],
  ['sends its answer packed', 'content-encoding: gzip', socket => void socket.end('no gzip')],
];
for (const [what, header, serve] of ANSWERED) {
  test(`a post › is answered by a receiver that says 200 and ${what}`, async t => {
    await using source = await openRawSource(socket => {
      socket.write(`HTTP/1.1 200 OK\r\n${header}\r\n\r\nhalf`);
      setTimeout(() => serve(socket), 20);
    });
    const sent = postOf(here, { replyMs: 100 }).post(`${source.url}/`, MESSAGE, NEVER);
    t.is((await sent).status, 200);
  });
}

test('a post › rejects with the reason of the signal', async t => {
  await using source = await openRawSource(() => undefined);
  const off = new AbortController();
  const sent = postOf(here).post(`${source.url}/`, MESSAGE, off.signal);
  off.abort(new Error('told to'));
  await t.throwsAsync(sent, { message: /told to/ });
});

const openssl = spawnSync('openssl', ['version']).status === 0;
if (!openssl) console.error('NOT TESTED: certificates of receivers, there is no openssl here');

let pem: { key: Buffer; cert: Buffer };
const trustedCertificates = getCACertificates();

function makeCertificate(): void {
  const file = (name: string) => path.join(directory, name);
  execFileSync(
    'openssl',
    [
      ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'],
      ...['-subj', '/CN=test', '-addext', 'subjectAltName=DNS:hooks.example.com', '-days', '2'],
      ...['-keyout', file('key.pem'), '-out', file('cert.pem')],
    ],
    { stdio: 'ignore' },
  );
  pem = { key: readFileSync(file('key.pem')), cert: readFileSync(file('cert.pem')) };
}

if (openssl) test.before(makeCertificate);

async function serving(run: (port: number, served: () => number) => Promise<void>) {
  let served = 0;
  const server = createServer(pem, (_request, response) => {
    served += 1;
    response.writeHead(204).end();
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  try {
    await run((server.address() as AddressInfo).port, () => served);
  } finally {
    await new Promise(resolve => {
      server.close(resolve);
      server.closeAllConnections();
    });
    setDefaultCACertificates(trustedCertificates);
  }
}

const send = (host: string, port: number) =>
  postOf(here, { http: false }).post(`https://${host}:${port}/`, MESSAGE, NEVER);

test.skipIf(!openssl)(
  'over TLS › sends nothing to a receiver whose certificate is not trustedCertificates',
  async t => {
    await serving(async (port, served) => {
      await rejectsWith(
        t,
        send('hooks.example.com', port),
        fails('tls', 'DEPTH_ZERO_SELF_SIGNED_CERT'),
      );
      const fetched = textOf(trustedFetch(here), `https://hooks.example.com:${port}/`);
      await rejectsWith(t, fetched, { name: 'FetchFailedError', retryable: false });
      await t.throwsAsync(fetched, { message: /certificate/ });
      t.is(served(), 0);
    });
  },
);

test.skipIf(!openssl)(
  'over TLS › a certificate must be for the name in the URL, not for the address',
  async t => {
    await serving(async (port, served) => {
      setDefaultCACertificates([...trustedCertificates, pem.cert.toString()]);
      t.is((await send('hooks.example.com', port)).status, 204);
      for (const other of ['other.example.com', '127.0.0.1']) {
        await rejectsWith(t, send(other, port), fails('tls', 'ERR_TLS_CERT_ALTNAME_INVALID'));
      }
      t.is(served(), 1);
    });
  },
);
