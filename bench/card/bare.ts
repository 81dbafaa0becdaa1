/**
 * Engines that always find work, nothing around them: images a second by model, precision, engines. An image's time is that of its run, the hop to the engine included.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { pino } from 'pino';
import type { EnginePool } from '../../inference-node/serving/engine/pool/engine-pool.ts';
import { openEnginePool } from '../../inference-node/serving/engine/pool/open-engine-pool.ts';
import type { PreparedModel } from '../../inference-node/serving/models/prepared-model.ts';
import { drawCheckPicture } from '../../inference-node/serving/prepared/answer-check.ts';
import { cpuMsOf } from '../processes.ts';
import { type Card, type Graph, percentile, shown } from './card.ts';
import type { AddRow, Figures } from './options.ts';

/** The warm-up before a figure counts is this share of its measurement. */
export const WARM_UP_SHARE = 0.25;

export async function measureBare(card: Card, addRow: AddRow): Promise<void> {
  const { graphs, engines } = card.options;
  for (const graph of graphs) {
    for (const count of engines) {
      const name = `${graph.model} ${graph.side} ${graph.precision}`;
      await addRow(`${name}, ${count}`, () => measureCell(card, graph, count, card.engineEnv));
    }
  }
}

export async function measureCell(
  card: Card,
  graph: Graph,
  engines: number,
  childEnv: Readonly<Record<string, string>>,
) {
  const { provider } = card.options;
  const model = await card.prepare(graph);
  const device = card.newDevice();
  const pool = openEnginePool({
    ...{ model, engines },
    threadsPerEngine: provider === 'cpu' ? Math.max(1, Math.floor(card.cores / engines)) : 1,
    device,
    ...{ childEnv, log: pino({ level: 'warn' }, pino.destination(2)) },
  });
  card.ending.addEventListener('abort', () => void pool.close(0), { once: true });
  try {
    await pool.ready();
    while (pool.snapshot().enginesReady < engines) {
      const { state, failure } = pool.snapshot();
      if (state === 'failed') throw new Error(failure);
      await delay(20, undefined, { signal: card.ending });
    }
    // Its next process would use the binding, whatever the row says.
    if (pool.metrics().deaths.load > 0) throw new Error('an engine was lost at its load');
    return await keepFull(card, pool, model, engines);
  } finally {
    await pool.close(0);
  }
}

async function keepFull(
  { options, ending: signal, gpuBetween }: Card,
  pool: EnginePool,
  model: PreparedModel,
  engines: number,
): Promise<Figures> {
  const rgb = drawCheckPicture(model.inputWidth, model.inputHeight);
  const inferMs: number[] = [];
  const pids = pool.processes().map(({ pid }) => pid);
  const cpuMs = () => pids.reduce((sum, pid) => sum + cpuMsOf(pid), 0);
  const forMs = 1000 * options.each;
  const fromMs = performance.now() + forMs * WARM_UP_SHARE;
  const toMs = fromMs + forMs;
  const caller = async () => {
    while (performance.now() < toMs) {
      const { inferMs: ms } = await pool.run({ rgb, priority: 'sync', signal });
      const nowMs = performance.now();
      if (nowMs >= fromMs && nowMs <= toMs) inferMs.push(ms);
    }
  };
  // One caller waits, so that an engine that becomes free finds work.
  const callers = Promise.all(Array.from({ length: engines + 1 }, caller));
  callers.catch(() => undefined);
  await delay(fromMs - performance.now(), undefined, { signal });
  const [before, loop] = [cpuMs(), performance.eventLoopUtilization()];
  await delay(toMs - performance.now(), undefined, { signal });
  const used = cpuMs() - before;
  // The main thread works as a node's does between picture workers and engines.
  const feedBusy = performance.eventLoopUtilization(loop).utilization;
  await callers;
  return {
    imagesPerS: shown((1000 * inferMs.length) / forMs),
    p50Ms: shown(percentile(inferMs, 0.5)),
    p99Ms: shown(percentile(inferMs, 0.99)),
    engineCpuMsAnImage: shown(used / inferMs.length),
    feedBusy: shown(feedBusy),
    ...gpuBetween(fromMs, toMs),
  };
}
