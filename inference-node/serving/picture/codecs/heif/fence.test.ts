import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ConfigError } from '@matting/program/config-error.ts';
import { isNotTested } from '@matting/test-support/skip.ts';
import { SmallDisk, skipWithoutMounts } from '@matting/test-support/small-disk.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava, { type ExecutionContext } from 'ava';
import { chooseHeif } from '../../../start/heif.ts';
import { findHeifDecoder } from '../../children/find-heif-decoder.ts';
import { type HeifDecoder, tryDecoder } from '../../children/heif-decoder.ts';
import type { ChildLimits } from '../../children/limited-child.ts';
import { removeLeft, temporaryFailure, withLinks } from '../../children/temporary-files.ts';
import { SETPRIV } from '../../makeable.ts';
import { decodeHeic } from './decode-heic.ts';
import type { HeicPicture } from './heic-file.ts';

const test = ava.serial;
const untested = isNotTested(!existsSync(SETPRIV) && 'the fence of HEIC: there is no setpriv');

async function standIns(t: ExecutionContext, { module = '', program = '' }) {
  const folder = await temporaryFolder(t);
  const place = path.join(folder, 'node_modules', 'libheif-js');
  mkdirSync(place, { recursive: true });
  writeFileSync(path.join(place, 'package.json'), '{"name":"libheif-js","version":"0.0.1"}');
  const file = path.join(place, 'wasm-bundle.js');
  if (module !== '') writeFileSync(file, module);
  const executable = path.join(folder, 'heif-dec');
  if (program !== '') {
    writeFileSync(executable, `#!/bin/bash\n${program}\n`);
    chmodSync(executable, 0o755);
  }
  return {
    modulesFrom: path.join(folder, 'x.js'),
    programs: [executable],
    module: file,
    executable,
  };
}

const SIDE = { width: 8, height: 8 };
const picture: HeicPicture = {
  alpha: undefined,
  colours: {
    ...{ ...SIDE, tileSize: SIDE, columns: 1, bits: 8 },
    tiles: [{ data: Buffer.alloc(9), properties: [Buffer.alloc(40)] }],
  },
};

const LIMITS: ChildLimits = { memoryBytes: 100e6, cpuMs: 1_000, fileBytes: 1e6 };

function useTemporary(t: ExecutionContext, folder: string): void {
  const before = tmpdir();
  process.env.TMPDIR = folder;
  t.teardown(() => {
    process.env.TMPDIR = before;
  });
}

async function endOf(t: ExecutionContext, kind: HeifDecoder['kind'], code: string) {
  const places = await standIns(t, { [kind === 'js' ? 'module' : 'program']: code });
  const file = kind === 'js' ? places.module : places.executable;
  const error = await t.throwsAsync(
    decodeHeic(picture, { kind, file, version: '9.9.9', within: [], options: [] }, LIMITS),
    { code: 'PROCESSING_FAILED', message: 'The image is damaged or cannot be decoded.' },
  );
  return String(error?.cause);
}

test.skipIf(untested)('a module that takes all memory is ended', async t => {
  const hoards = 'const held = []; for (;;) held.push(Buffer.alloc(2 ** 25, 1));';
  t.regex(await endOf(t, 'js', hoards), /memory|SIG/i);
  const grows = `
    const memory = new WebAssembly.Memory({ initial: 1, maximum: 65536 });
    for (;;) { memory.grow(64); new Uint8Array(memory.buffer).fill(1, -64 * 65536); }`;
  t.regex(await endOf(t, 'js', grows), /grow|memory|SIG/i);
});

test.skipIf(untested || isNotTested(skipWithoutMounts()))(
  'a disk that is full is no fault of the picture',
  async t => {
    const places = await standIns(t, {
      module: "require('node:fs').writeSync(4, Buffer.alloc(100_000)); throw new Error('full');",
      program: 'head -c 100000 /dev/zero > /proc/self/fd/4',
    });
    const disk = SmallDisk.mount('64k');
    t.teardown(() => disk.remove());
    useTemporary(t, disk.directory);
    for (const kind of ['js', 'system'] as const) {
      const file = kind === 'js' ? places.module : places.executable;
      const decoder = { kind, file, version: '9.9.9', within: [], options: [] };
      await t.throwsAsync(decodeHeic(picture, decoder, LIMITS), { code: 'ENOSPC' }, kind);
    }
  },
);

