import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createPinnedConnector } from '../../../src/sources/guard/dial.ts';
import {
  FetchFailedError,
  type FetchLimits,
  GuardedFetch,
} from '../../../src/sources/guard/guarded-fetch.ts';
import { OutgoingGuard } from '../../../src/sources/guard/outgoing-guard.ts';
import { ForbiddenUrlError } from '../../../src/sources/guard/outgoing-url.ts';
import type { ResolveHost } from '../../../src/sources/guard/resolve-host.ts';
import {
  type LoopbackSource,
  openSource,
  type RecordingConnector,
  recordingConnector,
  scriptedResolver,
} from '../loopback-source.ts';

const PUBLIC = '93.184.215.14';
const OTHER_PUBLIC = '2606:4700:4700::1111';
const NEVER = new AbortController().signal;

interface Bench {
  readonly fetch: GuardedFetch;
  readonly connector: RecordingConnector;
}

/** A client that believes in public names: their connections are recorded and end on loopback. */
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
  return fetch.get(url, { accountId: 'account', signal }, async response => {
    const parts: Uint8Array[] = [];
    for await (const chunk of response.body) parts.push(chunk);
    return Buffer.concat(parts).toString();
  });
}

const serveHello = (): Promise<LoopbackSource> =>
  openSource((_request, response) => response.end('hello'));

const FORBIDDEN_ANSWERS = [
  ...['127.0.0.1', '0.0.0.0', '10.0.0.1', '172.16.9.9', '192.168.0.1', '169.254.169.254'],
  ...['100.64.0.1', '168.63.129.16', '224.0.0.1', '255.255.255.255', '::1', '::'],
  ...['::ffff:127.0.0.1', '::ffff:7f00:1', '::ffff:a9fe:a9fe', '64:ff9b::7f00:1', 'fe80::1'],
  ...['fe80::1%eth0', 'fd00:ec2::254', '2002:7f00:1::', '2001::1', 'ff02::1', 'nonsense', ''],
];

