import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { writeFileWhole } from '@matting/serving/models/cache-files.ts';
import type { ModelManifest } from '@matting/serving/models/manifest.ts';
import { isModelError } from '@matting/serving/test/is-model-error.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith, throwsWith } from '@matting/test-support/throws.ts';
import test, { type ExecutionContext } from 'ava';
import { makeTinyModel, sha256 } from '../test/fake-registry.ts';
import { type ModelHost, openModelHost } from '../test/model-host.ts';
import { graphBytes, tinyGraph } from '../test/tiny-graph.ts';
import { type AddressAccess, AddressClient, requireAddress } from './address-client.ts';
import { type Downloaded, downloadFromAny } from './download.ts';
import { fetchWeights } from './fetch.ts';

const BYTES = Buffer.concat([graphBytes(tinyGraph({ side: 64 })), Buffer.alloc(300_000, 7)]);
type Wanted = Parameters<typeof downloadFromAny>[2];

const ANY: Wanted = { bytesMax: 1_000_000, isGraph: true };
const NO_WAIT = { attemptWaitMs: 0, attemptsMax: 3 };

interface Fixture {
  readonly host: ModelHost;
  readonly url: string;
  readonly folder: string;
}

async function open(t: ExecutionContext): Promise<Fixture> {
  const host = await openModelHost();
  t.teardown(host.close);
  host.files.set('/a.onnx', { bytes: BYTES });
  return { host, url: `${host.url}/a.onnx`, folder: await temporaryFolder(t) };
}

async function fetchTo(
  { folder }: Fixture,
  urls: readonly string[],
  wanted: Partial<Wanted> = {},
  access: Partial<AddressAccess> = {},
): Promise<Downloaded> {
  await using client = new AddressClient({ env: {}, limits: NO_WAIT, ...access });
  const context = { client, signal: AbortSignal.timeout(60_000) };
  let result: Downloaded | undefined;
  await writeFileWhole(join(folder, 'a.onnx'), async file => {
    result = await downloadFromAny(urls, file, { ...ANY, ...wanted }, context);
  });
  return result as Downloaded;
}

const refusesWith = async (
  t: ExecutionContext,
  fixture: Fixture,
  expected: RegExp,
  ...[wanted, access, urls = [fixture.url]]: [Partial<Wanted>?, Partial<AddressAccess>?, string[]?]
) => {
  await rejectsWith(t, fetchTo(fixture, urls, wanted, access), isModelError('fetch', expected));
  t.deepEqual(await readdir(fixture.folder), []);
};

test('an address must be https, or http on this machine', t => {
  for (const [text, expected] of [
    ['http://example.com/a', /only https/],
    ['http://127.0.0.1.example.com/a', /only https/],
    ['ftp://127.0.0.1/a', /only https/],
    ['file:///a', /only https/],
    ['https://me:secret@example.com/a', /^https:\/\/example\.com\/a: a login/],
    ['nonsense', /no address/],
  ] as const) {
    throwsWith(t, () => requireAddress(text), isModelError('settings', expected));
  }
  for (const text of ['https://example.com/a', 'http://localhost:1/a', 'http://[::1]/a']) {
    t.is(requireAddress(text).href, text);
  }
  const from = new URL('https://example.com/a');
  t.is(requireAddress('/b', from).href, 'https://example.com/b');
  throwsWith(t, () => requireAddress('http://127.0.0.1/b', from), /redirects to what is not https/);
});

