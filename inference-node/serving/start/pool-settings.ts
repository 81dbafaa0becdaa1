/** The variables that say what computes on this machine: provider, models, engines and workers. */
import path from 'node:path';
import type { EnvReader } from '@matting/program/env.ts';
import { ENGINE_GOALS, type EngineGoal } from '../engine/choice/engine-layout.ts';
import { DEVICE_FORM, type WantedDevices } from '../engine/devices/devices.ts';
import type { ModelSettings } from '../models/plan.ts';
import {
  BATCH_SIZES,
  EXECUTION_PROVIDERS,
  type ExecutionProvider,
} from '../models/prepared-model.ts';
import { HEIF_CHOICES, type HeifChoice } from '../picture/children/find-heif-decoder.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

export interface PoolSettings {
  readonly executionProvider: ExecutionProvider | 'auto';
  readonly modelSettings: ModelSettings;
  readonly providerDir: string;
  readonly gpuDevices: WantedDevices;
  /** Undefined: by the execution provider. */
  readonly engines: number | undefined;
  readonly batchMax: number;
  /** Undefined: this machine's share of cores, by the execution provider. */
  readonly engineThreads: number | undefined;
  readonly engineGoal: EngineGoal;
  /** Undefined: images in engines + 2; on a GPU the cores less two where that is more. */
  readonly pictureWorkers: number | undefined;
  /** Engines beside the own plan's that have had no image for so long are ended. */
  readonly modelIdleMs: number;
  /** Undefined: from the memory there is. */
  readonly megapixelsMax: number | undefined;
  /** What decodes HEIC; undefined: what is installed. */
  readonly heif: HeifChoice | undefined;
  /** The whole environment of engines and picture workers: no secret is in it. */
  readonly childEnv: Readonly<Record<string, string>>;
}

const ENGINES_MAX = 64;
const IMAGES_A_RUN = [1, ...BATCH_SIZES];
const THREADS_MAX = 256;
export const PICTURE_WORKERS_MAX = 128;
const MEGAPIXELS_MAX = 100_000;
const MODEL_IDLE_MS = 900_000;
/** A week. */
const MODEL_IDLE_MAX_MS = 604_800_000;

/** Nothing else, so that a codec taken over by a hostile file finds no token. */
const CHILD_VARIABLES: ReadonlySet<string> = new Set([
  'PATH',
  'HOME',
  'TMPDIR',
  'TZ',
  'LANG',
  'LC_ALL',
  'LD_LIBRARY_PATH',
  'LD_PRELOAD',
  'NODE_COMPILE_CACHE',
  'XDG_RUNTIME_DIR',
]);
const CHILD_VARIABLE_PREFIXES = [
  'CUDA_',
  'CUDNN_',
  'NVIDIA_',
  'ORT_TENSORRT_',
  'VK_',
  'MESA_',
  'MALLOC_',
];

/** Problems stay in the reader, for its requireValid. */
export function readPoolSettings(
  reader: EnvReader,
  { env, modelSettings, cwd }: { env: Environment; modelSettings: ModelSettings; cwd: string },
): PoolSettings {
  const optional = (max: number) => ({ min: 1, max, default: undefined });
  return {
    executionProvider: reader.oneOf(
      'MATTING_EXECUTION_PROVIDER',
      ['auto', ...EXECUTION_PROVIDERS],
      { default: 'auto' as const },
    ),
    gpuDevices: readGpuDevices(reader),
    engines: reader.integer('MATTING_ENGINES', optional(ENGINES_MAX)),
    batchMax: reader.parsed(
      'MATTING_BATCH_MAX',
      `one of ${IMAGES_A_RUN.join(', ')}`,
      text => IMAGES_A_RUN.find(images => String(images) === text),
      { default: 1 },
    ),
    engineThreads: reader.integer('MATTING_ENGINE_THREADS', optional(THREADS_MAX)),
    engineGoal: reader.oneOf('MATTING_ENGINE_GOAL', ENGINE_GOALS, { default: 'latency' as const }),
    pictureWorkers: reader.integer('MATTING_PICTURE_WORKERS', optional(PICTURE_WORKERS_MAX)),
    modelIdleMs: reader.integer('MATTING_MODEL_IDLE_MS', {
      min: 0,
      max: MODEL_IDLE_MAX_MS,
      default: MODEL_IDLE_MS,
    }),
    megapixelsMax: reader.integer('MATTING_NODE_MEGAPIXELS_MAX', optional(MEGAPIXELS_MAX)),
    heif: reader.oneOf('MATTING_HEIF', HEIF_CHOICES, { default: undefined }),
    modelSettings,
    providerDir: readProviderDir(reader, modelSettings, cwd),
    childEnv: readChildEnv(env),
  };
}

function readGpuDevices(reader: EnvReader): WantedDevices {
  const named = reader.list(
    'MATTING_GPU_DEVICES',
    'all, or GPUs by the numbers or the identifiers that nvidia-smi -L shows, comma-separated',
    item => (item === 'all' || DEVICE_FORM.test(item) ? item : undefined),
    { itemsMax: ENGINES_MAX, default: ['all'] },
  );
  if (!named.includes('all')) return named;
  if (named.length > 1) reader.problem('MATTING_GPU_DEVICES', 'all, or a list without it');
  return 'all';
}

/** What is there survives an installation of packages. */
export function readProviderDir(reader: EnvReader, { modelDir }: ModelSettings, cwd: string) {
  const inModelDir = path.join(modelDir, 'providers');
  return path.resolve(cwd, reader.string('MATTING_PROVIDER_DIR', { default: inModelDir }));
}

export function readChildEnv(env: Environment): Record<string, string> {
  const childEnv: Record<string, string> = {};
  for (const [variable, value] of Object.entries(env)) {
    if (value === undefined) continue;
    const prefixed = CHILD_VARIABLE_PREFIXES.some(prefix => variable.startsWith(prefix));
    if (prefixed || CHILD_VARIABLES.has(variable)) childEnv[variable] = value;
  }
  return childEnv;
}
