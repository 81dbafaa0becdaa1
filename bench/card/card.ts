/** The GPU that is measured, what engines need to reach it, and how busy nvidia-smi says it is. */
import { execFile } from 'node:child_process';
import path from 'node:path';
import { prepareModel } from '../../inference-node/model-tools/preparing/prepare.ts';
import { createAnswering } from '../../inference-node/serving/engine/choice/run-once.ts';
import { chooseDevice } from '../../inference-node/serving/engine/devices/choose-gpu.ts';
import { GpuDevice } from '../../inference-node/serving/engine/devices/gpu-device.ts';
import { listGpus, smiEnvironment } from '../../inference-node/serving/engine/devices/list-gpus.ts';
import { loadManifest } from '../../inference-node/serving/models/manifest.ts';
import { readEngineEnvironment } from '../../inference-node/serving/providers/provider-files.ts';
import { readChildEnv } from '../../inference-node/serving/start/pool-settings.ts';
import { parseModelSettings } from '../../inference-node/serving/test/model-settings.ts';
import { machine } from '../service.ts';
import type { CardOptions } from './options.ts';

export type Card = Awaited<ReturnType<typeof openCard>>;
export type Graph = CardOptions['graphs'][number];

/** One call takes some 50 ms of a core, and is worth it no more often. */
const SAMPLE_INTERVAL_MS = 1000;
const SAMPLE_MAX_MS = 5000;

interface Sample {
  readonly atMs: number;
  /** 0 to 1; undefined: the GPU does not say. */
  readonly busy: number | undefined;
  readonly memoryMib: number | undefined;
}

export async function openCard(options: CardOptions, ending: AbortSignal) {
  const { provider } = options;
  const settings = parseModelSettings(
    { MATTING_MODEL_DIR: process.env.MATTING_MODEL_DIR },
    process.cwd(),
  );
  const { modelDir, weightsDir } = settings;
  const providerDir = process.env.MATTING_PROVIDER_DIR || path.join(modelDir, 'providers');
  const childEnv = readChildEnv(process.env);
  const ofCuda = provider === 'cuda';
  const engineEnv = ofCuda
    ? (await readEngineEnvironment(path.resolve(providerDir), childEnv)).childEnv
    : childEnv;
  const listing = await listGpus(engineEnv);
  const gpus = listing.state === 'listed' ? listing.gpus : [];
  const { gpu } = chooseDevice(undefined, gpus, engineEnv.CUDA_VISIBLE_DEVICES);
  const cores = Number(machine().cores);
  const watch = gpu && watchGpu(gpu.id);
  return {
    ...{ options, ending, cores, gpu, modelDir, engineEnv },
    /** A GPU of its own name: what one measurement does to it the next does not see. */
    newDevice: () => (gpu === undefined || !ofCuda ? undefined : new GpuDevice(gpu)),
    prepare: async ({ model, side, precision }: Graph) =>
      await prepareModel({
        manifest: await loadManifest(model),
        ...{ cacheDir: modelDir, weightsDir, precision, provider },
        inputSize: { width: side, height: side },
        answering: createAnswering({ childEnv, threads: cores }),
      }),
    /** Reads the GPU's load in a window of time; nothing where nobody watches. */
    gpuBetween: (fromMs: number, toMs: number) => watch?.between(fromMs, toMs) ?? {},
    close: () => watch?.close(),
  };
}

function watchGpu(id: string) {
  const samples: Sample[] = [];
  const query = ['-i', id, '--query-gpu=utilization.gpu,memory.used'];
  const args = [...query, '--format=csv,noheader,nounits'];
  let timer: NodeJS.Timeout | undefined;
  let closed = false;
  const poll = () => {
    const asked = { env: smiEnvironment(process.env), timeout: SAMPLE_MAX_MS };
    execFile('nvidia-smi', args, asked, (error, text) => {
      const sample = error === null ? parseSample(text, performance.now()) : undefined;
      if (sample !== undefined) samples.push(sample);
      if (!closed) timer = setTimeout(poll, SAMPLE_INTERVAL_MS);
    });
  };
  poll();
  return {
    between: (fromMs: number, toMs: number) => {
      const within = samples.filter(({ atMs }) => atMs >= fromMs && atMs <= toMs);
      const busy = within.flatMap(sample => sample.busy ?? []);
      const gpuMemoryMib = Math.max(...within.flatMap(sample => sample.memoryMib ?? []));
      const gpuBusy = busy.reduce((sum, share) => sum + share, 0) / busy.length;
      return {
        ...(busy.length > 0 && { gpuBusy }),
        ...(Number.isFinite(gpuMemoryMib) && { gpuMemoryMib }),
      };
    },
    close: () => {
      closed = true;
      clearTimeout(timer);
    },
  };
}

/** Reads a line of the query, as `97, 5312`; undefined: it is none. Figures may be `[N/A]`. */
export function parseSample(line: string, atMs: number): Sample | undefined {
  const cells = line.split(',').map(text => text.trim());
  if (cells.length !== 2 || !cells.every(text => /^(\d+|\[.*\])$/.test(text))) return undefined;
  const [busy, memoryMib] = cells.map(text => (/^\d+$/.test(text) ? Number(text) : undefined));
  return { atMs, busy: busy === undefined ? undefined : busy / 100, memoryMib };
}

/** The value that `share` of all do not exceed; NaN of none. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN;
}

/** Three figures that count. */
export function shown(value: number): number {
  return Number(value.toPrecision(3));
}
