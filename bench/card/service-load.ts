/**
 * The whole service kept full over REST: images a second by photo and format, how long one takes
 * then, who takes the processor's time, and what limits.
 */
import { once } from 'node:events';
import { cpus } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { loadPlanOutlines } from '../../inference-node/serving/models/plan.ts';
import { type BenchPhoto, drawPhotos } from '../photos.ts';
import { PROCESS_ROLES, type ProcessRole, type TimesByPid } from '../processes.ts';
import { openService, type Service } from '../service.ts';
import { WARM_UP_SHARE } from './bare.ts';
import type { CallerOptions, CallerReport } from './caller-thread.ts';
import { type Card, percentile, shown } from './card.ts';
import type { AddRow, Figures } from './options.ts';

/** Files of minutes under load would fill a disk. */
const RESULT_TTL_MS = 60_000;
/** A service without a request so far warms up so long: code that runs first is compiled. */
const FIRST_WARM_UP_MS = 2000;
/** Above it something has no room left. */
const FULL = 0.9;
/** Images wait above this share of their time in the node: a worker that is free takes less. */
const WAITS = 0.1;

export async function measureService(
  card: Card,
  addRow: AddRow,
  cudaInterface = 'binding',
): Promise<void> {
  const { plans, formats, provider } = card.options;
  const photos = await drawPhotos();
  const planNames = (await loadPlanOutlines()).map(({ name }) => name);
  for (const plan of plans) {
    if (card.ending.aborted) return;
    const service = await openService(
      {
        // Others on the host would make it faster than what `bare` measures.
        ...(card.gpu && { MATTING_GPU_DEVICES: card.gpu.id }),
        ...{ MATTING_EXECUTION_PROVIDER: provider, MATTING_MODEL_DIR: card.modelDir },
        ...{ MATTING_RESULT_TTL_MS: String(RESULT_TTL_MS), MATTING_CUDA_INTERFACE: cudaInterface },
        [planNames.includes(plan) ? 'MATTING_QUALITY' : 'MATTING_MODEL']: plan,
      },
      card.ending,
    );
    try {
      let warmMs = FIRST_WARM_UP_MS;
      for (const format of formats) {
        for (const photo of photos) {
          const by = cudaInterface === 'binding' ? '' : ', C interface';
          const name = `${plan}, ${photo.name} to ${format}${by}`;
          await addRow(name, async () => {
            const figures = await measureCase(card, service, { photo, format, warmMs });
            // The node says so if it does not use it, or no longer.
            if (!service.nodeLog().includes('the C interface')) return figures;
            throw new Error('the node runs models by the binding');
          });
          warmMs = 0;
        }
      }
    } finally {
      await service.close();
    }
  }
}

interface Case {
  readonly photo: BenchPhoto;
  readonly format: string;
  readonly warmMs: number;
}

async function measureCase(card: Card, service: Service, { photo, format, warmMs }: Case) {
  const { threads, each } = card.options;
  const { imagesMax } = await readCounts(service);
  // A control plane keeps some waiting beside those that the node admits.
  const callers = imagesMax + Math.max(2, Math.ceil(imagesMax / 4));
  const { baseUrl: origin, apiKey } = service;
  const type = photo.name.split(' ').at(-1) ?? '';
  const length = Math.min(threads, callers);
  const workers = Array.from({ length }, (_, index) => {
    const own = Math.floor((callers + index) / length);
    const workerData = { origin, apiKey, file: photo.file, type, format, callers: own };
    return new Worker(new URL('./caller-thread.ts', import.meta.url), {
      workerData: workerData satisfies CallerOptions,
    });
  });
  try {
    await delay(warmMs + 1000 * each * WARM_UP_SHARE, undefined, { signal: card.ending });
    const before = await momentOf(service);
    for (const worker of workers) worker.postMessage('begin');
    await delay(1000 * each, undefined, { signal: card.ending });
    const after = await momentOf(service);
    const reports = Promise.all(workers.map(worker => once(worker, 'message')));
    for (const worker of workers) worker.postMessage('end');
    return figuresOf(card, before, after, (await reports).flat() as CallerReport[]);
  } finally {
    await Promise.all(workers.map(worker => worker.terminate()));
  }
}

/** A moment of the service: differences of two are what happened between them. */
type Moment = Awaited<ReturnType<typeof momentOf>>;

async function momentOf(service: Service) {
  const counts = await readCounts(service);
  const cores = cpus().map(({ times: { idle, ...busy } }) => busy);
  const machineMs = cores.flatMap(busy => Object.values(busy)).reduce((sum, ms) => sum + ms, 0);
  return { atMs: performance.now(), times: service.times(), counts, machineMs };
}

