import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises';
import path from 'node:path';
import {
  PROVIDER_LIBRARIES,
  readEngineEnvironment,
  readInstalled,
  runtimeVersion,
} from '@matting/serving/providers/provider-files.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava from 'ava';
import { zipSync } from 'fflate';
import { sha256 } from '../test/fake-registry.ts';
import { CUDA_WHEEL, installCuda } from './install-cuda.ts';

const test = ava.serial;
const { signal } = new AbortController();
const CUDA = 'libonnxruntime_providers_cuda.so';
const TENSORRT = 'libonnxruntime_providers_tensorrt.so';

const entries = [...PROVIDER_LIBRARIES, TENSORRT, 'onnxruntime_pybind11_state.so'];
const BYTES = zipSync(
  Object.fromEntries(entries.map(name => [`onnxruntime/capi/${name}`, Buffer.from(name)])),
);
const WHEEL = { ...CUDA_WHEEL, bytes: BYTES.length, sha256: sha256(BYTES) };

let providerDir: string;
let from: string;

const home = await temporaryFolder({ teardown: test.after.always });
test.beforeEach(async () => {
  const root = await mkdtemp(path.join(home, 'test-'));
  providerDir = path.join(root, 'installed');
  from = path.join(root, 'own.whl');
  await writeFile(from, BYTES);
});

const install = (file = from, wheel = WHEEL) =>
  installCuda({ providerDir, from: file, env: {}, signal }, wheel);

test('the wheel is of the version of the runtime that npm brings', t => {
  t.true(CUDA_WHEEL.name.startsWith(`onnxruntime_gpu-${runtimeVersion()}-`));
});

test('a file of another checksum, or none, installs nothing', async t => {
  const message = /own\.whl is not onnxruntime_gpu-.*: its checksum is another/;
  await t.throwsAsync(install(from, CUDA_WHEEL), { name: 'ProviderError', message });
  await t.throwsAsync(install(path.join(providerDir, 'absent.whl')), { name: 'ModelError' });
  t.deepEqual(await readdir(providerDir), []);
  t.is((await readInstalled(providerDir, { hashed: true })).state, 'missing');
});

test('its two libraries are installed next to the runtime that they fit', async t => {
  const folder = await install();
  t.is(await install(), folder);
  t.deepEqual((await readdir(folder)).sort(), [
    'installed.json',
    'libonnxruntime.so.1',
    CUDA,
    'libonnxruntime_providers_shared.so',
    'onnxruntime_binding.node',
  ]);
  t.is(await readFile(path.join(folder, CUDA), 'utf8'), CUDA);
  t.deepEqual(await readdir(providerDir), [path.basename(folder)]);
  const { childEnv, installed } = await readEngineEnvironment(providerDir, { PATH: '/bin' });
  t.deepEqual(childEnv, { PATH: '/bin', ENGINE_RUNTIME_FOLDER: folder });
  t.like(installed, { state: 'installed', record: { source: CUDA_WHEEL.name } });
  t.is((await readInstalled(providerDir, { hashed: true })).state, 'installed');
});

test('an installation of 0.3.0 is used as it is, with more parts and the folders that it found', async t => {
  const folder = await install();
  const file = path.join(folder, 'installed.json');
  const record = JSON.parse(await readFile(file, 'utf8'));
  await writeFile(path.join(folder, TENSORRT), TENSORRT);
  const sum = sha256(Buffer.from(TENSORRT));
  const part = { name: TENSORRT, bytes: TENSORRT.length, sha256: sum };
  const earlier = { files: [...record.files, part], libraryFolders: ['/cuda/lib', '/cudnn/lib'] };
  await writeFile(file, JSON.stringify({ ...record, ...earlier }));
  t.is((await readInstalled(providerDir, { hashed: true })).state, 'installed');
  const { childEnv } = await readEngineEnvironment(providerDir, { LD_LIBRARY_PATH: '/own' });
  t.is(childEnv.LD_LIBRARY_PATH, '/own:/cuda/lib:/cudnn/lib');
});

test('a failed installation leaves the one before; an altered one is not used', async t => {
  const folder = await install();
  await t.throwsAsync(install(from, CUDA_WHEEL), { name: 'ProviderError' });
  t.is((await readInstalled(providerDir, { hashed: true })).state, 'installed');
  const library = path.join(folder, CUDA);
  await writeFile(library, CUDA.toUpperCase());
  const altered = await readInstalled(providerDir, { hashed: true });
  t.regex(altered.state === 'unusable' ? altered.reason : '', /altered lib\w+_cuda\.so/);
  await truncate(library, 10);
  const { childEnv, installed } = await readEngineEnvironment(providerDir, { PATH: '/bin' });
  t.is(installed.state, 'unusable');
  t.deepEqual(childEnv, { PATH: '/bin' });
});

test('a library that other users may write is not used', async t => {
  await chmod(path.join(await install(), CUDA), 0o666);
  const found = await readInstalled(providerDir, { hashed: false });
  t.regex(found.state === 'unusable' ? found.reason : '', /is not safe: other users may write/);
});

test('a record that is none makes no provider', async t => {
  const folder = await install();
  for (const text of ['', 'null', '{}', '{"runtimeVersion": "0.0.1"}', '[1]']) {
    await writeFile(path.join(folder, 'installed.json'), text);
    t.is((await readInstalled(providerDir, { hashed: false })).state, 'unusable', text);
  }
});

test('remains of killed installations are removed, a running one is left alone', async t => {
  const folder = await install();
  const [killed, running] = [`${folder}.partial-2-abcd`, `${folder}.partial-4-abcd`];
  for (const left of [killed, running]) {
    await mkdir(left);
    await writeFile(path.join(left, CUDA), 'half');
  }
  const longAgo = new Date(Date.now() - 7_200_000);
  await utimes(killed, longAgo, longAgo);
  await t.throwsAsync(install(from, CUDA_WHEEL), { name: 'ProviderError' });
  t.is((await readInstalled(providerDir, { hashed: true })).state, 'installed');
  t.deepEqual(
    (await readdir(providerDir)).sort(),
    [folder, running].map(left => path.basename(left)),
  );
});
