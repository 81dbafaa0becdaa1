/** The files of deploy/proxy in front of control planes of this process. */
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { connect, type SecureVersion } from 'node:tls';
import ava, { type ExecutionContext } from 'ava';
import { type LoopbackSource, openSource } from '../../control-plane/http/test/loopback-source.ts';
import { findFreePorts } from '../../program/ports/free-ports.ts';
import { TestAuthority } from '../support/certificates.ts';
import { findProgram, killChild, spawnBound } from '../support/foreign-program.ts';
import { until } from '../support/processes.ts';
import { isNotTested } from '../support/skip.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const MIB = 1024 * 1024;
const read = (name: string) =>
  readFileSync(path.resolve(import.meta.dirname, '../../deploy/proxy', name), 'utf8');

/** Arguments for the shipped file, with this address and without TLS. */
const PROXIES = {
  nginx: (folder: string, port: number, upstreams: readonly string[]) => {
    const own = read('nginx.conf')
      .replace('listen 443 ssl http2', `listen 127.0.0.1:${port}`)
      .replace('listen 80;', `listen unix:${folder}/plain;`)
      .replaceAll(/^ *ssl_.*\n/gm, '');
    return nginxWith(folder, withUpstreams(own, upstreams));
  },
  caddy: (folder: string, port: number, upstreams: readonly string[]) => {
    const own = read('Caddyfile')
      .replace(/\{\$SITE:[^}]+\}/, `http://127.0.0.1:${port}`)
      .replace(/\{\$CONTROL_PLANES:[^}]+\}/, upstreams.join(' '));
    const main = `{\n\tadmin off\n}\n${own}`;
    writeFileSync(path.join(folder, 'Caddyfile'), main);
    return ['run', '--config', path.join(folder, 'Caddyfile'), '--adapter', 'caddyfile'];
  },
} as const;

function nginxWith(folder: string, own: string): string[] {
  const places = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map(name => `${name}_temp_path ${folder}/${name};`)
    .join(' ');
  const http = `http { access_log off; ${places}\n${own}\n}`;
  const main = `daemon off; master_process off; pid ${folder}/pid; error_log stderr; events {}\n${http}\n`;
  writeFileSync(path.join(folder, 'nginx.conf'), main);
  return ['-e', 'stderr', '-p', folder, '-c', path.join(folder, 'nginx.conf')];
}

function withUpstreams(file: string, [first = '', second = '']: readonly string[]): string {
  return file.replace('10.0.0.11:8080', first).replace('10.0.0.12:8080', second);
}

const MATTING = '/v1/matting';
const posts = (source: LoopbackSource) => source.requests.filter(line => line.endsWith(MATTING));

/** @param first replica; the second answers with the headers it got */
async function openProxy(t: ExecutionContext, kind: keyof typeof PROXIES, first: number) {
  let bytes = 0;
  const upstream = await openSource(async (incoming, response) => {
    for await (const piece of incoming) bytes += (piece as Buffer).length;
    response.end(JSON.stringify(incoming.headers));
  });
  const [port = 0] = await findFreePorts(1);
  const folder = await temporaryFolder(t);
  const args = PROXIES[kind](folder, port, [`127.0.0.1:${first}`, `127.0.0.1:${upstream.port}`]);
  const env = { ...process.env, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder };
  const child = spawnBound(findProgram(kind) ?? kind, args, env);
  let said = '';
  child.stderr?.on('data', (piece: Buffer) => {
    said += piece;
  });
  t.teardown(async () => {
    await killChild(child);
    await upstream[Symbol.asyncDispose]();
  });
  const url = `http://127.0.0.1:${port}`;
  await until(async () => (await fetch(url).catch(() => undefined))?.ok === true, {
    timeoutMs: 30_000,
    what: `${kind} answers`,
    detail: () => said,
  });
  return { url, upstream, bytes: () => bytes };
}