/** Reads the counts of the node's own page. */
async function readCounts({ nodeHttpUrl }: Service) {
  const text = await (await fetch(`${nodeHttpUrl}/metrics`)).text();
  return {
    workerWaitS: sumOf(text, 'matting_node_stage_duration_seconds_sum', 'stage="worker_wait"'),
    imagesS: sumOf(text, 'matting_node_image_duration_seconds_sum'),
    engineBusyS: sumOf(text, 'matting_node_engine_busy_seconds_total'),
    engines: sumOf(text, 'matting_node_engines'),
    imagesMax: sumOf(text, 'matting_node_images_max'),
  };
}

/** Sums all series of a metric that have the label. */
export function sumOf(text: string, name: string, label = ''): number {
  let sum = 0;
  for (const line of text.split('\n')) {
    const [, series, labels = '', value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (series === name && labels.includes(label)) sum += Number(value);
  }
  return sum;
}

function figuresOf(card: Card, before: Moment, after: Moment, reports: CallerReport[]): Figures {
  const latenciesMs = reports.flatMap(report => report.latenciesMs);
  const images = latenciesMs.length;
  const elapsedMs = after.atMs - before.atMs;
  const { cpuMs, mainMs } = spentBy(before.times, after.times);
  const gpu = card.gpuBetween(before.atMs, after.atMs);
  const passed = (of: 'workerWaitS' | 'imagesS' | 'engineBusyS') =>
    after.counts[of] - before.counts[of];
  const engineMs = elapsedMs * Math.max(1, after.counts.engines);
  const limit = limitOf({
    ...{ cores: card.cores, cpuMs, ...gpu },
    machineCores: (after.machineMs - before.machineMs) / elapsedMs,
    clientBusy: Math.max(...reports.map(({ busy }) => busy)),
    controlPlaneBusy: mainMs['control plane'] / elapsedMs,
    nodeBusy: mainMs.node / elapsedMs,
    enginesBusy: (1000 * passed('engineBusyS')) / engineMs,
    workerWaitShare: passed('workerWaitS') / passed('imagesS'),
  });
  const serviceMs = Object.values(cpuMs).reduce((sum, ms) => sum + ms, 0);
  return {
    imagesPerS: shown((1000 * images) / elapsedMs),
    p50Ms: shown(percentile(latenciesMs, 0.5)),
    p99Ms: shown(percentile(latenciesMs, 0.99)),
    limit,
    coresBusy: shown(serviceMs / elapsedMs),
    coresFor100PerS: shown(serviceMs / images / 10),
    ...Object.fromEntries(PROCESS_ROLES.map(role => [`${role}, ms`, shown(cpuMs[role] / images)])),
    ...gpu,
    failed: reports.reduce((sum, report) => sum + report.failed, 0),
    failure: reports.find(({ failure }) => failure !== undefined)?.failure,
  };
}

/** Counts processes that live at the end; those that are new since the beginning count in full. */
export function spentBy(before: TimesByPid, after: TimesByPid) {
  const none = (): Record<ProcessRole, number> => ({
    ...{ 'control plane': 0, node: 0, 'picture workers': 0, engines: 0 },
  });
  const [cpuMs, mainMs] = [none(), none()];
  for (const [pid, { role, cpuMs: until, mainCpuMs }] of after) {
    const from = before.get(pid);
    cpuMs[role] += until - (from?.cpuMs ?? 0);
    mainMs[role] += mainCpuMs - (from?.mainCpuMs ?? 0);
  }
  return { cpuMs, mainMs };
}

export interface Loads {
  readonly cores: number;
  /** Mean, 0 to 1; undefined: nothing says it. */
  readonly gpuBusy?: number;
  /** The service took this much, by role. */
  readonly cpuMs: Readonly<Record<ProcessRole, number>>;
  /** Everything on the machine takes so many. */
  readonly machineCores: number;
  /** Share of time that an event loop had work, of the callers' threads the busiest. */
  readonly clientBusy: number;
  readonly controlPlaneBusy: number;
  readonly nodeBusy: number;
  /** Share of time that an engine had a run, of all engines. */
  readonly enginesBusy: number;
  /** An image waited so long for a picture worker, as a share of its time in the node. */
  readonly workerWaitShare: number;
}

/** Names for a table the first that is full, beginning with what nothing can be done about. */
export function limitOf(loads: Loads): string {
  const { cores, gpuBusy = 0, cpuMs, machineCores } = loads;
  if (gpuBusy >= FULL) return 'GPU';
  if (loads.clientBusy >= FULL) return 'the client: not a figure of the service';
  const [most] = Object.entries(cpuMs).toSorted(([, a], [, b]) => b - a);
  if (machineCores >= FULL * cores) return `cores, most in ${most?.[0]}`;
  if (loads.controlPlaneBusy >= FULL) return 'control plane, one thread';
  if (loads.nodeBusy >= FULL) return 'node, one thread';
  if (loads.enginesBusy >= FULL) return 'engines: more of them';
  if (loads.workerWaitShare >= WAITS) return 'picture workers: more of them';
  return 'nothing is full';
}
