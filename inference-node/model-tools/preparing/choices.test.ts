/** Which precision a machine gets, the ranges of int8, the picture that checks an answer. */
import { createHash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import ava from 'ava';
import { rangeOfAll } from '../../../bench/observe-ranges.ts';
import { at } from '../../../test/support/at.ts';
import { temporaryFolder } from '../../../test/support/temporary-folder.ts';
import { rejectsWith, throwsWith } from '../../../test/support/throws.ts';
import {
  listManifests,
  loadManifest,
  MANIFEST_DIRECTORY,
  type ModelManifest,
} from '../../serving/models/manifest.ts';
import {
  CHECK_BLOCKS,
  compareAnswers,
  drawCheckPicture,
  summariseAnswer,
} from '../../serving/prepared/check-picture.ts';
import { choosePrecision, type PrecisionWish } from '../../serving/prepared/choose-precision.ts';
import {
  carriesInt8,
  classifyInstructionSet,
  detectInstructionSet,
} from '../../serving/prepared/instruction-set.ts';
import { loadRanges, parseRanges, type Ranges } from '../../serving/prepared/ranges.ts';
import { isModelError } from '../../serving/test/is-model-error.ts';
import { planQuantisation } from '../onnx/quantisation-plan.ts';
import { makeTinyModel } from '../test/fake-registry.ts';
import { prepareTinyGraph, tinyGraph } from '../test/tiny-graph.ts';
import { exactInputScale, fitRanges, formatRanges } from './fit-ranges.ts';

const test = ava.serial;

const directory = await temporaryFolder({ teardown: test.after.always });
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
  const blocks = summariseAnswer(alpha, 40, 24);
  t.is(blocks.length, CHECK_BLOCKS);
  t.deepEqual([blocks[0], blocks[CHECK_BLOCKS - 1]], [250, 10]);
});

const SIDE = 64;
let manifest: ModelManifest;

const graph = prepareTinyGraph(tinyGraph({ side: SIDE }));
const { measured } = planQuantisation(graph, { inputIsExact: true });

function ranges(more: Partial<Ranges> = {}): Ranges {
  return {
    model: 'tiny',
    version: '1.0.0',
    weightsSha256: at(manifest.files, 0).sha256,
    inputSize: SIDE,
    quantile: 0.0002,
    photos: [{ name: 'one.jpg', sha256: 'ab'.repeat(32) }],
    float32: [],
    ranges: new Map(measured.map(name => [name, [0, 2]])),
    checkAnswer: new Array(CHECK_BLOCKS).fill(7),
    ...more,
  };
}

test.before(async () => {
  ({ manifest } = await makeTinyModel(1000));
  await mkdir(join(directory, 'tiny'));
});

async function load(text: string) {
  await writeFile(join(directory, 'tiny', 'ranges-64.json'), text);
  return loadRanges(manifest, SIDE, directory);
}

const isManifestError = (pattern: RegExp) => isModelError('manifest', pattern);

test('a file that is none, of something else, or with other fields is refused by its path', async t => {
  await rejectsWith(t, loadRanges(manifest, 96, directory), isManifestError(/ranges-96.*missing/));
  const whole = formatRanges(ranges());
  const { photos: _photos, ...without } = JSON.parse(whole);
  const changed = (more: object) => JSON.stringify({ ...JSON.parse(whole), ...more });
  for (const [text, pattern] of [
    [whole.slice(0, 500), /ranges-64\.json: not JSON/],
    ['[]', /must be an object/],
    [changed({ weightsSha256: '0'.repeat(64) }), /weightsSha256 is 0000/],
    [changed({ version: '0.9.0' }), /version is 0\.9\.0, not 1\.0\.0: .*calibrate -- tiny/],
    [changed({ model: 'other' }), /model is other/],
    [changed({ inputSize: 96 }), /inputSize is 96, not 64/],
    [JSON.stringify(without), /photos is missing/],
    [changed({ note: 'hello' }), /note is not a known field/],
    [changed({ checkAnswer: [1, 2, 3] }), /must be 256 numbers/],
  ] as const) {
    await rejectsWith(t, load(text), isManifestError(pattern));
  }
  const wanted = ranges({ float32: [at(measured, 0)], percentOfMedianMax: 150 });
  t.deepEqual(parseRanges(formatRanges(wanted), 'here'), wanted, 'a good one reads as it was');
});

