import { readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { createUniformRgb, writeTinyModel } from '@matting/test-support/tiny-model.ts';
import ava from 'ava';
import { drawCheckPicture } from '../../prepared/answer-check.ts';
import { readResidentBytes } from '../../process/proc-files.ts';
import { C_INTERFACE_VARIABLE, cInterfaceOf } from '../../providers/c-interface.ts';
import { runtimeVersion } from '../../providers/provider-files.ts';
import { encodeProbeGraph, PROBE_SIZE_PX, PROBE_SPEC } from '../choice/gpu-probe-graph.ts';
import type { SessionSpec } from '../engine-protocol.ts';
import { LoadedModel } from './loaded-model.ts';
import { openOnnxCSession, TESTED_VERSION } from './onnx-c-session.ts';

const test = ava.serial;
setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;
const HERE = cInterfaceOf({ [C_INTERFACE_VARIABLE]: '' });
const ON_CPU = { provider: 'cpu', allowCpuNodes: true } as const;
const PROBE = { ...PROBE_SPEC, ...ON_CPU, cInterface: HERE };
const PIXELS = PROBE_SIZE_PX ** 2;
const openProbe = () => openOnnxCSession(PROBE, encodeProbeGraph());
const feedOf = (value: number, side = PROBE_SIZE_PX) => ({
  input: {
    type: 'float32' as const,
    dims: [1, 3, side, side],
    data: new Float32Array(3 * side * side).fill(value),
  },
});

async function bothWays(spec: SessionSpec, graph?: Uint8Array) {
  const { model: binding } = await LoadedModel.load({ ...spec, cInterface: undefined }, graph);
  const { model: own } = await LoadedModel.load({ ...spec, cInterface: HERE }, graph);
  return async (rgb: Uint8Array) => {
    const expected = Buffer.from((await binding.run(rgb)).alpha);
    collectGarbage();
    const answer = own.run(rgb);
    collectGarbage();
    return Buffer.from((await answer).alpha).equals(expected);
  };
}

test('the library that the package brings is the tested one', t => {
  const require = createRequire(import.meta.url);
  const { dependencies } = require('../../package.json');
  t.deepEqual([runtimeVersion(), dependencies['onnxruntime-node']], Array(2).fill(TESTED_VERSION));
});

test('the C interface answers as the binding, to the bit, again and again', async t => {
  const isEqual = await bothWays(PROBE, encodeProbeGraph());
  const folder = await temporaryFolder(t);
  for (const value of [0, 255, 77])
    t.true(await isEqual(createUniformRgb(PROBE_SIZE_PX, PROBE_SIZE_PX, value)));
  t.true(await isEqual(drawCheckPicture(PROBE_SIZE_PX, PROBE_SIZE_PX)));
  for (const kind of ['mean', 'red', 'sigmoid', 'overshoot', 'paced'] as const) {
    const model = await writeTinyModel(folder, { kind, tripsMax: 1 });
    const spec = { ...model, ...ON_CPU, intraOpThreads: 1, sharesCores: false };
    const isAlike = await bothWays(spec);
    const rgb = drawCheckPicture(model.inputWidth, model.inputHeight);
    for (let turn = 0; turn < 3; turn++) t.true(await isAlike(rgb), kind);
  }
});

test('runs of one graph are in flight at once, each with its own answer', async t => {
  const folder = await temporaryFolder(t);
  const { path: file } = await writeTinyModel(folder, { kind: 'paced', tripsMax: 60 });
  using first = openOnnxCSession(PROBE, file);
  const sessions = [first, first.another(), first.another()];
  const values = [1, 0.9, 0.8];
  const run = async (index: number) => {
    const { output } = await sessions[index]!.run(feedOf(values[index]!, 32), ['output']);
    return (output!.data as Float32Array)[0]!;
  };
  const alone: number[] = [];
  for (const index of values.keys()) alone.push(await run(index));
  let ended = 0;
  const ends: number[] = [];
  const ticks = setInterval(() => ends.push(ended), 1);
  const together = values.map(async (_value, index) => {
    const answer = await run(index);
    ended += 1;
    return answer;
  });
  t.deepEqual(await Promise.all(together), alone);
  clearInterval(ticks);
  t.true(ends.includes(0), 'timers run while all runs do');
  t.is(new Set(alone.map(value => value.toFixed(1))).size, 3);
  for (const session of sessions.slice(1)) session[Symbol.dispose]();
});

test('an error of a run or of a graph is one of JavaScript, and the session runs on', async t => {
  using session = openProbe();
  const wrong = { message: /^Run failed: .*dimensions/s };
  await t.throwsAsync(session.run(feedOf(1, 32), ['output']), wrong);
  await t.throwsAsync(session.run(feedOf(1), ['other']), { message: /^Run failed: / });
  const { output } = await session.run(feedOf(1), ['output']);
  t.deepEqual([output!.type, output!.dims], ['float32', [1, 1, PROBE_SIZE_PX, PROBE_SIZE_PX]]);
  const graph = encodeProbeGraph().subarray(0, 300);
  t.throws(() => openOnnxCSession(PROBE, graph), { message: /^CreateSessionFromArray failed: / });
  const gone = () => openOnnxCSession(PROBE, '/gone.onnx');
  t.throws(gone, { message: /^CreateSession failed: .*gone\.onnx/s });
});

test('a library of another version, or another library, is not used', async t => {
  const { library } = HERE!;
  const other = path.join(await temporaryFolder(t), 'libonnxruntime.so.1');
  const open = (file: string) => () =>
    openOnnxCSession({ ...PROBE, cInterface: { ...HERE!, library: file } }, encodeProbeGraph());
  const bytes = await readFile(library);
  const at = bytes.indexOf(`\0${TESTED_VERSION}\0`, 'latin1');
  t.true(at > 0);
  bytes.write('9', at + TESTED_VERSION.length, 'latin1');
  await writeFile(other, bytes);
  t.throws(open(other), { message: /of version 1\.30\.9, not 1\.30\.0$/ });
  t.throws(open('libc.so.6'), { message: /OrtGetApiBase/ });
  t.throws(open(`${other}.gone`), { message: /cannot open shared object file/ });
});

test('a session gives its memory back', async t => {
  const openAndRun = async () => {
    using first = openProbe();
    using second = first.another();
    const answers = await Promise.all([first, second].map(each => each.run(feedOf(1), ['output'])));
    t.is((answers[0]!.output!.data as Float32Array).length, PIXELS);
  };
  const { path: file } = await writeTinyModel(await temporaryFolder(t), { width: 4, height: 4 });
  using session = openOnnxCSession(PROBE, file);
  const feed = feedOf(1, 4);
  const runOnly = () => session.run(feed, ['output']);
  for (const [act, turns, grownMbMax] of [
    // A session of this graph takes 0.7 MB, the outputs of both 0.6 MB.
    [openAndRun, 200, 40],
    // A tensor's handle takes 0.3 KB.
    [runOnly, 40_000, 6],
  ] as const) {
    for (let turn = 0; turn < turns / 4; turn++) await act();
    const before = readResidentBytes(process.pid)!;
    for (let turn = 0; turn < turns; turn++) await act();
    const grownMb = (readResidentBytes(process.pid)! - before) / 1e6;
    t.true(grownMb < grownMbMax, `${act.name}: ${grownMb} MB`);
  }
});
