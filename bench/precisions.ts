/**
 * Compares sizes and precisions with the first, in turns in one run: processor time of a run on one
 * thread, which other work on the machine disturbs little.
 *
 * node bench/precisions.ts [--model isnet] [--rounds 5]
 */
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { prepareModel } from '../inference-node/model-tools/preparing/prepare.ts';
import { InferenceSession, Tensor } from '../inference-node/serving/engine/child/onnx-runtime.ts';
import { createAnswering } from '../inference-node/serving/engine/choice/run-once.ts';
import { loadManifest } from '../inference-node/serving/models/manifest.ts';
import type { Precision, PreparedModel } from '../inference-node/serving/models/prepared-model.ts';
import { drawCheckPicture } from '../inference-node/serving/prepared/answer-check.ts';
import { detectInstructionSet } from '../inference-node/serving/prepared/instruction-set.ts';
import { at } from '../test/support/at.ts';
import { toPlanes } from './model-photo.ts';
import { writeResults } from './results.ts';
import { median } from './service.ts';

const childEnv = { PATH: process.env.PATH ?? '' };

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: 'isnet' },
    rounds: { type: 'string', default: '5' },
  },
});
const rounds = Number(values.rounds);
const manifest = await loadManifest(values.model);
const instructionSet = await detectInstructionSet();
const cores = availableParallelism();

function prepare(side: number, precision: Precision): Promise<PreparedModel> {
  return prepareModel({
    manifest,
    cacheDir: path.resolve(process.env.MATTING_MODEL_DIR || 'model-cache'),
    inputSize: { width: side, height: side },
    precision,
    provider: 'cpu',
    instructionSet,
    answering: createAnswering({ childEnv, threads: cores }),
  });
}

async function measureRuns() {
  const { int8 = [], default: defaultSize } = manifest.inputSize;
  const sizes = [...new Set([defaultSize, ...int8])].sort((a, b) => b - a);
  const runs: { name: string; run: () => Promise<unknown>; cpuMs: number[] }[] = [];
  for (const side of sizes) {
    for (const precision of int8.includes(side) ? (['fp32', 'int8'] as const) : ['fp32' as const]) {
      const model = await prepare(side, precision);
      const session = await InferenceSession.create(model.path, {
        executionProviders: ['cpu'],
        intraOpNumThreads: 1,
        interOpNumThreads: 1,
        enableMemPattern: false,
        logSeverityLevel: 3,
      });
      const planes = toPlanes(drawCheckPicture(side, side), manifest);
      const feeds = { [model.inputName]: new Tensor('float32', planes, [1, 3, side, side]) };
      const run = () => session.run(feeds, [model.outputName]);
      runs.push({ name: `${side} ${precision}`, run, cpuMs: [] });
    }
  }
  // The first round warms up.
  for (let round = 0; round <= rounds; round++) {
    for (const { run, cpuMs } of runs) {
      const before = process.cpuUsage();
      await run();
      const { user, system } = process.cpuUsage(before);
      if (round > 0) cpuMs.push((user + system) / 1000);
    }
  }
  const first = median(at(runs, 0).cpuMs);
  return Object.fromEntries(
    runs.map(({ name, cpuMs }) => [name, { cpuMs: median(cpuMs), ratio: median(cpuMs) / first }]),
  );
}

writeResults('precisions', { model: manifest.name, runs: await measureRuns() });
