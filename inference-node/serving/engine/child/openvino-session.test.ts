import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { writeTrapModel } from '@matting/test-support/trap-model.ts';
import ava, { type ExecutionContext } from 'ava';
import { hashFile } from '../../models/cache-files.ts';
import { drawCheckPicture } from '../../prepared/answer-check.ts';
import { compareAlphas } from '../../prepared/cpu-runtime.ts';
import { isWithoutOpenvino, openvinoHere } from '../../test/openvino.ts';
import { encodeProbeGraph, PROBE_SIZE_PX, PROBE_SPEC } from '../choice/gpu-probe-graph.ts';
import type { SessionSpec } from '../engine-protocol.ts';
import { LoadedModel } from './loaded-model.ts';

type OpenvinoUse = SessionSpec['openvino'];

const test = isWithoutOpenvino ? ava.skip : ava.serial;
const PICTURE = drawCheckPicture(PROBE_SIZE_PX, PROBE_SIZE_PX);

async function openProbe(t: ExecutionContext) {
  const folder = await temporaryFolder(t);
  const graph = path.join(folder, 'probe.onnx');
  await writeFile(graph, encodeProbeGraph());
  const load = async (openvino: OpenvinoUse | undefined, file = graph) => {
    const spec = { ...PROBE_SPEC, provider: 'cpu', allowCpuNodes: true, path: file } as const;
    return (await LoadedModel.load(openvino ? { ...spec, openvino } : spec)).model;
  };
  return { folder, load, library: openvinoHere().library };
}

const alphaOf = async (model: LoadedModel) => Buffer.from((await model.run(PICTURE)).alpha);

test('OpenVINO answers like ONNX Runtime, again and again', async t => {
  const { load, library } = await openProbe(t);
  const expected = await alphaOf(await load(undefined));
  const model = await load({ library });
  for (let turn = 0; turn < 3; turn++) {
    t.is(compareAlphas(await alphaOf(model), expected), undefined);
    // One picture's input must not show in the next matte.
    const white = Buffer.alloc(PICTURE.length, 255);
    t.not(compareAlphas(Buffer.from((await model.run(white)).alpha), expected), undefined);
  }
});

test('OpenVINO restores a compiled graph, which gives the same matte to the byte', async t => {
  const { folder, load, library } = await openProbe(t);
  const file = path.join(folder, 'compiled');
  const expected = await alphaOf(await load({ library, exportTo: file }));
  const compiled = { path: file, sha256: await hashFile(file) };
  const restored = await load({ library, compiled });
  globalThis.gc?.();
  t.deepEqual(await alphaOf(restored), expected);
});

test('OpenVINO does not load a compiled graph that was altered', async t => {
  const { folder, load, library } = await openProbe(t);
  const file = path.join(folder, 'compiled');
  await load({ library, exportTo: file });
  const sha256 = await hashFile(file);
  const bytes = await readFile(file);
  bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] ?? 0) ^ 1;
  await writeFile(file, bytes);
  const refused = { message: /was altered since it was checked/ };
  await t.throwsAsync(load({ library, compiled: { path: file, sha256 } }), refused);
});

test('a compiled file that is damaged, though its digest is right, fails the load by OpenVINO’s words', async t => {
  const { folder, load, library } = await openProbe(t);
  const file = path.join(folder, 'compiled');
  const expected = await alphaOf(await load({ library, exportTo: file }));
  const sound = await readFile(file);
  const restored = async (bytes: Uint8Array) => {
    await writeFile(file, bytes);
    return await load({ library, compiled: { path: file, sha256: await hashFile(file) } });
  };
  const ofVersion = (version: string) =>
    Buffer.from(sound.toString('latin1').replace('ov=2026.4.1;', `ov=${version};`), 'latin1');
  t.notDeepEqual(ofVersion('2026.3.0'), sound);
  const damaged = [randomBytes(4096), sound.subarray(0, sound.length / 2)];
  for (const bytes of [...damaged, ofVersion('2026.3.0'), ofVersion('9999.9.9')]) {
    await t.throwsAsync(restored(bytes), { message: /^ov_core_import_model failed with -\d+: / });
  }
  await t.throwsAsync(restored(Buffer.alloc(0)), { message: /cannot be mapped$/ });
  t.deepEqual(await alphaOf(await restored(sound)), expected);
});

test('a maker’s graph of any size is run at its own, alike', async t => {
  const { folder, library } = await openProbe(t);
  const file = path.join(folder, 'compiled');
  const model = await writeTrapModel(folder, { kind: 'reflects', side: 256 });
  const spec = { ...model, allowCpuNodes: true, intraOpThreads: 1, sharesCores: false };
  const load = async (openvino?: OpenvinoUse, of: SessionSpec = spec) =>
    (await LoadedModel.load(openvino ? { ...of, openvino } : of)).model;
  const picture = drawCheckPicture(256, 256);
  const expected = Buffer.from((await (await load()).run(picture)).alpha);
  await load({ library, exportTo: file });
  const restored = await load({ library, compiled: { path: file, sha256: await hashFile(file) } });
  const { alpha, size } = await restored.run(picture);
  t.deepEqual(size, { width: 256, height: 256 });
  t.is(compareAlphas(alpha, expected), undefined);
  const form = { inputType: 'uint8', layout: 'nchw', fit: 'stretch', inverted: false } as const;
  const wrong = { message: /input is float32, not uint8/ };
  await t.throwsAsync(load({ library }, { ...spec, form }), wrong);
});

test('a graph in which a picture decides a size is not loaded', async t => {
  const { folder, library } = await openProbe(t);
  for (const kind of ['enlarges', 'widens', 'rowless', 'reshapes', 'expands'] as const) {
    const model = await writeTrapModel(folder, { kind, enlargePx: 64, expandBytes: 4e6 });
    const spec = { ...model, allowCpuNodes: true, intraOpThreads: 1, sharesCores: false };
    const open = { message: 'a size in the graph is open' };
    await t.throwsAsync(LoadedModel.load({ ...spec, openvino: { library } }), open, kind);
  }
});

test('files that are no graph fail the load with OpenVINO’s message, and the process continues', async t => {
  const { folder, load, library } = await openProbe(t);
  const file = path.join(folder, 'bad.onnx');
  const sound = await readFile(path.join(folder, 'probe.onnx'));
  const files = [Buffer.alloc(0), randomBytes(4096), sound.subarray(0, sound.length / 2)];
  for (const bytes of files) {
    await writeFile(file, bytes);
    await t.throwsAsync(load({ library }, file), { message: /failed with -\d+: / });
  }
  t.is((await alphaOf(await load({ library }))).length, PROBE_SIZE_PX ** 2);
});
