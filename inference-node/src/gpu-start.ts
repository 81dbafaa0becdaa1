/** What a node does at its start on GPUs only: answers are checked, engines are given their GPUs. */

import { hostname } from 'node:os';
import path from 'node:path';
import type { Logger } from 'pino';
import { attemptDevice } from './choose-provider.ts';
import type { Config } from './config.ts';
import { answerOnGpu, createAnswering } from './engine/choice/answer-picture.ts';
import { ExecutionProviderError } from './engine/choice/execution-provider.ts';
import { spreadEngines } from './engine/devices/choose-devices.ts';
import { DeviceWatch } from './engine/devices/device-watch.ts';
import type { GpuDevice } from './engine/devices/gpu-device.ts';
import { listGpus } from './engine/devices/nvidia-smi.ts';
import { LOAD_TIMEOUT_MS, LOAD_TIMEOUT_TENSORRT_MS } from './engine/pool/engine.ts';
import { runtimeVersion } from './engine/runtime-version.ts';
import { measureEngines } from './measured-engines.ts';
import { enginesInMemory, readMemoryLimitBytes } from './memory-budget.ts';
import type { ExecutionProvider, Plan, Precision } from './models/prepared-model.ts';
import { checkAnswerOnDevice } from './models/preparing/answer-on-device.ts';
import { detectInstructionSet } from './models/preparing/instruction-set.ts';

type EngineEnv = Readonly<Record<string, string>>;
export type GpuProvider = Extract<ExecutionProvider, 'cuda' | 'tensorrt'>;

export interface GpuStart {
  readonly config: Config;
  readonly engineEnv: EngineEnv;
  readonly provider: GpuProvider;
  /** Empty: the one that CUDA takes first. */
  readonly devices: readonly GpuDevice[];
  readonly cpuThreads: number;
  readonly ending: AbortSignal;
  readonly log: Logger;
}

/** GPUs that compute alike. */
export function kindOf(device: GpuDevice | undefined, provider: ExecutionProvider): string {
  const unnamed = `a GPU of ${hostname()} that is not listed`;
  const { name, driver } = device?.facts ?? {};
  const gpu = device === undefined ? unnamed : `${name}, driver ${driver}`;
  return `${gpu}, ${provider}, ONNX Runtime ${runtimeVersion()}`;
}

/**
 * Runs every model once on each kind of GPU that was not checked before, against its stored answer.
 * GPUs of a kind that answers wrongly go out. Undefined: some are left; else why none is.
 * @throws ExecutionProviderError where the operator named the GPUs, by `auto` too: none of them is
 * left out.
 */
export async function checkAnswers(start: GpuStart, plan: Plan): Promise<string | undefined> {
  const { devices, provider, log } = start;
  if (devices.length === 0) return await wrongAnswer(start, plan, undefined);
  const checked = new Map<string, string | undefined>();
  for (const device of devices.filter(({ outReason }) => outReason === undefined)) {
    const kind = kindOf(device, provider);
    if (!checked.has(kind)) checked.set(kind, await wrongAnswer(start, plan, device));
    const reason = checked.get(kind);
    if (reason === undefined) continue;
    if (start.config.gpuDevices !== 'all') throw new ExecutionProviderError(provider, reason);
    log.warn({ gpu: device.facts.id, name: device.facts.name, reason }, 'GPU is left out');
    device.lose(reason);
  }
  if (devices.some(({ outReason }) => outReason === undefined)) return undefined;
  return devices[0]?.outReason;
}

/** Undefined: every model of the plan answers as it should on this GPU. */
async function wrongAnswer(
  { config, engineEnv, provider, cpuThreads, ending }: GpuStart,
  plan: Plan,
  device: GpuDevice | undefined,
): Promise<string | undefined> {
  const { childEnv, modelSettings } = config;
  const timeoutMs = provider === 'tensorrt' ? LOAD_TIMEOUT_TENSORRT_MS : LOAD_TIMEOUT_MS;
  for (const { model } of plan.models) {
    ending.throwIfAborted();
    const wrong = await checkAnswerOnDevice({
      model,
      answer: answerOnGpu(device?.envOf(engineEnv) ?? engineEnv, timeoutMs),
      machine: kindOf(device, provider),
      cacheDir: modelSettings.modelDir,
      weightsDir: modelSettings.weightsDir,
      instructionSet: await detectInstructionSet(),
      answering: createAnswering({ childEnv, threads: cpuThreads }),
    });
    if (wrong !== undefined) return `${model.model} in ${model.precision}: ${wrong}`;
  }
  return undefined;
}