describe('addresses behind a name', () => {
  for (const answer of FORBIDDEN_ANSWERS) {
    it(`refuses ${answer || 'an empty one'}, alone and among public ones`, async () => {
      await using source = await serveHello();
      for (const answers of [[answer], [PUBLIC, answer], [answer, OTHER_PUBLIC]]) {
        const { fetch, connector } = benchOf(source.port, async () => answers);
        await assert.rejects(textOf(fetch, `http://a.example.com:${source.port}/`), error => {
          assert.ok(error instanceof ForbiddenUrlError);
          assert.equal(error.message, 'the host is not a public address');
          return true;
        });
        assert.deepEqual(connector.dialled, []);
        assert.deepEqual(source.requests, []);
      }
    });
  }

  it("refuses this machine's own public address", async () => {
    await using source = await serveHello();
    const bench = benchOf(source.port, async () => [PUBLIC], {}, [PUBLIC]);
    await assert.rejects(textOf(bench.fetch, 'http://a.example.com/'), ForbiddenUrlError);
    assert.deepEqual(bench.connector.dialled, []);
  });

  it('connects to the checked addresses and no others', async () => {
    await using source = await serveHello();
    const bench = benchOf(source.port, async () => [PUBLIC, OTHER_PUBLIC]);
    const url = `http://a.example.com:${source.port}/x?y=1#z`;
    assert.equal(await textOf(bench.fetch, url), 'hello');
    assert.deepEqual(bench.connector.dialled, [OTHER_PUBLIC, PUBLIC]);
    assert.deepEqual(source.requests, [`a.example.com:${source.port} /x?y=1`]);
  });

  it('tries a few of very many, all of them checked', async () => {
    await using source = await serveHello();
    const many = Array.from({ length: 50 }, (_, i) => `93.184.215.${i}`);
    const bench = benchOf(source.port, async () => many);
    await textOf(bench.fetch, `http://a.example.com:${source.port}/`);
    assert.deepEqual(bench.connector.dialled, many.slice(0, 4));
    const mixed = benchOf(source.port, async () => [...many, OTHER_PUBLIC]);
    await textOf(mixed.fetch, `http://a.example.com:${source.port}/`);
    assert.deepEqual(mixed.connector.dialled, [OTHER_PUBLIC, ...many.slice(0, 3)]);
    const poisoned = benchOf(source.port, async () => [...many, '127.0.0.1']);
    const refused = textOf(poisoned.fetch, `http://a.example.com:${source.port}/`);
    await assert.rejects(refused, ForbiddenUrlError);
    assert.deepEqual(poisoned.connector.dialled, []);
  });

  it('asks once a request, so that a second answer changes nothing', async () => {
    await using source = await serveHello();
    const resolver = scriptedResolver({ 'a.example.com': [[PUBLIC], ['127.0.0.1']] });
    const bench = benchOf(source.port, resolver.resolveHost);
    const url = `http://a.example.com:${source.port}/`;
    assert.equal(await textOf(bench.fetch, url), 'hello');
    assert.deepEqual(resolver.asked, ['a.example.com']);
    await assert.rejects(textOf(bench.fetch, url), ForbiddenUrlError);
    assert.deepEqual(bench.connector.dialled, [PUBLIC]);
  });

  it('checks again for a redirect to the same name', async () => {
    await using source = await openSource((_request, response) => {
      response.writeHead(302, { location: '/again' }).end();
    });
    const resolver = scriptedResolver({ 'a.example.com': [[PUBLIC], ['127.0.0.1']] });
    const bench = benchOf(source.port, resolver.resolveHost);
    const url = `http://a.example.com:${source.port}/`;
    await assert.rejects(textOf(bench.fetch, url), ForbiddenUrlError);
    assert.deepEqual(bench.connector.dialled, [PUBLIC]);
    assert.equal(source.requests.length, 1);
  });

  it('fails for good without an address, and for now while the DNS is silent', async () => {
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
      await assert.rejects(textOf(fetch, 'http://a.example.com/'), error => {
        assert.ok(error instanceof FetchFailedError);
        assert.equal(error.retryable, retryable);
        return true;
      });
    }
  });
});

describe('the text of a URL', () => {
  it('is checked before anything is resolved', async () => {
    const resolver = scriptedResolver({});
    const { fetch, connector } = benchOf(80, resolver.resolveHost);
    for (const url of [
      'http://127.0.0.1/',
      'http://[::ffff:7f00:1]/',
      'http://localhost/',
      'http://a.example.com:22/',
      'http://user@a.example.com/',
      'file:///etc/passwd',
      '',
    ]) {
      await assert.rejects(textOf(fetch, url), ForbiddenUrlError);
    }
    assert.deepEqual(resolver.asked, []);
    assert.deepEqual(connector.dialled, []);
  });
});

