/**
 * A prepared graph with the conversion of pixels beside it and within it, on the CPU: whether both
 * answer with the same bytes, and what a run takes, in turns.
 *
 * node bench/byte-ends.ts [--runs 9] [--photo file] model,size,precision …
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import sharp from 'sharp';
import { EngineSession } from '../inference-node/src/engine/child/engine-session.ts';
import { PROBE_SPEC } from '../inference-node/src/engine/choice/probe-graph.ts';
import { loadManifest } from '../inference-node/src/models/manifest.ts';
import { decodeModel, encodeModel } from '../inference-node/src/models/onnx/model-file.ts';
import { prepareGraph } from '../inference-node/src/models/onnx/passes/prepare-graph.ts';
import { resizeInHalf } from '../inference-node/src/models/onnx/passes/resize-in-half.ts';
import type { Precision } from '../inference-node/src/models/prepared-model.ts';
import { fitRanges, loadRanges } from '../inference-node/src/models/preparing/ranges.ts';
import { requireWeights } from '../inference-node/src/models/weights/weights-cache.ts';
import { writeResults } from './results.ts';
import { median } from './service.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    runs: { type: 'string', default: '9' },
    photo: {
      type: 'string',
      default: path.join(import.meta.dirname, '../docs/images/demo.jpg'),
    },
  },
});
const runs = Number(values.runs);
const cacheDir = path.resolve(process.env.MATTING_MODEL_DIR || 'model-cache');
const directory = mkdtempSync(path.join(tmpdir(), 'matting-byte-ends-'));

async function load(model: string, side: number, precision: Precision, bytes: boolean) {
  const manifest = await loadManifest(model);
  const weights = await requireWeights({ cacheDir }, manifest);
  const source = weights.get(manifest.graph.file) ?? '';
  const ranges = precision === 'int8' ? await loadRanges(manifest, side) : undefined;
  const { normalisation, colourOrder, activation } = manifest;
  const { inputName, outputName, inputWidth, inputHeight } = manifest.graph;
  const prepared = prepareGraph(decodeModel(readFileSync(source), source), {
    inputName,
    outputName,
    exported: { width: inputWidth, height: inputHeight },
    wanted: { width: side, height: side },
    precision,
    pixels: bytes ? { normalisation, colourOrder, activation } : undefined,
    quantise: ranges && (float32 => fitRanges(ranges, manifest, float32)),
  });
  // The other pass for devices, which rounds at other places, is in both.
  const half = precision === 'fp16' && !bytes;
  const graph = half ? resizeInHalf(prepared, [1, 3, side, side]) : prepared;
  const file = path.join(directory, `${model}-${side}-${precision}-${bytes}.onnx`);
  writeFileSync(file, Buffer.concat([...encodeModel(graph)]));
  const { session } = await EngineSession.load({
    ...PROBE_SPEC,
    ...{ inputName, outputName, normalisation, colourOrder, activation },
    ...{ path: file, provider: 'cpu', deviceId: 0, allowCpuNodes: true },
    ...{ inputWidth: side, inputHeight: side, intraOpThreads: availableParallelism() },
  });
  return session;
}

const results: Record<string, unknown> = {};
try {
  for (const graph of positionals) {
    const [model = '', size = '', precision = ''] = graph.split(',');
    const side = Number(size);
    const resized = sharp(values.photo).resize(side, side, { fit: 'fill' }).removeAlpha();
    const rgb = await resized.raw().toBuffer();
    const beside = await load(model, side, precision as Precision, false);
    const within = await load(model, side, precision as Precision, true);
    const timesMs = { beside: [] as number[], within: [] as number[] };
    let differing = 0;
    for (let run = 0; run < runs; run += 1) {
      let from = performance.now();
      const [one] = await beside.run([rgb]);
      const floats = Uint8Array.from(one ?? []);
      timesMs.beside.push(performance.now() - from);
      from = performance.now();
      const [bytes = new Uint8Array()] = await within.run([rgb]);
      timesMs.within.push(performance.now() - from);
      differing = floats.reduce((sum, alpha, i) => sum + Number(alpha !== bytes[i]), 0);
    }
    results[graph] = {
      differing,
      besideMs: median(timesMs.beside),
      withinOfBeside: median(timesMs.within) / median(timesMs.beside),
    };
  }
  writeResults('byte-ends', results);
} finally {
  rmSync(directory, { recursive: true, force: true });
}
