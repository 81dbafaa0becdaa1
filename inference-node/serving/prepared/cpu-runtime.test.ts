import {
  chmod,
  chown,
  readdir,
  readFile,
  rename,
  rm,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import path from 'node:path';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { writeTinyModel } from '@matting/test-support/tiny-model.ts';
import ava, { type ExecutionContext } from 'ava';
import sinon from 'sinon';
import { type PreparedModel, runtimeOf } from '../models/prepared-model.ts';
import { GraphRefusedError } from './answer-check.ts';
import {
  compareAlphas,
  prepareRuntime,
  type RuntimeOptions,
  recordedRuntime,
} from './cpu-runtime.ts';

const test = ava;

const ALPHA = Buffer.alloc(10_000, 100);
const ALIKE = { onnxruntime: ALPHA, openvino: ALPHA };
const PEAK = 3e8;
const FASTER = { timeShare: 0.8, peakBytes: PEAK, alphas: ALIKE };
const OPENVINO = { version: '1', library: '/nowhere/libopenvino.so' };
const { signal } = new AbortController();
const AUTO: RuntimeOptions = { wanted: 'auto', openvino: OPENVINO, comparing: signal };
const HERE = { machine: 'this one' };

type Comparison = { timeShare: number; peakBytes: number; alphas: typeof ALIKE };

async function open(t: ExecutionContext, comparison: Comparison | Error) {
  const model = await writeTinyModel(await temporaryFolder(t), {});
  const calls = { compiled: 0, compared: 0, reported: 0 };
  const tools = {
    compile: async (_model: PreparedModel, _library: string, exportTo: string) => {
      calls.compiled += 1;
      await writeFile(exportTo, 'compiled');
    },
    compare: async () => {
      calls.compared += 1;
      if (comparison instanceof Error) throw comparison;
      return comparison;
    },
  };
  const prepare = (options = AUTO, of: PreparedModel = model, here = HERE) =>
    prepareRuntime(of, options, { ...here, runtimes: tools }, () => {
      calls.reported += 1;
    });
  return { model, calls, prepare };
}

test('a faster OpenVINO that answers alike is chosen, once on a machine', async t => {
  const { model, calls, prepare } = await open(t, FASTER);
  t.is(
    runtimeOf(await recordedRuntime(model, AUTO, HERE)),
    'onnxruntime',
    'nothing was compared yet',
  );
  const chosen = await prepare();
  t.like(chosen, {
    openvino: { library: OPENVINO.library },
  });
  const { path = '', sha256: compiled } = chosen.openvino?.compiled ?? {};
  t.is(await readFile(path, 'utf8'), 'compiled');
  t.deepEqual(await recordedRuntime(model, AUTO, HERE), chosen);
  const record = JSON.parse(await readFile(`${model.path}.runtimes.json`, 'utf8'));
  t.deepEqual(record.machines, [
    { machine: 'this one', compiled, timeShare: 0.8, peakBytes: PEAK },
  ]);
  await prepare();
  t.deepEqual(calls, { compiled: 1, compared: 1, reported: 1 });
  const other = await prepare(AUTO, model, { machine: 'another one' });
  t.deepEqual(calls, { compiled: 2, compared: 2, reported: 2 }, 'it has other instructions');
  t.not(other.openvino?.compiled?.path, path);
  t.deepEqual(await recordedRuntime(model, AUTO, HERE), chosen);
});

const kept: readonly (readonly [string, Comparison, RegExp])[] = [
  [
    'is hardly faster',
    { timeShare: 0.95, peakBytes: PEAK, alphas: ALIKE },
    /0\.95 of ONNX Runtime's time/,
  ],
  [
    'answers otherwise everywhere',
    { timeShare: 0.5, peakBytes: PEAK, alphas: { ...ALIKE, openvino: Buffer.alloc(10_000, 101) } },
    /1\.000 levels/,
  ],
  [
    'answers otherwise in a few pixels',
    {
      timeShare: 0.5,
      peakBytes: PEAK,
      alphas: { ...ALIKE, openvino: Buffer.from(ALPHA).fill(120, 0, 11) },
    },
    /0\.11 % of its pixels/,
  ],
];
for (const [name, comparison, reason] of kept) {
  test(`ONNX Runtime is kept where OpenVINO ${name}, and the reason is recorded`, async t => {
    const { model, calls, prepare } = await open(t, comparison);
    for (const chosen of [
      await prepare(),
      await prepare(),
      await recordedRuntime(model, AUTO, HERE),
    ]) {
      t.is(runtimeOf(chosen), 'onnxruntime');
      t.regex(chosen.runtimeFallback ?? '', reason);
    }
    t.is(calls.compared, 1);
    const beside = await readdir(path.dirname(model.path));
    t.deepEqual(
      beside.filter(file => file.includes('.openvino-')),
      [],
      'it will not be loaded',
    );
    const named: RuntimeOptions = { ...AUTO, wanted: 'openvino' };
    await t.throwsAsync(recordedRuntime(model, named, HERE), { message: /run "models fetch"/ });
    if (comparison.alphas === ALIKE) t.is(runtimeOf(await prepare(named)), 'openvino');
    else await t.throwsAsync(prepare(named), { message: /MATTING_CPU_RUNTIME=openvino.*differs/ });
  });
}

test('an OpenVINO that does not run is tried again, and nothing is recorded', async t => {
  const { model, calls, prepare } = await open(t, new Error('no such operator'));
  for (let turn = 1; turn <= 2; turn++) {
    t.regex((await prepare()).runtimeFallback ?? '', /does not run it: no such operator/);
    t.deepEqual(calls, { compiled: turn, compared: turn, reported: turn });
  }
  t.regex((await recordedRuntime(model, AUTO, HERE)).runtimeFallback ?? '', /was not compared/);
  t.deepEqual(await readdir(path.dirname(model.path)), [path.basename(model.path)]);
});

test('a graph that OpenVINO refuses is recorded, and tried again by its name or another version alone', async t => {
  const { model, calls, prepare } = await open(t, new GraphRefusedError('no such operator'));
  const reason = /does not run it: no such operator/;
  for (let turn = 1; turn <= 2; turn++) {
    t.regex((await prepare()).runtimeFallback ?? '', reason);
    t.regex((await recordedRuntime(model, AUTO, HERE)).runtimeFallback ?? '', reason);
    t.deepEqual(calls, { compiled: 1, compared: 1, reported: 1 });
  }
  const named: RuntimeOptions = { ...AUTO, wanted: 'openvino' };
  await t.throwsAsync(prepare(named), { message: /MATTING_CPU_RUNTIME=openvino.*no such/ });
  await prepare({ ...AUTO, openvino: { ...OPENVINO, version: '2' } });
  t.is(calls.compared, 3);
  const beside = await readdir(path.dirname(model.path));
  t.deepEqual(
    beside.filter(file => file.includes('.openvino-')),
    [],
  );
});

test('an OpenVINO that is named runs though it is slower, and not where it answers otherwise', async t => {
  const named = { ...AUTO, wanted: 'openvino' } as const;
  const slow = await open(t, { timeShare: 1.5, peakBytes: PEAK, alphas: ALIKE });
  t.is(runtimeOf(await slow.prepare()), 'onnxruntime');
  t.is(runtimeOf(await slow.prepare(named)), 'openvino');
  t.is(runtimeOf(await slow.prepare()), 'onnxruntime', 'the name is gone: the faster one again');
  t.is(slow.calls.compared, 2, 'what was compiled was removed once it had lost');
  const broken = await open(t, new Error('no such operator'));
  await t.throwsAsync(broken.prepare(named), { message: /MATTING_CPU_RUNTIME=openvino.*no such/ });
});

test('a damaged record, another version and an altered file are made again', async t => {
  const { model, calls, prepare } = await open(t, FASTER);
  const { path = '' } = (await prepare()).openvino?.compiled ?? {};
  await writeFile(path, 'altered');
  t.is(runtimeOf(await recordedRuntime(model, AUTO, HERE)), 'onnxruntime');
  await prepare();
  t.is(await readFile(path, 'utf8'), 'compiled');
  await writeFile(`${model.path}.runtimes.json`, '{"sha256": 1');
  t.is(runtimeOf(await recordedRuntime(model, AUTO, HERE)), 'onnxruntime');
  await prepare();
  const newer = { ...AUTO, openvino: { ...OPENVINO, version: '2' } };
  const { path: newerPath = '' } = (await prepare(newer)).openvino?.compiled ?? {};
  t.deepEqual(calls, { compiled: 4, compared: 4, reported: 4 });
  await rm(newerPath);
  t.regex((await recordedRuntime(model, newer, HERE)).runtimeFallback ?? '', /is gone/);
});

test('a compiled graph that another user may write is compiled again, and never run from their folder', async t => {
  const { model, calls, prepare } = await open(t, FASTER);
  const { path: compiled = '' } = (await prepare()).openvino?.compiled ?? {};
  const reason = async () => (await recordedRuntime(model, AUTO, HERE)).runtimeFallback ?? '';
  await chmod(compiled, 0o666);
  t.regex(await reason(), /is not safe: other users may write .*\.openvino-/);
  t.is(runtimeOf(await prepare()), 'openvino');
  t.is(calls.compiled, 2);
  // The process is in this group.
  await chmod(compiled, 0o664);
  t.is(await reason(), '');
  const folder = path.dirname(compiled);
  await chmod(folder, 0o777);
  t.regex(await reason(), new RegExp(`other users may write ${folder}$`));
  t.is(runtimeOf(await prepare()), 'onnxruntime');
  await chmod(folder, 0o700);
  const elsewhere = path.join(await temporaryFolder(t), 'compiled');
  await rename(compiled, elsewhere);
  await symlink(elsewhere, compiled);
  t.is(await reason(), '');
  await chmod(path.dirname(elsewhere), 0o777);
  t.regex(await reason(), /other users may write/);
});

test.serial('a compiled graph of another user is not run', async t => {
  const { model, prepare } = await open(t, FASTER);
  const { path: compiled = '' } = (await prepare()).openvino?.compiled ?? {};
  if (process.getuid?.() === 0) await chown(compiled, 1, 1);
  else {
    const stub = sinon.stub(process, 'getuid').returns(Number(process.getuid?.()) + 1);
    t.teardown(() => stub.restore());
  }
  const { runtimeFallback = '' } = await recordedRuntime(model, AUTO, HERE);
  t.regex(runtimeFallback, /is not safe: another user owns/);
});

test('a compiled graph of the last release stays for a day', async t => {
  const { model, prepare } = await open(t, FASTER);
  const { path = '' } = (await prepare()).openvino?.compiled ?? {};
  const newer = { ...AUTO, openvino: { ...OPENVINO, version: '2' } };
  await prepare(newer);
  t.is(await readFile(path, 'utf8'), 'compiled');
  const twoDaysAgo = new Date(Date.now() - 48 * 3600 * 1000);
  await utimes(path, twoDaysAgo, twoDaysAgo);
  const { path: kept = '' } = (await prepare(newer)).openvino?.compiled ?? {};
  await utimes(kept, twoDaysAgo, twoDaysAgo);
  await prepare(newer, model, { machine: 'another one' });
  await t.throwsAsync(readFile(path), { code: 'ENOENT' });
  t.is(await readFile(kept, 'utf8'), 'compiled');
});

test('OpenVINO does not run if it is unwanted, missing, or the graph is not for it', async t => {
  const { model, calls, prepare } = await open(t, {
    timeShare: 0.1,
    peakBytes: PEAK,
    alphas: ALIKE,
  });
  const unwanted: RuntimeOptions = { ...AUTO, wanted: 'onnxruntime' };
  const missing: RuntimeOptions = { ...AUTO, openvino: undefined };
  t.is(await prepare(unwanted), model);
  t.like(await prepare(missing), { path: model.path });
  t.regex((await recordedRuntime(model, missing, HERE)).runtimeFallback ?? '', /not installed/);
  const onGpu: PreparedModel = { ...model, provider: 'cuda' };
  t.is(await prepare(AUTO, onGpu), onGpu);
  t.deepEqual(calls, { compiled: 0, compared: 0, reported: 0 });
  const named = recordedRuntime(model, { ...missing, wanted: 'openvino' }, HERE);
  await t.throwsAsync(named, { message: /is not installed/ });
});

const FORM = { inputType: 'float32', layout: 'nchw', fit: 'stretch', inverted: false } as const;

test('an added model has its record next to the prepared file, by what describes its answer', async t => {
  const { model, calls, prepare } = await open(t, FASTER);
  const recordsBeside = `${model.path}.prepared`;
  const added: PreparedModel = { ...model, recordsBeside, form: FORM, peakBytes: 2e8 };
  const chosen = await prepare(AUTO, added);
  t.is(chosen.peakBytes, PEAK);
  t.true(chosen.openvino?.compiled?.path.startsWith(`${recordsBeside}.openvino-`));
  t.is((await recordedRuntime({ ...added, peakBytes: 4e8 }, AUTO, HERE)).peakBytes, 4e8);
  const inverted = { ...added, form: { ...FORM, inverted: true } };
  t.regex((await recordedRuntime(inverted, AUTO, HERE)).runtimeFallback ?? '', /not compared/);
  t.is(calls.compiled, 1);
});

test('an added model of open sizes, or that OpenVINO does not run, is ONNX Runtime’s by any name', async t => {
  const named: RuntimeOptions = { ...AUTO, wanted: 'openvino' };
  const { model, calls, prepare } = await open(t, new Error('no such operator'));
  const added: PreparedModel = { ...model, form: FORM };
  const sides = { multipleOf: 32, max: 512 };
  const ofAnySize: PreparedModel = { ...model, form: { ...FORM, fit: 'short-side', sides } };
  for (const options of [AUTO, named]) {
    t.regex((await prepare(options, ofAnySize)).runtimeFallback ?? '', /another size/);
    t.is(calls.compared, 0);
  }
  for (const options of [AUTO, named]) {
    t.regex((await prepare(options, added)).runtimeFallback ?? '', /no such operator/);
  }
  t.regex((await recordedRuntime(added, named, HERE)).runtimeFallback ?? '', /not compared/);
});

test('mattes are alike within two ten-thousandths in the mean', t => {
  const near = Buffer.from(ALPHA).fill(101, 0, 500);
  t.is(compareAlphas(near, ALPHA), undefined);
  t.regex(compareAlphas(near.fill(101, 0, 600), ALPHA) ?? '', /0\.060 levels/);
  t.is(compareAlphas(ALPHA.subarray(1), ALPHA), 'OpenVINO’s matte has another size');
});