for (const kind of ['nginx', 'caddy'] as const) {
  const missing = findProgram(kind) === undefined ? `no ${kind} here: install ${kind}` : false;
  const test = ava.serial.skipIf(isNotTested(missing));

  test(`${kind} passes on a picture while it arrives, as large as one may be`, async t => {
    const [gone = 0] = await findFreePorts(1);
    const { url, upstream, bytes } = await openProxy(t, kind, gone);
    const headers = { 'content-length': 72 * MIB, 'x-forwarded-for': '203.0.113.9' };
    const sent = request(`${url}${MATTING}`, { method: 'POST', headers });
    sent.write(Buffer.alloc(MIB));
    const arrives = () => posts(upstream).length === 1;
    await until(arrives, { timeoutMs: 30_000, what: 'the request arrives' });
    for (let mib = 1; mib < 72; mib += 1) {
      if (!sent.write(Buffer.alloc(MIB))) await once(sent, 'drain');
    }
    sent.end();
    const [answer] = await once(sent, 'response');
    t.is(answer.statusCode, 200);
    t.truthy(answer.headers['strict-transport-security']);
    t.is(bytes(), 72 * MIB);
    t.is(JSON.parse(await text(answer))['x-forwarded-for'], '127.0.0.1');
  });

  test(`${kind} goes on to another replica where one refuses, not where one broke off`, async t => {
    const broken = await openSource((incoming, response) => {
      if (incoming.url === MATTING) incoming.once('data', () => response.destroy());
      else response.end();
    });
    t.teardown(() => broken[Symbol.asyncDispose]());
    const { url, upstream } = await openProxy(t, kind, broken.port);
    const post = () => fetch(`${url}${MATTING}`, { method: 'POST', body: 'a picture' });
    let sent = 0;
    let failed = 0;
    while (posts(broken).length === 0 && sent < 20) {
      sent += 1;
      if ((await post()).status === 502) failed += 1;
    }
    t.deepEqual([failed, posts(broken).length], [1, 1]);
    t.is(posts(upstream).length, sent - 1);
    await broken[Symbol.asyncDispose]();
    for (let i = 0; i < 6; i += 1) t.is((await post()).status, 200);
  });
}

const noNginx = findProgram('nginx') === undefined ? 'no nginx here: install nginx' : false;

ava.serial.skipIf(isNotTested(noNginx))(
  'nginx, with the ports and files of here alone, leads to TLS and speaks HTTP/2 by it',
  async t => {
    const upstream = await openSource((_, response) => void response.end('from a replica'));
    const folder = await temporaryFolder(t);
    const [plain = 0, secure = 0] = await findFreePorts(2);
    const authority = new TestAuthority();
    const { cert, key } = authority.issue('proxy', ['matting.example']);
    const files = { 'matting.crt': cert, 'matting.key': key };
    for (const [name, pem] of Object.entries(files)) writeFileSync(path.join(folder, name), pem);
    const own = read('nginx.conf')
      .replace('listen 443 ssl http2', `listen 127.0.0.1:${secure} ssl http2`)
      .replace('listen 80;', `listen 127.0.0.1:${plain};`)
      .replace('/etc/ssl/matting.crt', path.join(folder, 'matting.crt'))
      .replace('/etc/ssl/private/matting.key', path.join(folder, 'matting.key'));
    const at = `127.0.0.1:${upstream.port}`;
    const child = spawnBound(
      findProgram('nginx')!,
      nginxWith(folder, withUpstreams(own, [at, at])),
    );
    let said = '';
    child.stderr?.on('data', (piece: Buffer) => {
      said += piece;
    });
    t.teardown(async () => {
      await killChild(child);
      await upstream[Symbol.asyncDispose]();
    });
    const ask = () => fetch(`http://127.0.0.1:${plain}/docs?a=b`, { redirect: 'manual' });
    const answers = async () => (await ask().catch(() => undefined)) !== undefined;
    await until(answers, { timeoutMs: 30_000, what: 'nginx answers', detail: () => said });
    const led = await ask();
    t.deepEqual(
      [led.status, led.headers.get('location')],
      [308, 'https://matting.example/docs?a=b'],
    );
    const options = { ca: authority.cert, servername: 'matting.example' };
    const session = connectHttp2(`https://127.0.0.1:${secure}`, options);
    const stream = session.request({ ':path': '/' });
    t.is(await text(stream), 'from a replica');
    session.destroy();
    const protocolOf = async (maxVersion: SecureVersion) => {
      // OpenSSL's client offers older versions only below its default level.
      const older = { minVersion: 'TLSv1' as const, maxVersion, ciphers: 'DEFAULT@SECLEVEL=0' };
      const socket = connect({ ...options, ...older, port: secure, host: '127.0.0.1' });
      const met = once(socket, 'secureConnect').then(
        () => socket.getProtocol(),
        () => 'refused',
      );
      return met.finally(() => socket.destroy());
    };
    t.deepEqual(await Promise.all((['TLSv1.1', 'TLSv1.2', 'TLSv1.3'] as const).map(protocolOf)), [
      'refused',
      'TLSv1.2',
      'TLSv1.3',
    ]);
    // nginx 1.25.1 and later warn of the form that Debian 12 needs.
    const warnings = said.match(/\[(?:warn|emerg)\].*/g) ?? [];
    t.deepEqual(
      warnings.filter(line => !/"listen \.\.\. http2" directive is deprecated/.test(line)),
      [],
    );
  },
);
