/**
 * Runs a prepared graph by both runtimes alternately, each in an engine of its own on one thread.
 * OpenVINO may crash, hang or take all memory on a graph, so each engine is bounded.
 */
import { pino } from 'pino';
import { type PreparedModel, runtimeOf } from '../../models/prepared-model.ts';
import {
  drawCheckInput,
  GraphRefusedError,
  type RuntimeTools,
} from '../../prepared/answer-check.ts';
import { TIME_SHARE_MAX } from '../../prepared/cpu-runtime.ts';
import { readPeakBytes, readProcessorTicks } from '../../process/proc-files.ts';
import { saysMemoryRanOut } from '../engine-protocol.ts';
import { dataBytesOf } from '../pool/engine-bounds.ts';
import type { EnginePool } from '../pool/engine-pool.ts';
import { openEnginePool } from '../pool/open-engine-pool.ts';

/** Rounds of each runtime. The fastest counts, since disturbances only slow a run. */
const ROUNDS = 5;
/** Rounds if the ratio is near TIME_SHARE_MAX, so that equal machines choose equally. */
const ROUNDS_NEAR = 20;
const NEAR = 0.06;
/** Two rounds suffice for runs of this many processor ticks (10 ms). BiRefNet lite takes 800. */
const LONG_TICKS = 300;
const ROUNDS_OF_LONG = 2;
const CLOSE_MAX_MS = 5_000;
/** On two idle cores compiling takes 1.5 s a model; two loads and twelve runs take 15 s. */
const COMPILE_MAX_MS = 120_000;
const COMPARE_MAX_MS = 600_000;

/**
 * Messages of OpenVINO's functions that read the graph, and of an engine about open sizes, mean
 * that it refuses the graph.
 */
const REFUSES =
  /\bov_(?:core_read_model|model_reshape_single_input|core_compile_model_props) failed|a size in the graph is open/;

interface AloneOptions {
  readonly childEnv: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

export function runtimeTools(childEnv: AloneOptions['childEnv']): RuntimeTools {
  return {
    compile: (model, library, exportTo, aborted) =>
      bounded(COMPILE_MAX_MS, aborted, async signal => {
        const compiling = { ...model, openvino: { library, exportTo } };
        await using engine = openAlone(compiling, { childEnv, signal });
        await engine.pool.ready().catch(({ message }: Error) => {
          if (!REFUSES.test(message) || saysMemoryRanOut(message)) throw new Error(message);
          throw new GraphRefusedError(message);
        });
      }),
    compare: (onnxruntimeModel, openvinoModel, aborted) =>
      bounded(COMPARE_MAX_MS, aborted, async signal => {
        await using first = openAlone(onnxruntimeModel, { childEnv, signal });
        await using second = openAlone(openvinoModel, { childEnv, signal });
        const engines = [first, second];
        await Promise.all(engines.map(({ pool }) => pool.ready()));
        const rgb = drawCheckInput(onnxruntimeModel);
        const share = () => second.best().ticks / first.best().ticks;
        for (let round = 1; ; round++) {
          for (const engine of engines) await engine.run(rgb);
          if (round >= roundsOf(first.best().ticks, share())) break;
        }
        const [onnxruntime, openvino] = [first.best(), second.best()];
        const alphas = { onnxruntime: onnxruntime.alpha, openvino: openvino.alpha };
        const { peakBytes } = openvino;
        return { timeShare: share(), peakBytes, alphas };
      }),
  };
}

export function roundsOf(ticks: number, timeShare: number): number {
  if (ticks >= LONG_TICKS) return ROUNDS_OF_LONG;
  return Math.abs(timeShare - TIME_SHARE_MAX) < NEAR ? ROUNDS_NEAR : ROUNDS;
}

async function bounded<T>(
  maxMs: number,
  aborted: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const late = new AbortController();
  using _timer = setTimeout(() => late.abort(new Error(`it took over ${maxMs / 1000} s`)), maxMs);
  const signal = AbortSignal.any([aborted, late.signal]);
  try {
    return await work(signal);
  } catch (error) {
    // The errors of engines that the signal ended say only that they were closed.
    signal.throwIfAborted();
    throw error;
  }
}

interface Best {
  readonly ticks: number;
  readonly peakBytes: number;
  readonly alpha: Uint8Array;
}

function openAlone(model: PreparedModel, { childEnv, signal }: AloneOptions) {
  const log = pino({ level: 'silent' });
  const pool: EnginePool = openEnginePool({
    ...{ model, engines: 1, threadsPerEngine: 1, childEnv, log },
    dataBytesMax: model.openvino && dataBytesOf(model, 1),
  });
  const close = () => pool.close(0);
  signal.addEventListener('abort', close, { once: true });
  if (signal.aborted) void close();
  let best: Omit<Best, 'peakBytes'> | undefined;
  let peakBytes = 0;
  return {
    pool,
    async run(rgb: Uint8Array) {
      const pid = pool.processes()[0]?.pid;
      if (pid === undefined) throw new Error(`${runtimeOf(model)} has no process`);
      const before = readProcessorTicks(pid);
      const { alpha } = await pool.run({ rgb, priority: 'sync', signal });
      // A graph of a few operators takes less than a tick.
      const ticks = Math.max(1, readProcessorTicks(pid) - before);
      peakBytes = readPeakBytes(pid) ?? 0;
      if (best === undefined || ticks < best.ticks) best = { ticks, alpha };
    },
    best(): Best {
      if (best === undefined) throw new Error(`${runtimeOf(model)} ran nothing`);
      return { ...best, peakBytes };
    },
    [Symbol.asyncDispose]: () => pool.close(CLOSE_MAX_MS),
  };
}
