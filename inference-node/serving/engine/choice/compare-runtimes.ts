/** Runs a prepared graph by both runtimes in turns, each in an engine of its own, on one thread. */
import { pino } from 'pino';
import { type PreparedModel, runtimeOf } from '../../models/prepared-model.ts';
import { drawCheckInput, type RuntimeTools } from '../../prepared/answer-check.ts';
import { readProcessorTicks } from '../../process/proc-files.ts';
import type { EnginePool } from '../pool/engine-pool.ts';
import { openEnginePool } from '../pool/open-engine-pool.ts';

/** Of each. The fastest of them is compared: what disturbs a run makes it slower, never faster. */
const ROUNDS = 5;
const CLOSE_MAX_MS = 5_000;

/** @param childEnv the engines' whole environment */
export function runtimeTools(childEnv: Readonly<Record<string, string>>): RuntimeTools {
  return {
    async compile(model, library, exportTo) {
      await using engine = openAlone({ ...model, openvino: { library, exportTo } }, childEnv);
      await engine.pool.ready();
    },
    async compare(onnxruntimeModel, openvinoModel, signal) {
      await using first = openAlone(onnxruntimeModel, childEnv);
      await using second = openAlone(openvinoModel, childEnv);
      const engines = [first, second];
      await Promise.all(engines.map(({ pool }) => pool.ready()));
      const rgb = drawCheckInput(onnxruntimeModel);
      for (let round = 0; round < ROUNDS; round++) {
        for (const engine of engines) await engine.run(rgb, signal);
      }
      const [onnxruntime, openvino] = [first.best(), second.best()];
      const alphas = { onnxruntime: onnxruntime.alpha, openvino: openvino.alpha };
      return { timeShare: openvino.ticks / onnxruntime.ticks, alphas };
    },
  };
}

interface Best {
  readonly ticks: number;
  readonly alpha: Uint8Array;
}

function openAlone(model: PreparedModel, childEnv: Readonly<Record<string, string>>) {
  // Whoever compares says what came of it.
  const log = pino({ level: 'silent' });
  const pool: EnginePool = openEnginePool({
    model,
    engines: 1,
    threadsPerEngine: 1,
    childEnv,
    log,
  });
  let best: Best | undefined;
  return {
    pool,
    async run(rgb: Uint8Array, signal: AbortSignal) {
      const pid = pool.processes()[0]?.pid;
      if (pid === undefined) throw new Error(`${runtimeOf(model)} has no process`);
      const before = readProcessorTicks(pid);
      const { alpha } = await pool.run({ rgb, priority: 'sync', signal });
      const ticks = readProcessorTicks(pid) - before;
      if (best === undefined || ticks < best.ticks) best = { ticks, alpha };
    },
    best(): Best {
      if (best === undefined) throw new Error(`${runtimeOf(model)} ran nothing`);
      return best;
    },
    [Symbol.asyncDispose]: () => pool.close(CLOSE_MAX_MS),
  };
}