test('a file that is no model is named by its first bytes, before the rest is downloaded', async t => {
  const fixture = await open(t);
  const padding = Buffer.alloc(200_000, 32);
  for (const [begin, expected] of [
    ['version https://git-lfs.github.com/spec/v1\noid sha256:1', /pointer of Git LFS/],
    ['<!DOCTYPE html><html>', /a web page/],
    ['{"error": "Access to model is restricted"}', /Access to model is restricted/],
    ['PK\u0003\u0004', /a zip archive/],
    ['\u001f\u008b', /gzip/],
    ['\u0080\u0002', /pickle/],
    ['\u0010\u0001\u0000\u0000\u0000\u0000\u0000\u0000{"a":1}', /safetensors/],
    ['\u0018\u0000\u0000\u0000ORTM', /ONNX Runtime's own format/],
  ] as const) {
    for (const more of [padding, Buffer.alloc(0)]) {
      const bytes = Buffer.concat([Buffer.from(begin, 'latin1'), more]);
      fixture.host.files.set('/a.onnx', { bytes });
      await refusesWith(t, fixture, expected);
    }
  }
  fixture.host.files.set('/a.onnx', { bytes: Buffer.alloc(0) });
  await refusesWith(t, fixture, /empty/);
});

test('a file that is missing, too large, without an end, too slow or another is refused', async t => {
  const fixture = await open(t);
  const { host } = fixture;
  await refusesWith(t, fixture, /it has no such file \(HTTP 404\)/, {}, {}, [`${host.url}/b.onnx`]);
  await refusesWith(t, fixture, /larger than 1000 bytes/, { bytesMax: 1000 });
  host.answers.push('endless');
  await refusesWith(t, fixture, /larger than 1000000 bytes/, { isGraph: false });
  await refusesWith(t, fixture, /it has \d+ bytes, not 1000/, { bytes: 1000 });
  await refusesWith(t, fixture, /its sha256 is [0-9a-f]{64}, not 0{64}/, {
    sha256: '0'.repeat(64),
  });
  host.answers.push('drip');
  const limits = { ...NO_WAIT, windowMs: 100, windowBytesMin: 1000 };
  await refusesWith(t, fixture, /it sends too slowly/, {}, { limits });
  host.answers.push(503, 503, 429);
  await refusesWith(t, fixture, /HTTP 429/);
  host.answers.push('cut', 'cut', 'cut');
  await refusesWith(t, fixture, /connection broke/);
  await host.close();
  await refusesWith(t, fixture, /connection was refused/);
});

test('a cut file continues where it broke, and begins again if it has changed since', async t => {
  const fixture = await open(t);
  const { host, url } = fixture;
  const before = { bytes: Buffer.from(BYTES).fill(9, 1000) };
  for (const [first, answers, ranges] of [
    [{ bytes: BYTES }, ['cut', 'cut'], [undefined, /^bytes=\d+-$/, /^bytes=\d+-$/]],
    [before, ['cut'], [undefined, /^bytes=\d+-$/]],
    // Nothing shows that it is still the same file.
    [{ bytes: BYTES, etag: '' }, ['cut'], [undefined, undefined]],
  ] as const) {
    host.requests.length = 0;
    host.files.set('/a.onnx', first);
    host.answers.push(...answers);
    host.onCut = () => host.files.set('/a.onnx', { ...first, bytes: BYTES });
    const { bytes } = await fetchTo(fixture, [url], { sha256: sha256(BYTES) });
    t.is(bytes, BYTES.length);
    t.true((await readFile(join(fixture.folder, 'a.onnx'))).equals(BYTES));
    t.is(host.requests.length, ranges.length);
    for (const [index, range] of ranges.entries()) {
      const sent = host.requests[index]?.headers.range;
      if (range === undefined) t.is(sent, undefined);
      else t.regex(sent ?? '', range);
    }
  }
});

test('a token goes to the first host alone, and a file that needs a login requests one', async t => {
  const fixture = await open(t);
  const other = await openModelHost();
  t.teardown(other.close);
  other.files.set('/cdn/1', { bytes: BYTES });
  fixture.host.files.set('/a.onnx', { bytes: BYTES, redirect: `${other.url}/cdn/1?signature=s` });
  fixture.host.token = 'secret';
  await refusesWith(t, fixture, /wants a login: .* --token-env \(HTTP 401\)/);
  const { origin } = new URL(fixture.url);
  const wrong = { token: { text: 'wrong', origin } };
  await refusesWith(t, fixture, /refuses the token of --token-env/, {}, wrong);
  t.is(other.requests.length, 0);
  const { sha256: sum } = await fetchTo(
    fixture,
    [fixture.url],
    {},
    {
      token: { text: 'secret', origin },
    },
  );
  t.is(sum, sha256(BYTES));
  t.is(other.requests[0]?.headers.authorization, undefined);
  t.is(fixture.host.requests.at(-1)?.headers.authorization, 'Bearer secret');
});

test('five redirects are followed and no sixth', async t => {
  const fixture = await open(t);
  const { host } = fixture;
  for (let at = 1; at <= 6; at += 1) {
    const redirect = at === 1 ? '/a.onnx' : `/${at - 1}`;
    host.files.set(`/${at}`, { bytes: BYTES, redirect });
  }
  t.is((await fetchTo(fixture, [`${host.url}/5`])).bytes, BYTES.length);
  const loops = { ...fixture, folder: await temporaryFolder(t) };
  await refusesWith(t, loops, /redirects more than 5 times/, {}, {}, [`${host.url}/6`]);
});

test('mirrors are tried in turn, also where the first gives another file', async t => {
  const fixture = await open(t);
  const { host, url } = fixture;
  host.files.set('/old', { bytes: Buffer.alloc(1000, 8) });
  const wanted = { sha256: sha256(BYTES), isGraph: false };
  const urls = [`${host.url}/none`, `${host.url}/old`, url];
  t.is((await fetchTo(fixture, urls, wanted)).url, url);
  const none = { ...fixture, folder: await temporaryFolder(t) };
  const both = /\/none: it has no such file .*; cannot fetch .*\/old: it is not the file/;
  await refusesWith(t, none, both, wanted, {}, urls.slice(0, 2));
});

test('an address of this machine is requested without the proxy', async t => {
  const fixture = await open(t);
  const env = { HTTP_PROXY: 'http://127.0.0.1:9', https_proxy: 'http://127.0.0.1:9' };
  t.is((await fetchTo(fixture, [fixture.url], {}, { env })).bytes, BYTES.length);
});

test('files that a manifest names by address are fetched again, with their external data', async t => {
  const { host, url, folder: cacheDir } = await open(t);
  const data = Buffer.alloc(1000, 3);
  host.files.set('/a.onnx.data', { bytes: data });
  const { manifest } = await makeTinyModel(0);
  const own = { file: 'a.onnx', precision: 'fp32', inputName: 'i', outputName: 'o' } as const;
  const added: ModelManifest = {
    ...manifest,
    source: { type: 'address', url: `${host.url}/gone.onnx`, mirrors: [url] },
    files: [
      { name: 'a.onnx', bytes: BYTES.length, sha256: sha256(BYTES) },
      { name: 'a.onnx.data', bytes: data.length, sha256: sha256(data) },
    ],
    graph: { ...own, inputWidth: 64, inputHeight: 64 },
  };
  const npmConfig = () => Promise.reject(new Error('no registry is needed'));
  const options = { cacheDir, npmConfig };
  t.deepEqual((await fetchWeights(added, options)).fetched, ['a.onnx', 'a.onnx.data']);
  host.files.clear();
  t.deepEqual((await fetchWeights(added, options)).kept, ['a.onnx', 'a.onnx.data']);
  const again = fetchWeights(added, { ...options, cacheDir: await temporaryFolder(t) });
  await rejectsWith(t, again, isModelError('fetch', /gone\.onnx: it has no such file/));
  const file: ModelManifest = { ...added, version: '2', source: { type: 'file' } };
  const lost = fetchWeights(file, options);
  await rejectsWith(t, lost, isModelError('fetch', /models add FILE --name tiny/));
});
