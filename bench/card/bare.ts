/**
 * Engines that always find work, nothing around them: images a second by model, precision, engines
 * and images at once. An image's time is that of its run, the hop to the engine included.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { pino } from 'pino';
import type { EnginePool } from '../../inference-node/serving/engine/pool/engine-pool.ts';
import { openEnginePool } from '../../inference-node/serving/engine/pool/open-engine-pool.ts';
import {
  imagesARun,
  type PreparedModel,
} from '../../inference-node/serving/models/prepared-model.ts';
import { drawCheckPicture } from '../../inference-node/serving/prepared/answer-check.ts';
import { prepareBatches } from '../../inference-node/serving/prepared/load-prepared.ts';
import { cpuMsOf } from '../processes.ts';
import { type Card, type Graph, percentile, shown } from './card.ts';
import type { AddRow, Figures } from './options.ts';

/** Of what a figure is measured for: what is done before it counts. */
export const WARM_UP_SHARE = 0.25;

export async function measureBare(card: Card, addRow: AddRow): Promise<void> {
  const { graphs, engines, batches } = card.options;
  const several = batches.filter(images => images > 1);
  for (const graph of graphs) {
    // More engines with one image each, then more images in the fewest engines.
    const cells = [
      ...engines.map(count => ({ count, images: 1 })),
      ...engines.slice(0, 1).flatMap(count => several.map(images => ({ count, images }))),
    ];
    for (const { count, images } of cells) {
      const name = `${graph.model} ${graph.side} ${graph.precision}`;
      await addRow(`${name}, ${count} x ${images}`, () => measureCell(card, graph, count, images));
    }
  }
}

async function measureCell(card: Card, graph: Graph, engines: number, images: number) {
  const { provider } = card.options;
  const { batches, ...single } = await prepareBatches(await card.prepare(graph), images);
  // Every further graph would take its time to load.
  const own = batches?.filter(batch => batch.images === images);
  const model: PreparedModel = own ? { ...single, batches: own } : single;
  const device = card.newDevice();
  const pool = openEnginePool({
    ...{ model, engines },
    threadsPerEngine: provider === 'cpu' ? Math.max(1, Math.floor(card.cores / engines)) : 1,
    devices: device && Array.from({ length: engines }, () => device),
    childEnv: card.engineEnv(graph),
    log: pino({ level: 'silent' }),
  });
  card.ending.addEventListener('abort', () => void pool.close(0), { once: true });
  try {
    await pool.ready();
    while (pool.snapshot().enginesReady < engines) {
      const { state, failure } = pool.snapshot();
      if (state === 'failed') throw new Error(failure);
      await delay(20, undefined, { signal: card.ending });
    }
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
  // As many wait as an engine takes when it is free.
  const callers = Promise.all(Array.from({ length: (engines + 1) * imagesARun(model) }, caller));
  callers.catch(() => undefined);
  await delay(fromMs - performance.now(), undefined, { signal });
  const [before, loop] = [cpuMs(), performance.eventLoopUtilization()];
  await delay(toMs - performance.now(), undefined, { signal });
  const used = cpuMs() - before;
  // This thread does what a node's does between picture workers and engines.
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