const ownIn = (folder: string) =>
  readdirSync(folder).filter(name => name.startsWith('matting-codecs-'));

test.skipIf(untested)('folders that others made keep no picture from being decoded', async t => {
  const folder = await temporaryFolder(t);
  useTemporary(t, folder);
  // Any user can create it before the node starts.
  const taken = path.join(folder, `matting-codecs-${process.getuid?.()}`);
  mkdirSync(taken, { mode: 0o777 });
  chmodSync(taken, 0o777);
  t.regex(await endOf(t, 'system', 'echo it ran >&2; exit 1'), /it ran/);
  t.deepEqual(ownIn(folder), [path.basename(taken)]);
});

test.skipIf(untested)(
  'remains of a killed process are removed, files of others are not',
  async t => {
    const folder = await temporaryFolder(t);
    useTemporary(t, folder);
    const { pid } = process;
    const links = { 'pixels.png': '/proc/self/fd/4' };
    await withLinks(links, async own => {
      const other = path.join(folder, `matting-codecs-${pid + 1}-abc`);
      mkdirSync(other);
      t.is(readlinkSync(path.join(own, 'pixels.png')), '/proc/self/fd/4');
      removeLeft(pid);
      t.deepEqual(ownIn(folder), [path.basename(other)]);
    });
  },
);

/** Nobody can create files there. */
const NO_FOLDER = '/proc/1';

test.skipIf(untested)(
  'without a folder for files the decoder fails, and the node does not',
  async t => {
    const places = await standIns(t, { module: MODULE, program: PROGRAM });
    const { executable: file } = places;
    const system = { kind: 'system', file, version: '9.9.9', within: [], options: [] } as const;
    useTemporary(t, NO_FOLDER);
    const { decoder, failures } = await findHeifDecoder(undefined, places);
    t.is(decoder, undefined);
    t.is(failures.length, 2);
    for (const failure of failures) t.regex(failure, /temporary folder .*(ENOENT|EACCES|EPERM)/);
    t.is(await chooseHeif({ heif: undefined }, { info: t.log, warn: t.log }, places), undefined);
    const named = chooseHeif({ heif: 'js' }, { info: t.log, warn: t.log }, places);
    await t.throwsAsync(named, { instanceOf: ConfigError, message: /MATTING_HEIF/ });
    t.regex(String(temporaryFailure()), /ENOENT|EACCES|EPERM/);
    // Another node can take the picture.
    await t.throwsAsync(decodeHeic(picture, system, LIMITS), { code: 'NODE_INCAPABLE' });
  },
);

const TRESPASSES = {
  reads: "require('node:fs').readFileSync('/etc/passwd')",
  lists: "require('node:fs').readdirSync('/')",
  writes: "require('node:fs').writeFileSync('/tmp/x', '')",
  starts: "require('node:child_process').execFileSync('/bin/true')",
  threads: "new (require('node:worker_threads').Worker)('0', { eval: true })",
  addons: "process.dlopen({ exports: {} }, '/lib/x86_64-linux-gnu/libm.so.6')",
};

test.skipIf(untested)('a module reads no file, starts no program, loads no addon', async t => {
  const tries = Object.entries(TRESPASSES).map(
    ([name, code]) => `try { ${code}; ends.push('${name}: done') }
    catch ({ code }) { ends.push('${name}: ' + code) }`,
  );
  const code = `const ends = []; ${tries.join('\n')}; throw new Error(ends.join('; '))`;
  const end = await endOf(t, 'js', code);
  for (const name of Object.keys(TRESPASSES)) {
    const refusal = name === 'addons' ? 'ERR_DLOPEN_DISABLED' : 'ERR_ACCESS_DENIED';
    t.true(end.includes(`${name}: ${refusal}`), end);
  }
});

test.skipIf(untested)('a program that takes all memory, or all time, is ended', async t => {
  t.regex(await endOf(t, 'system', 'x=x; while :; do x=$x$x; done'), /memory|alloc|SIG/i);
  t.regex(await endOf(t, 'system', 'while :; do :; done'), /SIG/);
  t.regex(await endOf(t, 'system', 'yes > /proc/self/fd/4'), /SIG|size limit/);
});

