import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import type { ModelManifest } from '@matting/serving/models/manifest.ts';
import type { ModelErrorKind } from '@matting/serving/models/model-error.ts';
import {
  requireWeights,
  weightsDirectory,
  weightsPath,
} from '@matting/serving/prepared/weights-cache.ts';
import { isModelError } from '@matting/serving/test/is-model-error.ts';
import { at } from '@matting/test-support/at.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava, { type ExecutionContext } from 'ava';
import sinon from 'sinon';
import {
  type FakeRegistry,
  makeTinyModel,
  openFakeRegistry,
  type TinyModel,
} from '../test/fake-registry.ts';
import { type FetchProgress, fetchWeights } from './fetch.ts';
import { loadNpmConfig } from './npm-config.ts';

const test = ava.serial;

const HOUR_MS = 3_600_000;

const ROOM = await temporaryFolder({ teardown: test.after.always });

let model: TinyModel;
let registry: FakeRegistry;
let cacheDir: string;

test.before(async () => {
  model = await makeTinyModel();
});
test.beforeEach(async () => {
  cacheDir = await mkdtemp(join(ROOM, 'cache-'));
  registry = await openFakeRegistry(model.tarball);
});
test.afterEach.always(() => registry.close());

function fetchTiny(
  manifest: ModelManifest = model.manifest,
  more: { replaceAltered?: boolean; signal?: AbortSignal } = {},
  onProgress?: (progress: FetchProgress) => void,
) {
  return fetchWeights(manifest, {
    cacheDir,
    npmConfig: registry.options,
    retryWaitMs: 1,
    ...(onProgress && { onProgress }),
    ...more,
  });
}

function pathOf(manifest: ModelManifest = model.manifest): string {
  return weightsPath(cacheDir, manifest, at(manifest.files, 0));
}

/** And leaves no file. */
async function refused(
  t: ExecutionContext,
  more: Partial<ModelManifest>,
  message: RegExp,
  kind: ModelErrorKind = 'fetch',
) {
  await rejectsWith(t, fetchTiny({ ...model.manifest, ...more }), isModelError(kind, message));
  await requireNothingKept();
}

async function requireNothingKept(): Promise<void> {
  assert.deepEqual(await readdir(weightsDirectory(cacheDir, model.manifest)), []);
}

test('a registry that cannot be reached gives one line, and no file is left', async t => {
  const npmConfig = async () => ({ registry: 'http://127.0.0.1:9/', 'fetch-retries': '0' });
  const fetched = fetchWeights(model.manifest, { cacheDir, npmConfig });
  const expected = /@tiny\/weights@1\.2\.3 from 127\.0\.0\.1:9: the connection was refused/;
  await rejectsWith(t, fetched, isModelError('fetch', expected));
  await requireNothingKept();
});

test('a registry that lacks the package or version, wants a login, or is offline gives one line', async t => {
  const { source } = model.manifest;
  await refused(t, { source: { ...source, package: '@tiny/other' } }, /does not know this package/);
  await refused(t, { source: { ...source, version: '9.9.9' } }, /does not have this version/);
  registry.token = 'secret-token';
  await refused(t, {}, /wants a login/);
  const requestsBefore = registry.requests.length;
  const npmConfig = async () => ({ ...(await registry.options()), offline: 'true' });
  const offline = fetchWeights(model.manifest, { cacheDir, npmConfig });
  await rejectsWith(t, offline, isModelError('fetch', /says offline/));
  t.is(registry.requests.length, requestsBefore);
});

test('a tarball that is not the pinned one, whole, is refused on every attempt', async t => {
  const { source } = model.manifest;
  registry.answers.push('altered', 'altered', 'altered');
  await refused(t, {}, /not the pinned package|damaged/);
  registry.answers.splice(0, 3, 'truncated', 'truncated', 'truncated');
  await refused(t, {}, /cannot fetch|not the pinned package/);
  registry.answers.length = 0;
  const integrity = `sha512-${createHash('sha512').update('other').digest('base64')}`;
  await refused(t, { source: { ...source, integrity } }, /not the pinned package/);
  await refused(t, { source: { ...source, bytes: 1000 } }, /longer than 1000 bytes/);
});

test('a part of another size, of other bytes, or missing is refused', async t => {
  const file = at(model.manifest.files, 0);
  const first = at(file.parts, 0);
  const withPart = (part: Partial<typeof first>) => ({
    files: [{ ...file, parts: file.parts.with(0, { ...first, ...part }) }],
  });
  await refused(t, withPart({ bytes: first.bytes + 1 }), /c\.bin has \d+ bytes, not \d+/);
  await refused(t, withPart({ sha256: '0'.repeat(64) }), /the sha256 of dist\/c\.bin is/);
  await refused(t, withPart({ path: 'dist/d.bin' }), /holds no dist\/d\.bin/);
});

