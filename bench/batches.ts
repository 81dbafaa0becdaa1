/**
 * Several pictures in one run of a model: whether each has the matte that it has alone, byte by
 * byte, and what a picture costs by how many there are, in turns in one run. On a CPU in this
 * process, with its processor time and memory; on a GPU in an engine, by the clock.
 *
 * node bench/batches.ts [--provider cpu] [--made-for cuda] [--rounds 5] [--threads 2] model,size,precision …
 *
 * `--made-for cuda --provider cpu` runs on a CPU what is prepared for CUDA, bytes at its ends.
 */
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { readChildEnv } from '../inference-node/src/config.ts';
import { EngineSession } from '../inference-node/src/engine/child/engine-session.ts';
import { createAnswering } from '../inference-node/src/engine/choice/answer-picture.ts';
import { runSeries } from '../inference-node/src/engine/choice/run-once.ts';
import { createSessionSpec } from '../inference-node/src/engine/engine-protocol.ts';
import { loadManifest } from '../inference-node/src/models/manifest.ts';
import {
  BATCH_SIZES,
  type ExecutionProvider,
  type Precision,
  type PreparedModel,
} from '../inference-node/src/models/prepared-model.ts';
import { drawCheckPicture } from '../inference-node/src/models/preparing/check-picture.ts';
import { detectInstructionSet } from '../inference-node/src/models/preparing/instruction-set.ts';
import { prepareModel } from '../inference-node/src/models/preparing/prepare.ts';
import { prepareBatches } from '../inference-node/src/models/preparing/prepare-batches.ts';
import { readEngineEnvironment } from '../inference-node/src/providers/engine-environment.ts';
import { at } from '../test/support/at.ts';
import { writeResults } from './results.ts';
import { median } from './service.ts';

const RUN_MAX_MS = 600_000;
const SIZES = [1, ...BATCH_SIZES];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    provider: { type: 'string', default: 'cpu' },
    rounds: { type: 'string', default: '5' },
    threads: { type: 'string', default: String(availableParallelism()) },
    'made-for': { type: 'string' },
  },
});
const provider = values.provider as ExecutionProvider;
const rounds = Number(values.rounds);
const threads = provider === 'cpu' ? Number(values.threads) : 1;
const weightsDir = path.resolve(process.env.MATTING_MODEL_DIR || 'model-cache');
const cacheDir = mkdtempSync(path.join(tmpdir(), 'matting-batches-'));
const session = { deviceId: 0, intraOpThreads: threads, sharesCores: false, allowCpuNodes: true };

/** What a run took and, where it is known, its processor time; and the mattes. */
interface Measured {
  readonly ms: number;
  readonly cpuMs: number;
  readonly alphas: readonly Uint8Array[];
}

async function prepare(name: string, side: number, precision: Precision): Promise<PreparedModel> {
  const childEnv = readChildEnv(process.env);
  const model = await prepareModel({
    manifest: await loadManifest(name),
    ...{ cacheDir, weightsDir, precision },
    provider: (values['made-for'] ?? provider) as ExecutionProvider,
    inputSize: { width: side, height: side },
    instructionSet: await detectInstructionSet(),
    answering: createAnswering({ childEnv, threads: availableParallelism() }),
  });
  return { ...(await prepareBatches(model, at(BATCH_SIZES, BATCH_SIZES.length - 1))), provider };
}

/** Light and shade of their own each: no two have the same matte. */
function drawPictures(side: number): readonly Uint8Array[] {
  const picture = drawCheckPicture(side, side);
  return Array.from({ length: at(SIZES, SIZES.length - 1) }, (_, index) => {
    const moved = new Uint8Array(picture.length);
    const shift = 3 * side * Math.floor((index * side) / 16) + 3 * 7 * index;
    moved.set(picture.subarray(shift));
    moved.set(picture.subarray(0, shift), picture.length - shift);
    return moved;
  });
}

async function measureHere(
  model: PreparedModel,
  runs: readonly (readonly Uint8Array[])[],
): Promise<readonly Measured[]> {
  const { session: loaded } = await EngineSession.load(createSessionSpec(model, session));
  const measured: Measured[] = [];
  for (const pictures of runs) {
    const before = process.cpuUsage();
    const from = performance.now();
    const alphas = (await loaded.run(pictures)).map(alpha => Uint8Array.from(alpha));
    const ms = performance.now() - from;
    const { user, system } = process.cpuUsage(before);
    measured.push({ ms, cpuMs: (user + system) / 1000, alphas });
  }
  return measured;
}

async function measureThere(
  model: PreparedModel,
  runs: readonly (readonly Uint8Array[])[],
): Promise<readonly Measured[]> {
  const providerDir = path.resolve(process.env.MATTING_PROVIDER_DIR || `${weightsDir}/providers`);
  const { childEnv } = await readEngineEnvironment(providerDir, readChildEnv(process.env));
  const spec = createSessionSpec(model, session);
  const answers = await runSeries({ spec, runs, childEnv, timeoutMs: RUN_MAX_MS });
  return answers.map(({ alphas, runMs }) => ({ ms: runMs, cpuMs: Number.NaN, alphas }));
}

/** The largest difference of a byte, and how many differ, of all mattes of a round. */
function compare(pictures: number, round: readonly Measured[], alone: readonly Uint8Array[]) {
  const { alphas } = at(round, SIZES.indexOf(pictures));
  let differing = 0;
  let largest = 0;
  for (const [index, alpha] of alphas.entries()) {
    for (let i = 0; i < alpha.length; i++) {
      const difference = Math.abs((alpha[i] ?? 0) - (at(alone, index)[i] ?? 0));
      if (difference > 0) differing += 1;
      largest = Math.max(largest, difference);
    }
  }
  return { differing, largest };
}

const results: Record<string, unknown> = { provider, threads };
try {
  for (const graph of positionals) {
    const [name = '', size = '', precision = ''] = graph.split(',');
    const model = await prepare(name, Number(size), precision as Precision);
    const pictures = drawPictures(Number(size));
    const round = SIZES.map(images => pictures.slice(0, images));
    const turns = Array.from({ length: rounds }, () => round).flat();
    const runs = [...pictures.map(picture => [picture]), ...turns];
    const measured = await (provider === 'cpu' ? measureHere : measureThere)(model, runs);
    const alone = measured.slice(0, pictures.length).map(({ alphas }) => at(alphas, 0));
    const timed = measured.slice(pictures.length);
    const ofSize = (place: number) => timed.filter((_, index) => index % SIZES.length === place);
    const each = (place: number, of: 'ms' | 'cpuMs') =>
      median(ofSize(place).map(run => run[of])) / at(SIZES, place);
    for (const [place, images] of SIZES.entries()) {
      const { batches = [] } = model;
      results[`${graph} x${images}`] = {
        ...compare(images, timed.slice(-SIZES.length), alone),
        msAnImage: each(place, 'ms'),
        ofOne: each(place, 'ms') / each(0, 'ms'),
        ...(provider === 'cpu' && { cpuOfOne: each(place, 'cpuMs') / each(0, 'cpuMs') }),
        fileBytes: statSync(batches[place - 1]?.path ?? model.path).size,
      };
    }
  }
  writeResults('batches', results);
} finally {
  rmSync(cacheDir, { recursive: true, force: true });
}
