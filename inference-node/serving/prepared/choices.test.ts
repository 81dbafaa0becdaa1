import { createHash } from 'node:crypto';
import { throwsWith } from '@matting/test-support/throws.ts';
import test from 'ava';
import { loadManifest, type ModelManifest } from '../models/manifest.ts';
import { isModelError } from '../test/is-model-error.ts';
import { CHECK_BLOCKS, compareAnswers, drawCheckPicture, summariseAnswer } from './answer-check.ts';
import { choosePrecision } from './choose-precision.ts';
import {
  carriesInt8,
  classifyInstructionSet,
  detectInstructionSet,
  digestInstructions,
} from './instruction-set.ts';

type PrecisionWish = Parameters<typeof choosePrecision>[1];

const manifest = await loadManifest('u2netp');
const plain: ModelManifest = { ...manifest, precisions: ['fp32', 'fp16'] };
const quantised: ModelManifest = {
  ...manifest,
  precisions: ['fp32', 'fp16', 'int8'],
  inputSize: { ...manifest.inputSize, int8: [64] },
};

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
  // Slow there, but wanted; its answer is still checked.
  const choice = choose(quantised, { wanted: 'int8', instructionSet: 'x64-avx2' });
  t.deepEqual(choice, { precision: 'int8' });
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

test('a machine has the class of its CPU, a part of file names, which says whether it has int8', async t => {
  for (const [arch, system, cpuInfo, name] of CASES) {
    const text = `processor\t: 0\nmodel name\t: Some CPU\n${cpuInfo}\nbugs\t: none\n`;
    t.is(classifyInstructionSet(arch, system, text), name);
    t.is(carriesInt8(name), /vnni|amx|dotprod|i8mm/.test(name), name);
  }
  t.regex(await detectInstructionSet(), /^[a-z0-9-]+$/);
});

test('a processor that keeps its name and loses instructions is another machine', t => {
  const withFlags = (flags: string) =>
    digestInstructions(`model name\t: Some CPU\nflags\t\t: ${flags}`);
  const whole = withFlags('fpu avx512f avx512_bf16 amx_tile amx_int8 arat');
  t.regex(whole, /^[0-9a-f]{8}$/);
  t.not(withFlags('fpu avx512f avx512_bf16 arat'), whole);
  t.not(withFlags('fpu avx512f amx_tile amx_int8 arat'), whole);
  t.is(withFlags('amx_int8 amx_tile avx512f avx512_bf16 fpu ibpb'), whole, 'a newer kernel');
  t.is(digestInstructions(), digestInstructions());
});

test('a matte that differs everywhere or in one block does not agree', t => {
  const stored = Array.from({ length: CHECK_BLOCKS }, (_, block) => block % 256);
  const shifted = stored.map(level => Math.min(255, level + 2));
  t.regex(compareAnswers(shifted, stored) ?? '', /differs by 2\.0 levels/);
  const holed = stored.with(200, 100);
  t.regex(compareAnswers(holed, stored) ?? '', /100 at most/);
  t.is(compareAnswers(stored.with(3, 9), stored), undefined);
});

test('the picture is the same on every machine', t => {
  const hash = createHash('sha256').update(drawCheckPicture(96, 64)).digest('hex');
  t.is(hash, 'ae622a3e62dba2f2596ff26ad9a664a9fa7b64b88f644d521c8a04c3be934142');
});

test('a block is the mean of its pixels at any size', t => {
  const alpha = Buffer.alloc(40 * 24, 10);
  alpha.fill(250, 0, 40 * 12);
  const blocks = summariseAnswer({ alpha, width: 40, height: 24 });
  t.is(blocks.length, CHECK_BLOCKS);
  t.deepEqual([blocks[0], blocks[CHECK_BLOCKS - 1]], [250, 10]);
});
