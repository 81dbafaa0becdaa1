/**
 * ONNX Runtime's real CUDA provider on stand-in libraries: everything except the arithmetic.
 * MATTING_TEST_CUDA_WHEEL names the wheel; skipped without it or a C compiler.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import ava, { type ExecutionContext } from 'ava';
import pino from 'pino';
import {
  bytesAtBothEnds,
  keepOutput,
  liftConstants,
  resizeInHalf,
  setInputSize,
} from '../../inference-node/model-tools/onnx/rewrites.ts';
import { installCuda } from '../../inference-node/model-tools/providers/install-cuda.ts';
import { graphBytes, tinyGraph } from '../../inference-node/model-tools/test/tiny-graph.ts';
import {
  ExecutionProviderError,
  selectExecutionProvider,
} from '../../inference-node/serving/engine/choice/execution-provider.ts';
import {
  encodeProbeGraph,
  PROBE_SIZE_PX,
  PROBE_SPEC,
} from '../../inference-node/serving/engine/choice/gpu-probe-graph.ts';
import { runOnce } from '../../inference-node/serving/engine/choice/run-once.ts';
import { GpuDevice } from '../../inference-node/serving/engine/devices/gpu-device.ts';
import type { EnginePool } from '../../inference-node/serving/engine/pool/engine-pool.ts';
import { openEnginePool } from '../../inference-node/serving/engine/pool/open-engine-pool.ts';
import { drawCheckPicture } from '../../inference-node/serving/prepared/answer-check.ts';
import { C_INTERFACE_VARIABLE } from '../../inference-node/serving/providers/c-interface.ts';
import { readEngineEnvironment } from '../../inference-node/serving/providers/provider-files.ts';
import { untilPool } from '../../inference-node/serving/test/pool-harness.ts';
import { isNotTested } from '../support/skip.ts';
import { rejectsWith } from '../support/throws.ts';
import { writeTinyModel } from '../support/tiny-model.ts';
import { buildStubs } from './build-stubs.ts';

const WHEEL = process.env.MATTING_TEST_CUDA_WHEEL;
const COUNTERS = { copiesTo: 0, bytesTo: 1, copiesFrom: 2, bytesFrom: 3, launches: 4 } as const;
const SIDE_PX = 64;
const SIZE = { width: SIDE_PX, height: SIDE_PX };
const PIXELS = SIDE_PX * SIDE_PX;
const FLOAT_BYTES = 4;
const DOUBLE_BYTES = 8;

let folder: string;
let stubs: string;
let childEnv: Readonly<Record<string, string>>;

const skip = WHEEL === undefined ? 'MATTING_TEST_CUDA_WHEEL names no wheel' : false;
const test = ava.serial.skipIf(isNotTested(skip));

ava.serial.before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'cuda-stubs-'));
  stubs = await mkdtemp(path.join(folder, 'libraries-'));
  assert.equal(buildStubs(stubs), undefined);
  const providerDir = path.join(folder, 'providers');
  const from = WHEEL as string;
  await installCuda({ providerDir, from, env: {}, signal: new AbortController().signal });
  ({ childEnv } = await readEngineEnvironment(providerDir, { LD_LIBRARY_PATH: stubs }));
});
ava.serial.after.always(() => rm(folder, { recursive: true }));

test('says in one line what is missing', async t => {
  const { LD_LIBRARY_PATH: _, ...without } = childEnv;
  await refused(t, without, /: lib\w+\.so\.\d+ is missing \(/);
});

test('ends at a driver without a device with the line that matters', async t => {
  await refused(
    t,
    { ...childEnv, CUDA_STUB_DEVICES: '0' },
    /here: CUDA failure 100: no CUDA-capable device is detected$/,
  );
});

test('is refused where it computes another matte than the CPU', async t => {
  await refused(t, childEnv, /it computes another matte than the CPU \(mean difference/);
});

test('copies a picture in and its matte out, once each a run', async t => {
  const read = await counted(async env => {
    const { alpha } = await runOnce({
      spec: { ...PROBE_SPEC, provider: 'cuda' },
      graph: encodeProbeGraph(),
      rgb: drawCheckPicture(PROBE_SIZE_PX, PROBE_SIZE_PX),
      childEnv: env,
      timeoutMs: 120_000,
    });
    t.is(alpha.length, PIXELS);
  });
  // Two warm-ups and the run itself.
  t.is(read('copiesFrom'), 3);
  t.is(read('bytesFrom'), 3 * PIXELS * FLOAT_BYTES);
  t.true(read('bytesTo') >= 3 * 3 * PIXELS * FLOAT_BYTES);
  t.true(read('launches') > 0);
});

test('takes bytes and answers with bytes, half precision within, without the CPU', async t => {
  const read = await counted(async env => {
    const { alpha } = await runOnce({
      spec: { ...PROBE_SPEC, provider: 'cuda' },
      graph: graphOfBytes(),
      rgb: drawCheckPicture(SIDE_PX, SIDE_PX),
      childEnv: env,
      timeoutMs: 120_000,
    });
    t.is(alpha.length, PIXELS);
  });
  t.is(read('bytesFrom'), 3 * (PIXELS + DOUBLE_BYTES));
  t.is(read('copiesFrom'), 2 * 3);
});

test('the C interface runs on the provider with its options, and waits as it is told', async t => {
  const flags = path.join(folder, 'flags');
  const launchesWith = async (options: string) => {
    const read = await counted(async env => {
      const { alpha } = await runOnce({
        spec: { ...PROBE_SPEC, provider: 'cuda' },
        graph: graphOfBytes(),
        rgb: drawCheckPicture(SIDE_PX, SIDE_PX),
        childEnv: { ...env, [C_INTERFACE_VARIABLE]: options, CUDA_STUB_FLAGS: flags },
        timeoutMs: 120_000,
      });
      t.is(alpha.length, PIXELS);
    });
    t.is(read('bytesFrom'), 3 * (PIXELS + DOUBLE_BYTES));
    return read('launches');
  };
  const channelsFirst = await launchesWith('');
  await t.throwsAsync(readFile(flags), { code: 'ENOENT' });
  // Layouts are converted.
  t.not(await launchesWith('nhwc,blocking-waits'), channelsFirst);
  t.is(await readFile(flags, 'utf8'), '0 4');
  const env = { ...childEnv, [C_INTERFACE_VARIABLE]: 'blocking-waits', CUDA_STUB_DEVICES: '0' };
  await refused(t, env, /here: CUDA failure 100: no CUDA-capable device is detected$/);
});

test('says of operators that it has no kernel for that they run on the CPU', async t => {
  const source = liftConstants(keepOutput('output')(tinyGraph({ side: SIDE_PX })));
  const bytes = bytesAtBothEnds(PROBE_SPEC, SIZE)(setInputSize(source, SIZE, SIZE));
  // MaxPool lacks opset 22; the graph's other operators have it.
  const path22 = path.join(folder, 'opset22.onnx');
  const graph = graphBytes({ ...bytes, opsets: [{ domain: '', version: 22 }] });
  await writeFile(path22, graph);
  const tiny = await writeTinyModel(folder, SIZE);
  const model = { ...tiny, path: path22, provider: 'cuda' } as const;
  const sha256 = createHash('sha256').update(graph).digest('hex');
  const lines: string[] = [];
  const log = pino({}, { write: (text: string) => void lines.push(JSON.parse(text).line) });
  const options = { engines: 1, threadsPerEngine: 1, childEnv, log };
  const pool = openEnginePool({ model: { ...model, sha256 }, ...options });
  try {
    await pool.ready();
    const said = `${path22} has operators without a kernel of CUDA: they run on the CPU`;
    t.true(lines.includes(said), lines.join('\n'));
  } finally {
    await pool.close(0);
  }
});

test('a device that is lost ends the engines on it, and no others', async t => {
  const lost = path.join(folder, 'lost');
  await writeFile(lost, '');
  const model = await writeTinyModel(folder, SIZE);
  const devices = [deviceOf('GPU-one'), deviceOf('GPU-two')] as const;
  const [one, two] = devices;
  const [pool, other] = devices.map(device =>
    openEnginePool({
      model: { ...model, provider: 'cuda' },
      engines: 1,
      threadsPerEngine: 1,
      device,
      childEnv: { ...childEnv, CUDA_STUB_LOST: lost },
      log: pino({ level: 'silent' }),
    }),
  ) as [EnginePool, EnginePool];
  try {
    for (const each of [pool, other]) await each.ready();
    await writeFile(lost, 'GPU-one\n');
    const rgb = new Uint8Array(3 * PIXELS);
    const { signal } = new AbortController();
    await t.throwsAsync(pool.run({ rgb, priority: 'sync', signal }));
    await untilPool(pool, () => one.outReason !== undefined);
    t.is(one.outReason, 'CUDA failure 100: no CUDA-capable device is detected');
    t.deepEqual([pool.snapshot().state, two.outReason], ['failed', undefined]);
    await other.run({ rgb, priority: 'sync', signal });
  } finally {
    for (const each of [pool, other]) await each.close(0);
  }
});

/** Counts of the stand-ins during `run`. */
async function counted(run: (env: Record<string, string>) => Promise<void>) {
  const counts = path.join(folder, 'counts');
  await writeFile(counts, Buffer.alloc(8 * 8));
  await run({ ...childEnv, CUDA_STUB_COUNTS: counts });
  const numbers = await readFile(counts);
  return (name: keyof typeof COUNTERS) => Number(numbers.readBigUInt64LE(8 * COUNTERS[name]));
}

/** Half precision inside, bytes at both ends. */
function graphOfBytes(): Uint8Array {
  const source = liftConstants(keepOutput('output')(tinyGraph({ side: SIDE_PX, half: true })));
  const half = resizeInHalf(setInputSize(source, SIZE, SIZE), [1, 3, SIDE_PX, SIDE_PX]);
  return graphBytes(bytesAtBothEnds(PROBE_SPEC, SIZE)(half));
}

async function refused(
  t: ExecutionContext,
  env: Record<string, string>,
  message: RegExp,
): Promise<void> {
  await rejectsWith(t, selectExecutionProvider('cuda', { childEnv: env }), error => {
    assert.ok(error instanceof ExecutionProviderError, String(error));
    t.regex(error.message, message);
    return true;
  });
}

function deviceOf(id: string): GpuDevice {
  return new GpuDevice({ id, index: 0, name: 'a stub', memoryBytes: 80e9, driver: '580' });
}
