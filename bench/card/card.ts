/** The GPU that is measured, what engines need to reach it, and who watches it meanwhile. */
import path from 'node:path';
import { readChildEnv } from '../../inference-node/src/config.ts';
import { createAnswering } from '../../inference-node/src/engine/choice/answer-picture.ts';
import { chooseDevices } from '../../inference-node/src/engine/devices/choose-devices.ts';
import { GpuDevice } from '../../inference-node/src/engine/devices/gpu-device.ts';
import { type GpuFacts, listGpus } from '../../inference-node/src/engine/devices/nvidia-smi.ts';
import { loadManifest } from '../../inference-node/src/models/manifest.ts';
import { parseModelSettings } from '../../inference-node/src/models/model-settings.ts';
import type {
  ExecutionProvider,
  PreparedModel,
} from '../../inference-node/src/models/prepared-model.ts';
import { detectInstructionSet } from '../../inference-node/src/models/preparing/instruction-set.ts';
import { prepareModel } from '../../inference-node/src/models/preparing/prepare.ts';
import { readEngineEnvironment } from '../../inference-node/src/providers/engine-environment.ts';
import { tensorrtEnv } from '../../inference-node/src/start/gpus.ts';
import { machine } from '../service.ts';
import type { CardOptions, GraphWanted } from './options.ts';
import { openSmiSampler, type SmiFigures, type SmiSample } from './smi-samples.ts';

export interface Card {
  readonly options: CardOptions;
  readonly cores: number;
  /** The first that CUDA takes; undefined where none of NVIDIA's is listed. */
  readonly gpu: GpuFacts | undefined;
  readonly modelDir: string;
  readonly providerDir: string;
  /** What tells this machine from another with the same processor. */
  readonly device: Readonly<Record<string, string>>;
  engineEnv(graph: Pick<GraphWanted, 'precision'>): Readonly<Record<string, string>>;
  /** A GPU of its own name: what one measurement does to it the next does not see. */
  newDevice(): GpuDevice | undefined;
  prepare(graph: GraphWanted, provider: ExecutionProvider): Promise<PreparedModel>;
  /** Of a window of time; empty where nothing watches. */
  gpuBetween(fromMs: number, toMs: number): SmiFigures;
  gpuNow(): SmiSample | undefined;
  close(): void;
}

const UNWATCHED: SmiFigures = { samples: 0, gpuBusy: undefined, gpuMemoryMib: undefined };

export async function openCard(options: CardOptions): Promise<Card> {
  const { provider } = options;
  const settings = parseModelSettings(
    { MATTING_MODEL_DIR: process.env.MATTING_MODEL_DIR },
    process.cwd(),
  );
  const { modelDir } = settings;
  const providerDir = path.resolve(
    process.env.MATTING_PROVIDER_DIR || path.join(modelDir, 'providers'),
  );
  const childEnv = readChildEnv(process.env);
  const ofCuda = provider === 'cuda' || provider === 'tensorrt';
  const env = ofCuda ? (await readEngineEnvironment(providerDir, childEnv)).childEnv : childEnv;
  const gpu = await firstGpu(env);
  const cores = Number(machine().cores);
  const sampler = gpu === undefined ? undefined : openSmiSampler(gpu.id);
  const answering = createAnswering({ childEnv, threads: cores });
  return {
    options,
    cores,
    gpu,
    modelDir,
    providerDir,
    device: gpu === undefined ? {} : { gpu: gpu.name, driver: gpu.driver },
    engineEnv: ({ precision }) =>
      provider === 'tensorrt' ? tensorrtEnv(env, modelDir, [precision]) : env,
    newDevice: () => (gpu === undefined || !ofCuda ? undefined : new GpuDevice(gpu)),
    prepare: async ({ model, side, precision }, on) =>
      await prepareModel({
        manifest: await loadManifest(model),
        cacheDir: modelDir,
        weightsDir: settings.weightsDir,
        inputSize: { width: side, height: side },
        ...{ precision, provider: on, answering },
        instructionSet: await detectInstructionSet(),
      }),
    gpuBetween: (fromMs, toMs) => sampler?.between(fromMs, toMs) ?? UNWATCHED,
    gpuNow: () => sampler?.last(),
    close: () => sampler?.close(),
  };
}

async function firstGpu(env: Readonly<Record<string, string>>): Promise<GpuFacts | undefined> {
  const listing = await listGpus(env);
  if (listing.state !== 'listed') return undefined;
  const choice = chooseDevices('all', listing.gpus, env.CUDA_VISIBLE_DEVICES);
  return 'gpus' in choice ? choice.gpus[0] : undefined;
}
