/**
 * Compares the cost of sizes, precisions and engine layouts, each with the first of its table, in
 * turns in one run.
 *
 * - Sizes and precisions: processor time of a run on one thread, which other work on the machine
 *   disturbs little, and the engine's memory.
 * - Layouts: one engine with all cores against an engine a core, in latency and in throughput. By
 *   the clock: measure it on a machine that does nothing else.
 *
 * node bench/precisions.ts [--model isnet] [--rounds 5] [--layouts]
 */
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { pino } from 'pino';
import { prepareModel } from '../inference-node/model-tools/preparing/prepare.ts';
import { InferenceSession, Tensor } from '../inference-node/serving/engine/child/onnx-runtime.ts';
import { createAnswering } from '../inference-node/serving/engine/choice/run-once.ts';
import type { EnginePool } from '../inference-node/serving/engine/pool/engine-pool.ts';
import { openEnginePool } from '../inference-node/serving/engine/pool/open-engine-pool.ts';
import { loadManifest } from '../inference-node/serving/models/manifest.ts';
import type { Precision, PreparedModel } from '../inference-node/serving/models/prepared-model.ts';
import { drawCheckPicture } from '../inference-node/serving/prepared/answer-check.ts';
import { detectInstructionSet } from '../inference-node/serving/prepared/instruction-set.ts';
import { at } from '../test/support/at.ts';
import { toPlanes } from './model-photo.ts';
import { writeResults } from './results.ts';
import { median } from './service.ts';

const RUNS_A_ROUND = 8;
const childEnv = { PATH: process.env.PATH ?? '' };
const log = pino({ level: 'silent' });

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: 'isnet' },
    rounds: { type: 'string', default: '5' },
    layouts: { type: 'boolean', default: false },
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

async function measureLayouts(precision: Precision) {
  const model = await prepare(manifest.inputSize.default, precision);
  const layouts = [
    { engines: 1, threadsPerEngine: cores },
    { engines: cores, threadsPerEngine: 1 },
  ];
  const pools = layouts.map(layout => openEnginePool({ model, ...layout, childEnv, log }));
  const measured = layouts.map(() => ({ latencyMs: [] as number[], perS: [] as number[] }));
  try {
    await Promise.all(pools.map(pool => pool.ready()));
    for (let round = 0; round <= rounds; round++) {
      for (const [index, pool] of pools.entries()) {
        const latencyMs = await timeRuns(pool, model, 1);
        const perS = (1000 * RUNS_A_ROUND) / (await timeRuns(pool, model, RUNS_A_ROUND));
        if (round === 0) continue;
        at(measured, index).latencyMs.push(latencyMs);
        at(measured, index).perS.push(perS);
      }
    }
    const { residentBytes } = at(at(pools, 0).processes(), 0);
    const [one, each] = [at(measured, 0), at(measured, 1)];
    return {
      [`${precision}EngineMb`]: (residentBytes ?? Number.NaN) / 1e6,
      [`${precision}LatencyRatioOfOneEngine`]: median(one.latencyMs) / median(each.latencyMs),
      [`${precision}ThroughputRatioOfEngineACore`]: median(each.perS) / median(one.perS),
    };
  } finally {
    await Promise.all(pools.map(pool => pool.close(0)));
  }
}

/** Runs so many at once; ms until the last is back. */
async function timeRuns(pool: EnginePool, model: PreparedModel, runs: number): Promise<number> {
  const rgb = drawCheckPicture(model.inputWidth, model.inputHeight);
  const { signal } = new AbortController();
  const startedMs = performance.now();
  await Promise.all(
    Array.from({ length: runs }, () => pool.run({ rgb, priority: 'sync', signal })),
  );
  return performance.now() - startedMs;
}

const results: Record<string, unknown> = { model: manifest.name, runs: await measureRuns() };
if (values.layouts) {
  for (const precision of ['fp32', 'int8'] as const) {
    Object.assign(results, await measureLayouts(precision));
  }
}
writeResults('precisions', results);