/**
 * The GPU of each engine of a model; undefined: CUDA's first, for all of them. One each where
 * nothing is said; of a number each in proportion to its memory; `auto` measures. Engines on a GPU
 * that is out wait for it.
 */
export async function placeEngines(start: GpuStart, plan: Plan): Promise<GpuDevice[] | undefined> {
  const { config, devices, log } = start;
  if (devices.length === 0) return undefined;
  const { engines } = config;
  if (engines !== 'auto') {
    return engines === undefined ? [...devices] : spreadOverGpus(engines, devices);
  }
  const [first] = plan.models;
  if (first === undefined) return [...devices];
  const models = plan.models.map(({ model }) => model);
  const heldByHost = enginesInMemory(readMemoryLimitBytes(), models);
  const enginesMax = Math.max(1, Math.floor(heldByHost / devices.length));
  const placed: GpuDevice[] = [];
  for (const device of devices) {
    if (device.outReason !== undefined) {
      placed.push(device);
      continue;
    }
    const kind = `${kindOf(device, start.provider)}, ${start.cpuThreads} cores`;
    const { engineEnv: childEnv, ending } = start;
    const each = { model: first.model, models, device, kind, enginesMax, childEnv, ending };
    const { best: count, imagesPerS } = await measureEngines(each);
    log.info({ gpu: device.facts.id, engines: count, imagesPerS }, 'engines measured');
    for (let i = 0; i < count; i++) placed.push(device);
  }
  return placed;
}

/**
 * Where engines are too few for every GPU, those that are up get them: a GPU that is out would have
 * an engine that waits for it, perhaps for ever, beside a GPU that has none.
 */
function spreadOverGpus(engines: number, devices: readonly GpuDevice[]): GpuDevice[] {
  const spread = (over: readonly GpuDevice[]) =>
    spreadEngines(engines, over, ({ facts }) => facts.memoryBytes);
  const placed = spread(devices);
  const up = devices.filter(({ outReason }) => outReason === undefined);
  const waits = placed.some(({ outReason }) => outReason !== undefined);
  return waits && up.some(device => !placed.includes(device)) ? spread(up) : placed;
}

/**
 * Tries GPUs that are out again, as a start does. Closed with the engines.
 * @param furtherWrong what else keeps a GPU out; undefined: nothing.
 */
export function watchDevices(
  start: GpuStart,
  plan: Plan,
  furtherWrong: (device: GpuDevice) => Promise<string | undefined>,
): DeviceWatch {
  const { devices, engineEnv, provider, log } = start;
  return new DeviceWatch({
    devices,
    log,
    list: () => listGpus(engineEnv),
    attempt: async device =>
      (await attemptDevice(provider, device, engineEnv)) ??
      (await wrongAnswer(start, plan, device)) ??
      (await furtherWrong(device)),
  });
}

/**
 * What TensorRT is told where the operator says nothing: to keep what it built, for minutes, beside
 * the models, and to compute in half precision where the model does.
 */
export function tensorrtEnv(
  engineEnv: EngineEnv,
  modelDir: string,
  precisions: readonly Precision[],
): EngineEnv {
  const fp16 = precisions.every(precision => precision === 'fp16');
  return {
    ORT_TENSORRT_ENGINE_CACHE_ENABLE: '1',
    ORT_TENSORRT_CACHE_PATH: path.join(modelDir, 'tensorrt'),
    ...(fp16 ? { ORT_TENSORRT_FP16_ENABLE: '1' } : {}),
    ...engineEnv,
  };
}