test('parts joined in the wrong order are refused', async t => {
  const file = at(model.manifest.files, 0);
  const files = [{ ...file, parts: file.parts.toReversed() }];
  await refused(t, { files }, /wrong order/, 'manifest');
});

test('the weights are stored whole and in order, and nothing else of the package is', async t => {
  const seen: FetchProgress[] = [];
  const result = await fetchTiny(undefined, {}, progress => seen.push(progress));
  t.deepEqual(result, { fetched: ['tiny.onnx'], kept: [] });
  t.true(model.weights.equals(await readFile(pathOf())));
  const names = await readdir(weightsDirectory(cacheDir, model.manifest));
  t.deepEqual(names, ['tiny.onnx', 'tiny.onnx.checked.json']);
  t.true(seen.length > 1);
  t.is(seen.at(-1)?.receivedBytes, model.tarball.length);
  t.true(seen.every(({ totalBytes }) => totalBytes === model.tarball.length));
  t.true(seen.every((step, i) => i === 0 || step.receivedBytes > at(seen, i - 1).receivedBytes));
});

test('a connection that breaks in the middle is retried within the same fetch', async t => {
  registry.answers.push('broken');
  await fetchTiny();
  t.true(model.weights.equals(await readFile(pathOf())));
  t.deepEqual(registry.requests.filter(path => path === '/tarball.tgz').length, 2);
});

test('a registry that falls silent is given up, and the next fetch succeeds', async t => {
  registry.answers.push('stalled', 'stalled', 'stalled');
  const impatient = async () => ({ ...(await registry.options()), 'fetch-timeout': '100' });
  await rejectsWith(
    t,
    fetchWeights(model.manifest, { cacheDir, npmConfig: impatient, retryWaitMs: 1 }),
    isModelError('fetch', /fell silent|broke/),
  );
  await requireNothingKept();
  registry.answers.length = 0;
  t.deepEqual((await fetchTiny()).fetched, ['tiny.onnx']);
});

test('an interrupted fetch leaves no file, and the next one starts again', async t => {
  const ending = new AbortController();
  registry.answers.push('stalled');
  const interrupted = fetchTiny(undefined, { signal: ending.signal }, () => ending.abort());
  await t.throwsAsync(interrupted, { name: 'AbortError' });
  await requireNothingKept();
  t.deepEqual((await fetchTiny()).fetched, ['tiny.onnx']);
  t.true(model.weights.equals(await readFile(pathOf())));
});

// Machines that share a cache may have different clocks.
for (const shiftMs of [0, HOUR_MS, -HOUR_MS]) {
  test(`files of a killed fetch are removed, those of a running one are not, by a clock off by ${shiftMs} ms`, async t => {
    const directory = weightsDirectory(cacheDir, model.manifest);
    await mkdir(directory, { recursive: true });
    const [stale, living] = ['.tiny.onnx.1.aa.tmp', '.tiny.onnx.2.bb.tmp'];
    await writeFile(join(directory, stale), 'half');
    await writeFile(join(directory, living), 'half');
    const halfAnHourAgo = new Date(Date.now() - HOUR_MS / 2);
    await utimes(join(directory, stale), halfAnHourAgo, halfAnHourAgo);
    const clock = sinon.useFakeTimers({ toFake: ['Date'], now: Date.now() + shiftMs });
    t.teardown(() => clock.restore());
    await fetchTiny();
    const names = await readdir(directory);
    t.deepEqual([names.includes(stale), names.includes(living)], [false, true]);
  });
}

test('checked files are kept, without a request to the registry', async t => {
  await fetchTiny();
  registry.requests.length = 0;
  const neverAsked = () => Promise.reject(new Error('the registry was used'));
  const options = { cacheDir, npmConfig: neverAsked };
  const kept = { fetched: [], kept: ['tiny.onnx'] };
  t.deepEqual(await fetchWeights(model.manifest, options), kept);
  // A copied cache has no matching record: it is hashed again, still without the registry.
  await rm(`${pathOf()}.checked.json`);
  t.deepEqual(await fetchWeights(model.manifest, options), kept);
  t.deepEqual(registry.requests, []);
});

test('an altered file is refused, and replaced only on request', async t => {
  await fetchTiny();
  const altered = Buffer.from(model.weights);
  altered.writeUInt8(altered.readUInt8(100) ^ 1, 100);
  const { atime, mtime } = await stat(pathOf());
  await writeFile(pathOf(), altered);
  // An altering program may restore size and modification time.
  await utimes(pathOf(), atime, mtime);
  await rejectsWith(t, fetchTiny(), isModelError('altered', /damaged.*not loaded.*sha256/));
  await rejectsWith(
    t,
    requireWeights({ cacheDir }, model.manifest),
    isModelError('altered', /models fetch tiny/),
  );
  t.true(altered.equals(await readFile(pathOf())), 'kept for the operator');
  await truncate(pathOf(), 1000);
  await rejectsWith(
    t,
    requireWeights({ cacheDir }, model.manifest),
    isModelError('altered', /it has 1000 bytes, not \d+/),
  );
  const replaced = await fetchTiny(undefined, { replaceAltered: true });
  t.deepEqual(replaced.fetched, ['tiny.onnx']);
  t.true(model.weights.equals(await readFile(pathOf())));
});

