/** WebGPU on a real adapter, mostly Mesa's in software: slow, so no limit of time. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import path from 'node:path';
import ava from 'ava';
import pino from 'pino';
import { mendDeformableConvolutions } from '../../inference-node/model-tools/onnx/mend.ts';
import { prepareModel } from '../../inference-node/model-tools/preparing/prepare.ts';
import { stockDeformable } from '../../inference-node/model-tools/test/stock-deformable.ts';
import {
  createAnswering,
  runOnce,
} from '../../inference-node/serving/engine/choice/answer-picture.ts';
import {
  compareAlphas,
  PROBE_SPEC,
  requireParity,
  selectExecutionProvider,
} from '../../inference-node/serving/engine/choice/execution-provider.ts';
import { openEnginePool } from '../../inference-node/serving/engine/pool/open-engine-pool.ts';
import { loadManifest } from '../../inference-node/serving/models/manifest.ts';
import type { ExecutionProvider } from '../../inference-node/serving/models/prepared-model.ts';
import { encodeModel, type Graph } from '../../inference-node/serving/onnx/graph.ts';
import { drawCheckPicture } from '../../inference-node/serving/prepared/answer-check.ts';
import { ROOT } from '../running-service.ts';
import { isNotTested } from '../support/skip.ts';
import { rejectsWith } from '../support/throws.ts';
import { type TinyModelKind, writeTinyModel } from '../support/tiny-model.ts';

const CACHE = process.env.XDG_CACHE_HOME || path.join(homedir(), '.cache');
/** test/support/webgpu/fetch-mesa.sh puts it there. */
const FETCHED = path.join(CACHE, 'matting-test-tools/mesa');
const ICD_FILE = 'lvp_icd.json';

const skip = await skipWithoutAdapter();
const test = ava.serial.skipIf(isNotTested(skip));

const SIDE_PX = 32;
const HANG_MS = 280_000;
const childEnv = adapterEnv();

/** Gives the variables by which engines find it; none for one that is installed. */
function adapterEnv(): Record<string, string> {
  const icd = path.join(FETCHED, ICD_FILE);
  if (!existsSync(icd)) return {};
  return { LD_LIBRARY_PATH: FETCHED, VK_DRIVER_FILES: icd };
}

/** False: WebGPU runs here. With MATTING_TEST_REQUIRE_WEBGPU the tests fail where it does not. */
async function skipWithoutAdapter(): Promise<string | false> {
  if (process.env.MATTING_TEST_REQUIRE_WEBGPU) return false;
  try {
    await selectExecutionProvider('webgpu', { childEnv: adapterEnv() });
    return false;
  } catch (error) {
    return (error as Error).message;
  }
}

let folder: string;

ava.serial.before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'webgpu-'));
});
ava.serial.after.always(() => rm(folder, { recursive: true }));

test('is found by its name', async t => {
  const { selected } = await selectExecutionProvider('webgpu', { childEnv, timeoutMs: HANG_MS });
  t.is(selected, 'webgpu');
});

test("gives an engine's matte to the byte, one run after the other", async t => {
  const alphas = await runTiny('mean', [255, 0, 128, 30]);
  t.deepEqual(alphas, [255, 0, 128, 30]);
});

test('clamps what a graph computes below 0 and above 1', async t => {
  // 3 * mean - 1 of 0, 1/3, 0.4 and 1.
  t.deepEqual(await runTiny('overshoot', [0, 85, 102, 255]), [0, 0, 51, 255]);
});

test('finds a matte that is not a number', async t => {
  await rejectsWith(t, runTiny('not-a-number', [0]), error => {
    t.regex(String((error as Error).cause), /values that are not numbers/);
    return true;
  });
});

test("makes u2netp's matte at 128 as the CPU does, and is refused where that takes too long", async t => {
  const model = await prepareU2netp(128);
  const options = { childEnv, cpuThreads: 1, timeoutMs: HANG_MS };
  await requireParity(model, { ...options, runMsMax: HANG_MS });
  await t.throwsAsync(requireParity(model, { ...options, runMsMax: 0 }), {
    message: /webgpu does not run here: it is too slow: a run of u2netp at 128x128 takes \S+ s/,
  });
});

test('runs a mended deformable convolution without a node on the CPU', async t => {
  const stock = stockDeformable({ outputs: 1, kernel: 7, height: 24, width: 20 });
  const { graph } = mendDeformableConvolutions(stock, 'grid-sample-taps');
  const size = { inputWidth: 20, inputHeight: 24 };
  const rgb = drawCheckPicture(20, 24);
  const run = (provider: ExecutionProvider, source: Graph) => {
    const allowCpuNodes = provider === 'cpu';
    const spec = {
      ...PROBE_SPEC,
      ...size,
      activation: 'sigmoid',
      provider,
      allowCpuNodes,
    } as const;
    const bytes = Buffer.concat([...encodeModel(source)]);
    return runOnce({ spec, graph: bytes, rgb, childEnv, timeoutMs: HANG_MS });
  };
  const { alpha: expected } = await run('cpu', stock);
  const { alpha } = await run('webgpu', graph);
  t.true(compareAlphas(expected, alpha).max <= 1);
  t.true(new Set(expected).size > 50, 'it has something to compare');
});

/** The alpha of pictures of one grey each; every pixel of a picture has the same. */
async function runTiny(kind: TinyModelKind, greys: readonly number[]): Promise<number[]> {
  const model = await writeTinyModel(folder, { kind, width: SIDE_PX, height: SIDE_PX });
  const pool = openEnginePool({
    ...{ model: { ...model, provider: 'webgpu' }, engines: 1, threadsPerEngine: 1, childEnv },
    log: pino({ level: 'silent' }),
  });
  try {
    await pool.ready();
    const { signal } = new AbortController();
    const alphas: number[] = [];
    for (const grey of greys) {
      const rgb = new Uint8Array(3 * SIDE_PX * SIDE_PX).fill(grey);
      const { alpha } = await pool.run({ rgb, priority: 'sync', signal });
      const [first, ...others] = new Set(alpha);
      assert.deepEqual(others, []);
      alphas.push(first ?? -1);
    }
    return alphas;
  } finally {
    await pool.close(0);
  }
}

async function prepareU2netp(side: number) {
  const cacheDir = path.join(ROOT, 'model-cache');
  const command = ['bin/matting.ts', 'models', 'fetch', 'u2netp', '--weights-only'];
  execFileSync(process.execPath, command, { cwd: ROOT, stdio: 'ignore' });
  return await prepareModel({
    manifest: await loadManifest('u2netp', path.join(ROOT, 'models')),
    ...{ cacheDir, provider: 'webgpu', precision: 'fp32' },
    inputSize: { width: side, height: side },
    answering: createAnswering({ childEnv: {}, threads: 1 }),
  });
}
