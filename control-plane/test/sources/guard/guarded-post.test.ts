/** What a notification's connection is like: TLS against the name, pinned, and left in time. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import {
  GuardedPost,
  PostFailedError,
  type PostFailure,
} from '../../../src/sources/guard/guarded-post.ts';
import { OutgoingGuard } from '../../../src/sources/guard/outgoing-guard.ts';
import type { ResolveHost } from '../../../src/sources/guard/resolve-host.ts';
import { openRawSource, openSource } from '../loopback-source.ts';

const NEVER = new AbortController().signal;
const MESSAGE = {
  accountId: 'account',
  headers: { 'content-type': 'application/json' },
  body: Buffer.from('{}'),
};

function postOf(resolveHost: ResolveHost, options: { http?: boolean; totalMs?: number } = {}) {
  const { http = true, totalMs = 20_000 } = options;
  const policy = {
    fetchPorts: [],
    allowPrivateAddresses: false,
    allowedNetworks: ['127.0.0.0/8'],
    allowHttpCallbacks: http,
  };
  const guard = new OutgoingGuard({ policy, resolveHost });
  return new GuardedPost(guard, policy, { totalMs });
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

describe('a post', () => {
  it('goes to the checked address with the name it was given', async () => {
    await using source = await openSource((_request, response) => response.writeHead(202).end());
    const answer = await postOf(here).post(
      `http://hooks.example.com:${source.port}/a?b`,
      MESSAGE,
      NEVER,
    );
    assert.deepEqual(answer, { status: 202, retryAfter: undefined });
    assert.deepEqual(source.requests, [`hooks.example.com:${source.port} /a?b`]);
  });

  it('says how it failed, and nothing of where', async () => {
    const never: ResolveHost = () => Promise.withResolvers<string[]>().promise;
    const cases: [PostFailure, ResolveHost, string][] = [
      ['unresolved', async () => [], 'http://a.example.com/'],
      ['unreachable', () => Promise.reject(new Error('SERVFAIL')), 'http://a.example.com/'],
      ['timeout', never, 'http://a.example.com/'],
      ['forbidden', async () => ['127.0.0.1', '10.0.0.1'], 'http://a.example.com/'],
      ['forbidden', here, 'http://user@a.example.com/'],
      ['forbidden', here, 'ftp://a.example.com/'],
      ['unreachable', here, 'http://a.example.com:1/'],
    ];
    for (const [failure, resolveHost, url] of cases) {
      const totalMs = failure === 'timeout' ? 100 : 20_000;
      const sent = postOf(resolveHost, { totalMs }).post(url, MESSAGE, NEVER);
      await assert.rejects(sent, fails(failure));
    }
    const noHttp = postOf(here, { http: false });
    await assert.rejects(noHttp.post('http://a.example.com/', MESSAGE, NEVER), fails('forbidden'));
  });

  it('is over in time, whatever the receiver is at', async () => {
    for (const serve of [
      () => undefined,
      (socket: import('node:net').Socket) => void socket.write('HTTP/1.1 200 OK\r\nx:'),
    ]) {
      await using source = await openRawSource(serve);
      const sent = postOf(here, { totalMs: 100 }).post(`${source.url}/`, MESSAGE, NEVER);
      await assert.rejects(sent, fails('timeout'));
    }
  });

  it('rejects with the reason of the signal', async () => {
    await using source = await openRawSource(() => undefined);
    const off = new AbortController();
    const sent = postOf(here).post(`${source.url}/`, MESSAGE, off.signal);
    off.abort(new Error('told to'));
    await assert.rejects(sent, /told to/);
  });
});

const openssl = spawnSync('openssl', ['version']).status === 0;
if (!openssl) console.error('NOT TESTED: certificates of receivers, there is no openssl here');

describe('over TLS', { skip: !openssl && 'no openssl here' }, () => {
  let directory: string;
  let pem: { key: Buffer; cert: Buffer };
  const trusted = getCACertificates();

  before(() => {
    directory = mkdtempSync(path.join(tmpdir(), 'guarded-post-'));
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
  });
  after(() => rmSync(directory, { recursive: true }));

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
      setDefaultCACertificates(trusted);
    }
  }

  const send = (host: string, port: number) =>
    postOf(here, { http: false }).post(`https://${host}:${port}/`, MESSAGE, NEVER);

  it('sends nothing to a receiver whose certificate is not trusted', async () => {
    await serving(async (port, served) => {
      await assert.rejects(
        send('hooks.example.com', port),
        fails('unreachable', 'DEPTH_ZERO_SELF_SIGNED_CERT'),
      );
      assert.equal(served(), 0);
    });
  });

  it('a certificate must be for the name in the URL, not for the address', async () => {
    await serving(async (port, served) => {
      setDefaultCACertificates([...trusted, pem.cert.toString()]);
      assert.equal((await send('hooks.example.com', port)).status, 204);
      for (const other of ['other.example.com', '127.0.0.1']) {
        await assert.rejects(
          send(other, port),
          fails('unreachable', 'ERR_TLS_CERT_ALTNAME_INVALID'),
        );
      }
      assert.equal(served(), 1);
    });
  });
});