describe('redirects', () => {
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
    it(`${status} to a forbidden place is refused, without connecting there`, async () => {
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
        await assert.rejects(fetched, ForbiddenUrlError, location);
        assert.deepEqual(connector.dialled, [PUBLIC], location);
      }
    });
  }

  it('follows three, and not a fourth', async () => {
    await using source = await openSource((request, response) => {
      const left = Number(request.url?.slice(1));
      if (left === 0) response.end('arrived');
      else response.writeHead(302, { location: `./${left - 1}` }).end();
    });
    const { fetch } = benchOf(source.port, async () => [PUBLIC]);
    const url = `http://a.example.com:${source.port}`;
    assert.equal(await textOf(fetch, `${url}/3`), 'arrived');
    await assert.rejects(textOf(fetch, `${url}/4`), { name: 'FetchFailedError', retryable: false });
  });

  it('ends a loop', async () => {
    await using source = await openSource((request, response) => {
      response.writeHead(307, { location: request.url }).end();
    });
    const { fetch } = benchOf(source.port, async () => [PUBLIC]);
    const looped = textOf(fetch, `http://a.example.com:${source.port}/loop`);
    await assert.rejects(looped, { name: 'FetchFailedError', retryable: false });
    assert.equal(source.requests.length, 4);
  });

  it('does not go from https to http, and does go from http to https', async () => {
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
    assert.equal(await textOf(fetch, `http://${host}/up`), 'arrived');
    const before = connector.dialled.length;
    const down = textOf(fetch, `https://${host}/down`);
    await assert.rejects(down, { name: 'FetchFailedError', retryable: false });
    assert.equal(connector.dialled.length, before + 1);
  });

  it('carries no cookie, credential or referrer, and asks for no encoding', async () => {
    const seen: Record<string, unknown>[] = [];
    await using source = await openSource((request, response) => {
      seen.push(request.headers);
      if (request.url === '/next') response.end('arrived');
      else response.writeHead(302, { location: '/next', 'set-cookie': 'a=b' }).end();
    });
    const { fetch } = benchOf(source.port, async () => [PUBLIC]);
    await textOf(fetch, `http://a.example.com:${source.port}/`);
    assert.equal(seen.length, 2);
    for (const headers of seen) {
      const names = Object.keys(headers).sort();
      assert.deepEqual(names, ['accept', 'accept-encoding', 'connection', 'host', 'user-agent']);
      assert.equal(headers['accept-encoding'], 'identity');
    }
  });

  it('is none without Location or with another status', async () => {
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
      await assert.rejects(fetched, { name: 'FetchFailedError', retryable: false });
      assert.equal(source.requests.length, 1);
    }
  });
});

describe('the pinned connector', () => {
  it('does not resolve the name again', async () => {
    await using source = await serveHello();
    const fetch = trustedFetch(async () => ['127.0.0.1']);
    // No resolver knows this name: only the checked address can have been used.
    assert.equal(await textOf(fetch, `http://nowhere.invalid:${source.port}/`), 'hello');
  });

  it('tries the next address when one refuses', async () => {
    await using source = await serveHello();
    const fetch = trustedFetch(async () => ['127.0.0.2', '127.0.0.1']);
    assert.equal(await textOf(fetch, `http://nowhere.invalid:${source.port}/`), 'hello');
  });

  it('does not speak to a peer that was not checked', async () => {
    await using source = await serveHello();
    const { promise, resolve } = Promise.withResolvers<Error | null>();
    const connect = createPinnedConnector([PUBLIC], 1000);
    // An address as the host is connected to directly, without a look-up.
    const target = { protocol: 'http:', hostname: '127.0.0.1', port: String(source.port) };
    connect(target, (...[error]) => resolve(error));
    assert.match(String(await promise), /not checked/);
    assert.deepEqual(source.requests, []);
  });
});

describe('a trusted network', () => {
  const trusted = (): GuardedFetch => trustedFetch();

  it('reaches loopback by address and by name, on any port', async () => {
    await using source = await serveHello();
    assert.equal(await textOf(trusted(), `${source.url}/`), 'hello');
    assert.equal(await textOf(trusted(), `http://localhost:${source.port}/`), 'hello');
    assert.equal(await textOf(trusted(), `http://[::ffff:127.0.0.1]:${source.port}/`), 'hello');
  });

  it('ignores the proxies of the environment', async () => {
    await using source = await serveHello();
    await using proxy = await serveHello();
    const names = ['http_proxy', 'HTTP_PROXY', 'all_proxy', 'NODE_USE_ENV_PROXY'];
    const before = names.map(name => process.env[name]);
    for (const name of names) process.env[name] = proxy.url;
    try {
      assert.equal(await textOf(trusted(), `${source.url}/`), 'hello');
    } finally {
      names.forEach((name, i) => {
        if (before[i] === undefined) delete process.env[name];
        else process.env[name] = before[i];
      });
    }
    assert.equal(source.requests.length, 1);
    assert.deepEqual(proxy.requests, []);
  });
});
