import ava from 'ava';
import { throwsWith } from '../../../../test/support/throws.ts';
import type { ModelManifest } from '../../../src/models/manifest.ts';
import {
  choosePrecision,
  type PrecisionWish,
} from '../../../src/models/preparing/choose-precision.ts';
import {
  carriesInt8,
  classifyInstructionSet,
  detectInstructionSet,
} from '../../../src/models/preparing/instruction-set.ts';
import { isModelError } from '../is-model-error.ts';
import { makeTinyModel } from '../weights/fake-registry.ts';

const test = ava.serial;

let plain: ModelManifest;
let quantised: ModelManifest;

test.before(async () => {
  plain = (await makeTinyModel(1000)).manifest;
  quantised = {
    ...plain,
    precisions: ['fp32', 'fp16', 'int8'],
    inputSize: { ...plain.inputSize, int8: [64] },
  };
});

function choose(manifest: ModelManifest, more: Partial<PrecisionWish> = {}) {
  return choosePrecision(manifest, {
    wanted: 'auto',
    size: { width: 64, height: 64 },
    provider: 'cpu',
    instructionSet: 'x64-avx512-vnni',
    ...more,
  });
}

test('a named precision that is not possible is refused, never replaced', t => {
  const refused = (manifest: ModelManifest, more: Partial<PrecisionWish>, pattern: RegExp) =>
    throwsWith(
      t,
      () => choose(manifest, { wanted: 'int8', ...more }),
      isModelError('settings', pattern),
    );
  refused(plain, {}, /int8 \(MATTING_PRECISION\): it can in fp32, fp16/);
  refused(quantised, { size: { width: 96, height: 96 } }, /ranges at 64, not at 96/);
  refused(quantised, { size: { width: 64, height: 96 } }, /not at 64x96/);
  refused(quantised, { provider: 'cuda' }, /for CPUs, the execution provider is cuda/);
});

test('auto falls back to fp32 and says why', t => {
  const without = choose(quantised, { instructionSet: 'x64-avx2' });
  t.is(without.precision, 'fp32');
  t.regex(without.fallback ?? '', /x64-avx2.*no VNNI/);
  const size = choose(quantised, { size: { width: 96, height: 96 } });
  t.is(size.precision, 'fp32');
  t.regex(size.fallback ?? '', /ranges for int8 at 64, not at 96/);
});

test('auto is int8 where the CPU supports it, fp16 on a GPU, without a fallback', t => {
  t.deepEqual(choose(quantised), { precision: 'int8' });
  t.deepEqual(choose(quantised, { provider: 'cuda' }), { precision: 'fp16' });
  t.deepEqual(choose(plain), { precision: 'fp32' });
  const single: ModelManifest = { ...plain, precisions: ['fp32'] };
  t.deepEqual(choose(single, { provider: 'cuda' }), { precision: 'fp32' });
});

test('a named precision is used', t => {
  for (const wanted of ['fp32', 'fp16', 'int8'] as const) {
    t.deepEqual(choose(quantised, { wanted }), { precision: wanted });
  }
  // Slow there, but requested; its answer is still checked.
  const asked = choose(quantised, { wanted: 'int8', instructionSet: 'x64-avx2' });
  t.deepEqual(asked, { precision: 'int8' });
});

test('the classes that support int8 are those with VNNI or DOTPROD', t => {
  for (const name of ['x64-base', 'x64-avx2', 'x64-avx512', 'arm64-neon', 'riscv64']) {
    t.true(!carriesInt8(name), name);
  }
  for (const name of ['x64-avx512-vnni', 'x64-avx2-vnni', 'arm64-neon-dotprod']) {
    t.truthy(carriesInt8(name), name);
  }
});

const CASES: readonly (readonly [arch: string, system: string, cpuInfo: string, name: string])[] = [
  ['x64', 'linux', 'flags\t\t: fpu sse2', 'x64-base'],
  ['x64', 'linux', 'flags\t\t: fpu avx2 fma', 'x64-avx2'],
  ['x64', 'linux', 'flags\t\t: fpu avx2 fma avx_vnni', 'x64-avx2-vnni'],
  ['x64', 'linux', 'flags\t\t: avx2 fma avx512f avx512bw', 'x64-avx512'],
  ['x64', 'linux', 'flags\t\t: avx2 fma avx512f avx512bw avx512_vnni avx_vnni', 'x64-avx512-vnni'],
  ['x64', 'linux', 'flags\t\t: avx512f avx512_vnni amx_int8', 'x64-amx-int8'],
  ['x64', 'win32', '', 'x64-base'],
  ['arm64', 'linux', 'Features\t: fp asimd', 'arm64-neon'],
  ['arm64', 'linux', 'Features\t: fp asimd asimddp', 'arm64-neon-dotprod'],
  ['arm64', 'linux', 'Features\t: fp asimd asimddp i8mm', 'arm64-neon-i8mm'],
  ['arm64', 'darwin', '', 'arm64-neon-dotprod'],
  ['riscv64', 'linux', 'isa : rv64', 'riscv64'],
];

for (const [arch, system, cpuInfo, name] of CASES) {
  test(`${arch} ${system} ${cpuInfo.split(':')[1] ?? 'without cpuinfo'} is ${name}`, t => {
    const text = `processor\t: 0\nmodel name\t: Some CPU\n${cpuInfo}\nbugs\t: none\n`;
    t.is(classifyInstructionSet(arch, system, text), name);
  });
}

test('this machine has a class that can be part of a file name', async t => {
  t.regex(await detectInstructionSet(), /^[a-z0-9-]+$/);
});
