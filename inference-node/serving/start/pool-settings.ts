import path from 'node:path';
import { Unusable } from '@matting/program/config-error.ts';
import type { EnvReader } from '@matting/program/env.ts';
import { readProfile } from '@matting/program/shared-settings.ts';
import { ENGINES_MAX } from '../admission.ts';
import { DEVICE_FORM } from '../engine/devices/choose-gpu.ts';
import type { ModelSettings } from '../models/model-settings.ts';
import {
  CPU_RUNTIME_CHOICES,
  type CpuRuntimeChoice,
  EXECUTION_PROVIDERS,
  type ExecutionProvider,
} from '../models/prepared-model.ts';
import { HEIF_CHOICES, type HeifChoice } from '../picture/children/find-heif-decoder.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

const CUDA_INTERFACES = ['binding', 'c'] as const;

export interface PoolSettings {
  readonly executionProvider: ExecutionProvider | 'auto';
  readonly modelSettings: ModelSettings;
  readonly providerDir: string;
  readonly cpuRuntime: CpuRuntimeChoice;
  readonly cudaInterface: (typeof CUDA_INTERFACES)[number];
  readonly gpuDevice: string | undefined;
  readonly engines: number | undefined;
  readonly engineThreads: number | undefined;
  /** Undefined: by chooseWorkers(). */
  readonly pictureWorkers: number | undefined;
  /** Engines end after this time without an image. Undefined: never. */
  readonly modelIdleMs: number | undefined;
  readonly memoryPercent: number;
  /** Undefined: the installed decoder. */
  readonly heif: HeifChoice | undefined;
  /** The whole environment of engines and picture workers, without secrets. */
  readonly childEnv: Readonly<Record<string, string>>;
}

const THREADS_MAX = 256;
export const PICTURE_WORKERS_MAX = 128;
const MODEL_IDLE_SMALL_MS = 300_000;

/** Without other variables a codec taken over by a hostile file finds no token. */
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
const CHILD_VARIABLE_PREFIXES = ['CUDA_', 'CUDNN_', 'NVIDIA_', 'MALLOC_'];

export function readPoolSettings(
  whole: EnvReader,
  { env, modelSettings, cwd }: { env: Environment; modelSettings: ModelSettings; cwd: string },
): PoolSettings {
  const reader = whole.section('Engines and memory');
  const isSmall = readProfile(whole) === 'small';
  return {
    executionProvider: readExecutionProvider(whole),
    cpuRuntime: readCpuRuntime(whole),
    cudaInterface: reader.oneOf('MATTING_CUDA_INTERFACE', CUDA_INTERFACES, {
      about: `How engines call ONNX Runtime on a GPU. \`c\` is [its C interface](gpu.md#the-c-interface),
        which no card has confirmed yet.`,
      default: 'binding',
    }),
    gpuDevice: reader.parsed(
      'MATTING_GPU_DEVICES',
      'one GPU, by the number or the identifier that nvidia-smi -L shows',
      text => (DEVICE_FORM.test(text) ? text : undefined),
      {
        about: `The [GPU](gpu.md#several-gpus) that the node uses, with CUDA. If it does
          not work, the node does not start.`,
        otherwise: 'the first that the node can see',
        default: undefined,
      },
    ),
    ...readEngines(reader, isSmall),
    modelIdleMs: isSmall ? MODEL_IDLE_SMALL_MS : undefined,
    heif: reader.oneOf('MATTING_HEIF', HEIF_CHOICES, {
      about: `What decodes [HEIC](nodes.md#heic). If you name a decoder and it does not work, the
        node does not start. \`off\` refuses HEIC.`,
      otherwise: 'what is installed: `js`, else `system`',
      default: undefined,
    }),
    modelSettings,
    providerDir: readProviderDir(reader, modelSettings, cwd),
    childEnv: readChildEnv(env),
  };
}

function readEngines(reader: EnvReader, isSmall: boolean) {
  const fromMachine = (max: number, about: string) => ({
    ...{ about, otherwise: 'from the machine' },
    ...{ min: 1, max, default: undefined },
  });
  const oneIfSmall = isSmall ? { default: 1 } : {};
  return {
    engines: reader.integer('MATTING_ENGINES', {
      ...fromMachine(
        ENGINES_MAX,
        `The engines of each model, never more than the memory holds beside a photo. On a CPU a
          second look or an opinion of a smaller input has half as many, rounded up. For models in
          int8 an engine a core makes [more images a second](scaling.md#nodes).`,
      ),
      ...oneIfSmall,
    }),
    engineThreads: reader.integer(
      'MATTING_ENGINE_THREADS',
      fromMachine(THREADS_MAX, 'The threads of each engine.'),
    ),
    pictureWorkers: reader.integer('MATTING_PICTURE_WORKERS', {
      ...fromMachine(
        PICTURE_WORKERS_MAX,
        `The processes that decode and encode pictures. The default is one more than the engines of
          a model and at least 3. On GPUs it is at least the cores less two, and one more for each
          engine of all models, up to half as many again.`,
      ),
      ...oneIfSmall,
    }),
    memoryPercent: reader.integer('MATTING_NODE_MEMORY_PERCENT', {
      about: `The node’s part of the memory of its machine, container and GPU. Engines and pictures
        stay within it. \`make start\` gives each of several nodes an equal part.`,
      min: 1,
      max: 100,
      default: 100,
    }),
  };
}

/** Providers of releases up to 0.2.0, and what to set instead. */
const GONE_PROVIDERS: ReadonlyMap<string, string> = new Map([
  ['tensorrt', 'cuda'],
  ['webgpu', 'cpu, or cuda for an NVIDIA GPU'],
]);

export function readExecutionProvider(whole: EnvReader): ExecutionProvider | 'auto' {
  const choices = ['auto', ...EXECUTION_PROVIDERS] as const;
  const parse = (text: string) => {
    const instead = GONE_PROVIDERS.get(text);
    if (instead === undefined) return choices.find(choice => choice === text);
    throw new Unusable(`${instead}: this version does not run ${text}`);
  };
  const expected = `one of ${choices.join(', ')}`;
  const reader = whole.section('Engines and memory');
  return reader.parsed('MATTING_EXECUTION_PROVIDER', expected, parse, {
    about: `What runs the models ([GPUs](gpu.md)). If you name a provider and it does not work, the
      node does not start.`,
    default: 'auto' as const,
  });
}

export function readCpuRuntime(whole: EnvReader): CpuRuntimeChoice {
  return whole.section('Engines and memory').oneOf('MATTING_CPU_RUNTIME', CPU_RUNTIME_CHOICES, {
    about: `What runs models [on a CPU](nodes.md#runtimes-on-a-cpu). \`auto\`: for each model the
      faster one, as \`models fetch\` measured it. If you name \`openvino\` and it does not run a model
      of the plan, the node does not start.`,
    default: 'auto' as const,
  });
}

/** The default is in the model folder: an installation of npm packages leaves it alone. */
export function readProviderDir(reader: EnvReader, { modelDir }: ModelSettings, cwd: string) {
  const inModelDir = path.join(modelDir, 'providers');
  const providerDir = reader.string('MATTING_PROVIDER_DIR', {
    about: `The directory of OpenVINO, which \`models fetch\` fetches, and of ONNX Runtime’s part for GPUs,
      which \`providers install\` fetches.`,
    otherwise: '`providers` in `MATTING_MODEL_DIR`',
    default: inModelDir,
  });
  return path.resolve(cwd, providerDir);
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