test('weights that were brought are used where they lie, and nothing is written there', async t => {
  await fetchTiny();
  const weightsDir = join(await temporaryFolder(t), 'brought');
  const directory = weightsDirectory(weightsDir, model.manifest);
  const brought = weightsPath(weightsDir, model.manifest, at(model.manifest.files, 0));
  await mkdir(directory, { recursive: true });
  await rename(pathOf(), brought);
  const options = { cacheDir, weightsDir, npmConfig: registry.options };
  const requests = registry.requests.length;
  t.deepEqual((await fetchWeights(model.manifest, options)).kept, ['tiny.onnx']);
  t.is(registry.requests.length, requests);
  const used = async () => [...(await requireWeights(options, model.manifest)).values()];
  t.deepEqual(await used(), [brought]);
  t.deepEqual(await readdir(directory), ['tiny.onnx']);
  await truncate(brought, 1000);
  await rejectsWith(t, used(), isModelError('altered', /\/brought\/.*it has 1000 bytes/));
  await fetchWeights(model.manifest, { ...options, replaceAltered: true });
  t.deepEqual(await used(), [pathOf()]);
});

test('two fetches at once on one directory both succeed', async t => {
  const results = await Promise.all([fetchTiny(), fetchTiny()]);
  for (const { fetched } of results) t.deepEqual(fetched, ['tiny.onnx']);
  t.true(model.weights.equals(await readFile(pathOf())));
  const names = await readdir(weightsDirectory(cacheDir, model.manifest));
  t.deepEqual(names, ['tiny.onnx', 'tiny.onnx.checked.json']);
});

test('a cache directory that cannot be gives one line', async t => {
  await writeFile(join(cacheDir, 'file'), '');
  const { options: npmConfig } = registry;
  for (const [directory, expected] of [
    [join(cacheDir, 'file'), /not a directory/],
    ['/proc/model-cache', /cannot write \/proc\/model-cache/],
  ] as const) {
    const work = fetchWeights(model.manifest, { cacheDir: directory, npmConfig });
    await rejectsWith(t, work, isModelError('disk', expected));
  }
});

let home: string;
let project: string;

test.beforeEach(async () => {
  home = await mkdtemp(join(ROOM, 'home-'));
  project = join(home, 'project');
  await mkdir(project);
  await writeFile(join(project, 'package.json'), '{}');
});

/** Ignores this machine's npm and its configuration. */
async function load(env: Record<string, string> = {}) {
  const given = { HOME: home, PATH: '', npm_config_globalconfig: join(home, 'none'), ...env };
  const before = { ...given };
  const options = await loadNpmConfig({ env: given, cwd: project });
  assert.deepEqual(given, before, 'the environment handed in is not written to');
  return options;
}

test('a configuration that npm itself refuses gives one line', async t => {
  await writeFile(join(home, '.npmrc'), '_authToken=unscoped\n');
  await t.throwsAsync(load(), { name: 'ModelError', message: /^the npm configuration cannot/ });
});

test('the project overrides the user, the environment both', async t => {
  await writeFile(
    join(home, '.npmrc'),
    'registry=http://user.example/\n//user.example/:_authToken=t\n',
  );
  t.is((await load()).registry, 'http://user.example/');
  t.is((await load())['//user.example/:_authToken'], 't');
  await writeFile(join(project, '.npmrc'), 'registry=http://project.example/\n');
  t.is((await load()).registry, 'http://project.example/');
  const env = { npm_config_registry: 'http://env.example/', npm_config_https_proxy: 'http://p:1/' };
  const options = await load(env);
  t.is(options.registry, 'http://env.example/');
  t.is(options['https-proxy'], 'http://p:1/');
});

test('the global configuration is the one of the npm on the PATH', async t => {
  const bin = join(home, 'bin');
  const lib = join(home, 'lib/node_modules/npm/bin');
  const etc = join(home, 'etc');
  for (const directory of [bin, lib, etc]) await mkdir(directory, { recursive: true });
  await writeFile(join(lib, 'npm-cli.js'), '');
  await chmod(join(lib, 'npm-cli.js'), 0o755);
  await symlink(join(lib, 'npm-cli.js'), join(bin, 'npm'));
  await writeFile(join(etc, 'npmrc'), 'registry=http://global.example/\n');
  const env = { HOME: home, PATH: `${join(home, 'empty')}:${bin}` };
  t.is((await loadNpmConfig({ env, cwd: project })).registry, 'http://global.example/');
});
