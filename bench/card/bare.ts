/**
 * Engines that always find work, nothing around them: images a second by model, precision, engines
 * and images at once. An image's time is that of its run, the hop to the engine included.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { pino } from 'pino';
import type { EnginePool } from '../../inference-node/src/engine/pool/engine-pool.ts';
import { openEnginePool } from '../../inference-node/src/engine/pool/open-engine-pool.ts';
import { imagesARun, type PreparedModel } from '../../inference-node/src/models/prepared-model.ts';
import { drawCheckPicture } from '../../inference-node/src/models/preparing/check-picture.ts';
import { prepareBatches } from '../../inference-node/src/models/preparing/prepare-batches.ts';
import { cpuMsOf } from '../processes.ts';
import type { Card } from './card.ts';
import { percentile } from './figures.ts';
import { type GraphWanted, WARM_UP_SHARE } from './options.ts';
import type { Section } from './section.ts';

interface Cell {
  readonly graph: GraphWanted;
  readonly engines: number;
  readonly images: number;
}

export async function measureBare(card: Card, section: Section): Promise<void> {
  const { each } = card.options;
  section.note({ provider: card.options.provider, picture: 'the check picture, model size' });
  for (const cell of cellsOf(card.options)) {
    const { graph, engines, images } = cell;
    const at = images === 1 ? '' : `, ${images} images at once`;
    const name = `${nameOf(graph)}, ${engines} engine${engines === 1 ? '' : 's'}${at}`;
    await section.row(name, 1000 * each * (1 + WARM_UP_SHARE), signal =>
      measureCell(card, cell, signal),
    );
  }
}

export function nameOf({ model, side, precision }: GraphWanted): string {
  return `${model} ${side} ${precision}`;
}

/** What says most comes first: time may end before the list does. The first graph says most. */
export function cellsOf({ graphs, engines, batches }: Card['options']): Cell[] {
  const [first, rest] = [graphs.slice(0, 1), graphs.slice(1)];
  const [fewest, ...more] = engines;
  const several = batches.filter(images => images > 1);
  const cells = (of: readonly GraphWanted[], counts: readonly number[], at: readonly number[]) =>
    of.flatMap(graph =>
      counts.flatMap(count => at.map(images => ({ graph, engines: count, images }))),
    );
  const least = fewest === undefined ? [] : [fewest];
  return [
    ...cells(first, engines, [1]),
    ...cells(rest, least, [1]),
    ...cells(first, least, several),
    ...cells(rest, more, [1]),
    ...cells(rest, least, several),
    ...cells(graphs, more.slice(0, 1), several),
  ];
}

async function measureCell(card: Card, { graph, engines, images }: Cell, signal: AbortSignal) {
  const { provider, each } = card.options;
  const model = takingOnly(
    await prepareBatches(await card.prepare(graph, provider), images),
    images,
  );
  const device = card.newDevice();
  const openedMs = performance.now();
  const pool = openEnginePool({
    ...{ model, engines },
    threadsPerEngine: provider === 'cpu' ? Math.max(1, Math.floor(card.cores / engines)) : 1,
    devices: device && Array.from({ length: engines }, () => device),
    childEnv: card.engineEnv(graph),
    log: pino({ level: 'silent' }),
  });
  try {
    await allReady(pool, engines, signal);
    const readyS = (performance.now() - openedMs) / 1000;
    const { warmMs } = pool.metrics();
    const figures = await keepFull(card, pool, { model, engines, forMs: 1000 * each, signal });
    return { ...figures, readyS, warmMs };
  } finally {
    await pool.close(0);
  }
}

/** Every further graph would take its time to load. */
function takingOnly({ batches = [], ...single }: PreparedModel, images: number): PreparedModel {
  const kept = batches.filter(batch => batch.images === images);
  return kept.length === 0 ? single : { ...single, batches: kept };
}

async function allReady(pool: EnginePool, engines: number, signal: AbortSignal): Promise<void> {
  const ended = new Promise<never>((_, reject) => {
    const tell = () => reject(new Error('engines were not ready in the time of the section'));
    if (signal.aborted) tell();
    else signal.addEventListener('abort', tell, { once: true });
  });
  const ready = async () => {
    await pool.ready();
    while (pool.snapshot().enginesReady < engines) {
      const { state, failure } = pool.snapshot();
      if (state === 'failed') throw new Error(failure);
      await delay(20, undefined, { signal });
    }
  };
  await Promise.race([ready(), ended]);
}

interface Filling {
  readonly model: PreparedModel;
  readonly engines: number;
  readonly forMs: number;
  readonly signal: AbortSignal;
}

async function keepFull(card: Card, pool: EnginePool, filling: Filling) {
  const { model, engines, forMs, signal } = filling;
  const rgb = drawCheckPicture(model.inputWidth, model.inputHeight);
  const inferMs: number[] = [];
  const pids = pool.processes().map(({ pid }) => pid);
  const cpuMs = () => pids.reduce((sum, pid) => sum + cpuMsOf(pid), 0);
  let countFromMs = Number.POSITIVE_INFINITY;
  let endsMs = Number.POSITIVE_INFINITY;
  const caller = async () => {
    while (performance.now() < endsMs) {
      const { inferMs: ms } = await pool.run({ rgb, priority: 'sync', signal });
      const nowMs = performance.now();
      if (nowMs >= countFromMs && nowMs <= endsMs) inferMs.push(ms);
    }
  };
  // As many wait as an engine takes when it is free.
  const callers = Promise.all(Array.from({ length: (engines + 1) * imagesARun(model) }, caller));
  callers.catch(() => undefined);
  await delay(forMs * WARM_UP_SHARE, undefined, { signal });
  countFromMs = performance.now();
  endsMs = countFromMs + forMs;
  const before = { engines: cpuMs(), own: process.cpuUsage() };
  const loop = performance.eventLoopUtilization();
  await delay(forMs, undefined, { signal });
  const used = { engines: cpuMs() - before.engines, own: process.cpuUsage(before.own) };
  const feedBusy = performance.eventLoopUtilization(loop).utilization;
  await callers;
  return {
    imagesPerS: (1000 * inferMs.length) / forMs,
    p50Ms: percentile(inferMs, 0.5),
    p99Ms: percentile(inferMs, 0.99),
    images: inferMs.length,
    engineCpuMsAnImage: used.engines / inferMs.length,
    // This thread does what a node's does between picture workers and engines.
    feedBusy,
    feedCpuMsAnImage: (used.own.user + used.own.system) / 1000 / inferMs.length,
    ...card.gpuBetween(countFromMs, endsMs),
  };
}