test('an invalid range is refused with the name of its value', async t => {
  const first = at(measured, 0);
  for (const [written, pattern] of [
    ['[1, 0]', /must begin at most at 0/],
    ['[0, 0]', /must begin below its end/],
    ['[0.5, 2]', /must begin at most at 0/],
    ['[-2, -1]', /end at least there/],
    ['[0, null]', /\[1\] must be a number/],
    ['[0, 1e999]', /\[1\] must be a number/],
    ['["0", "1"]', /\[0\] must be a number/],
    ['[0]', /must be two numbers/],
    ['3', /must be two numbers/],
  ] as const) {
    const one = formatRanges(ranges({ ranges: new Map([[first, [0, 12345]]]) }));
    const text = one.replace('[0,12345]', written);
    t.not(text, one);
    await rejectsWith(t, load(text), isManifestError(pattern));
    await rejectsWith(t, load(text), isManifestError(new RegExp(first.replaceAll('.', '\\.'))));
  }
  // JSON has no NaN; a careless writer's file is not JSON.
  const text = formatRanges(ranges()).replace('[0,2]', '[NaN,2]');
  await rejectsWith(t, load(text), isManifestError(/not JSON/));
});

test('a range reaches as far as any photo, except photos far beyond the others', t => {
  const of = (percentMax: number, ...photos: [number, number][]) => rangeOfAll(photos, percentMax);
  const photos = [8, 5, 57, 6, 7].map((upper): [number, number] => [-upper / 10, upper]);
  t.deepEqual(of(Number.POSITIVE_INFINITY, ...photos), [-5.7, 57]);
  t.deepEqual(of(150, ...photos), [-1.05, 10.5]);
  // A bound that no photo reaches does not extend the range.
  t.deepEqual(of(150, [0, 5], [0, 6], [0, 7]), [0, 7]);
  // Most photos have nothing there, so there is no usual end; 0 is included all the same.
  t.deepEqual(of(150, [0, 0], [0.2, 0], [-3, 4]), [-3, 4]);
  t.true(of(150, [0, 0])[1] > 0);
});

test('ranges that lack a value of the graph, or have one too many, are refused', async t => {
  const [first, ...rest] = measured;
  const all = ranges().ranges;
  const fitted = async (more: Partial<Ranges>) =>
    fitRanges(await load(formatRanges(ranges(more))), manifest, graph);
  for (const [more, pattern] of [
    [
      { ranges: new Map(rest.map(name => [name, [0, 2] as const])) },
      new RegExp(`does not fit the graph of tiny: it has no ${first}`),
    ],
    [{ ranges: new Map([...all, ['elsewhere', [0, 1] as const]]) }, /the graph has no elsewhere/],
    [{ float32: ['nobody'] }, /makes no nobody/],
  ] as const) {
    await rejectsWith(t, fitted(more), isManifestError(pattern));
  }
  t.deepEqual((await fitted({})).ranges, all);
});

test('only the same normalisation for all channels keeps the picture exact', t => {
  const of = (mean: [number, number, number], std: [number, number, number]) =>
    exactInputScale({ ...manifest, normalisation: { mean, std } });
  t.deepEqual(of([128, 128, 128], [256, 256, 256]), { scale: 1 / 256, zeroPoint: 128 });
  t.is(of([127.5, 127.5, 127.5], [127.5, 127.5, 127.5]), undefined);
  t.is(of([123.675, 116.28, 103.53], [58.395, 57.12, 57.375]), undefined);
});

test('every size that a manifest lists for int8 has a valid ranges file', async t => {
  let found = 0;
  for (const name of await listManifests(MANIFEST_DIRECTORY)) {
    const model = await loadManifest(name);
    for (const side of model.inputSize.int8 ?? []) {
      const file = await loadRanges(model, side);
      t.true(file.ranges.photos.length >= 12, `${file.name} was made from few photos`);
      t.true(Math.max(...file.ranges.checkAnswer) > 200, 'the model finds the subject');
      t.true(Math.min(...file.ranges.checkAnswer) < 50, 'and the background');
      found++;
    }
  }
  t.true(found > 0);
});
