import assert from 'node:assert/strict';
import { chmod, mkdir, mkdtemp, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import npmDefinitions from '@npmcli/config/lib/definitions/index.js';
import ava from 'ava';
import { temporaryFolder } from '../../../../test/support/temporary-folder.ts';
import { fetchWeights } from '../../../src/models/weights/fetch.ts';
import { loadRegistryOptions } from '../../../src/models/weights/registry-options.ts';
import { makeTinyModel, openFakeRegistry } from './fake-registry.ts';

const test = ava.serial;

/** The folders of all tests. */
const ROOM = await temporaryFolder({ teardown: test.after.always });

let home: string;
let project: string;

test.beforeEach(async () => {
  home = await mkdtemp(join(ROOM, 'home-'));
  project = join(home, 'project');
  await mkdir(project);
  await writeFile(join(project, 'package.json'), '{}');
});

/** Uses only what the test gives: neither this machine's npm nor its configuration. */
async function load(env: Record<string, string> = {}) {
  const given = { HOME: home, PATH: '', npm_config_globalconfig: join(home, 'none'), ...env };
  const before = { ...given };
  const options = await loadRegistryOptions({ env: given, cwd: project });
  assert.deepEqual(given, before, 'the environment handed in is not written to');
  return options as Readonly<Record<string, unknown>>;
}

test('a configuration that npm itself refuses gives one line', async t => {
  await writeFile(join(home, '.npmrc'), '_authToken=unscoped\n');
  await t.throwsAsync(load(), { name: 'ModelError', message: /^the npm configuration cannot/ });
});

test('without a configuration npm’s registry is used, with shorter waits and no cache', async t => {
  const options = await load();
  const { registry } = npmDefinitions.definitions as { registry: { default: string } };
  t.is(options.registry, registry.default);
  t.is(options.cache, undefined);
  t.deepEqual(options.retry, { retries: 2, factor: 10, minTimeout: 1000, maxTimeout: 4000 });
  t.true(Number(options.timeout) <= 30_000);
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
  t.is(options.httpsProxy, 'http://p:1/');
});

test('waits that the user set are kept', async t => {
  await writeFile(
    join(home, '.npmrc'),
    'fetch-retries=5\nfetch-retry-mintimeout=7000\nfetch-timeout=90000\n',
  );
  const options = await load();
  t.deepEqual(options.retry, { retries: 5, factor: 10, minTimeout: 7000, maxTimeout: 60_000 });
  t.is(options.timeout, 90_000);
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
  const options = await loadRegistryOptions({ env, cwd: project });
  t.is((options as { registry?: string }).registry, 'http://global.example/');
});

test('weights are fetched from the scope’s registry with its token', async t => {
  const model = await makeTinyModel(1000);
  const registry = await openFakeRegistry(model.tarball);
  try {
    registry.token = 'secret-token';
    const { host } = new URL(registry.url);
    await writeFile(
      join(home, '.npmrc'),
      `@tiny:registry=${registry.url}\n//${host}/:_authToken=\${TINY_TOKEN}\nfetch-retries=0\n`,
    );
    const result = await fetchWeights(model.manifest, {
      cacheDir: join(home, 'cache'),
      registryOptions: async () => load({ TINY_TOKEN: 'secret-token' }),
    });
    t.deepEqual(result.fetched, ['tiny.onnx']);
  } finally {
    await registry.close();
  }
});