test.skipIf(untested)('neither has a capability, nor a way to one', async t => {
  const tells = 'grep -E "^(Cap(Prm|Eff|Bnd)|NoNewPrivs)" /proc/self/status >&2; exit 1';
  const end = await endOf(t, 'system', tells);
  const none = ['CapPrm', 'CapEff', 'CapBnd'].map(name => `${name}:\t${'0'.repeat(16)}`);
  t.true(end.includes([...none, 'NoNewPrivs:\t1'].join('\n')), end);
});

const WAYS = [['--net'], ['--net', '--map-root-user']].map(way => [
  '/usr/bin/unshare',
  ...way,
  '--',
]);
const sealed = WAYS.find(
  ([unshare = '', ...way]) => spawnSync(unshare, [...way, 'true']).status === 0,
);
const unsealed = isNotTested(sealed === undefined && 'no process here may give up its network');

test.skipIf(untested || unsealed)('neither has a network', async t => {
  let connections = 0;
  const server = createServer(socket => {
    connections += 1;
    socket.destroy();
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  const { port } = server.address() as { port: number };
  const connects = {
    js: `exports.heif_get_version = () => '9.9.9'; require('node:net').connect(${port}, '127.0.0.1');`,
    system: `echo 9.9.9; exec 9<>/dev/tcp/127.0.0.1/${port}`,
  };
  for (const kind of ['js', 'system'] as const) {
    const places = await standIns(t, { module: connects.js, program: connects.system });
    const file = kind === 'js' ? places.module : places.executable;
    const open = await tryDecoder({ kind, file, within: [] });
    t.false(open instanceof Error);
    t.is(connections, 1, kind);
    connections = 0;
    const refused = await tryDecoder({ kind, file, within: sealed ?? [] });
    t.regex(String(refused), /ENETUNREACH|unreachable/, kind);
    t.is(connections, 0, kind);
  }
});

const TOO_OLD = "exports.heif_get_version = () => '1.17.1';";
const MODULE = "exports.heif_get_version = () => '1.23.2';";
const PROGRAM = 'echo heif-dec 1.23.3';

test.skipIf(untested)('installed decoders are found in order, and tried', async t => {
  const both = await standIns(t, { module: MODULE, program: PROGRAM });
  const found = async (...asked: Parameters<typeof findHeifDecoder>) => {
    const { decoder, failures } = await findHeifDecoder(...asked);
    return [decoder?.kind, decoder?.version, failures.length];
  };
  t.deepEqual(await found(undefined, both), ['js', '1.23.2', 0]);
  t.deepEqual(await found('system', both), ['system', '1.23.3', 0]);
  t.deepEqual(await found('off', both), [undefined, undefined, 0]);
  const broken = await standIns(t, { module: 'throw new Error("no module")', program: PROGRAM });
  t.deepEqual(await found(undefined, broken), ['system', '1.23.3', 1]);
  t.deepEqual(await found('js', broken), [undefined, undefined, 1]);
  const old = await standIns(t, { module: TOO_OLD });
  t.regex(
    (await findHeifDecoder('js', old)).failures.join(),
    /it is 1\.17\.1; 1\.19\.0 is the first/,
  );
  const mute = await standIns(t, { program: 'echo hello' });
  t.deepEqual(await found(undefined, mute), [undefined, undefined, 1]);
  const none = await standIns(t, {});
  t.deepEqual(await found(undefined, none), [undefined, undefined, 0]);
});

test.skipIf(untested)('a start names what has holes and what is missing', async t => {
  const lines: string[] = [];
  const log = {
    info: () => undefined,
    warn: (...said: unknown[]) => lines.push(JSON.stringify(said)),
  };
  const none = await standIns(t, {});
  t.is(await chooseHeif({ heif: undefined }, log, none), undefined);
  t.deepEqual(lines, []);
  const error = await t.throwsAsync(chooseHeif({ heif: 'js' }, log, none), {
    instanceOf: ConfigError,
  });
  t.regex(error.message, /MATTING_HEIF must be js only where libheif-js/);
  const old = await standIns(t, { program: 'echo 1.19.8' });
  t.is((await chooseHeif({ heif: undefined }, log, old))?.version, '1.19.8');
  t.regex(lines.join('\n'), /1\.19\.8 .* known holes: below 1\.23\.3/);
});
