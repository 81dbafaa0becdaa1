/** What a node does at its start on GPUs only: answers are checked, engines are given their GPUs. */
import assert from 'node:assert/strict';
import path from 'node:path';
import type { Logger } from 'pino';
import type { Config } from '../config.ts';
import { answerOnGpu, createAnswering } from '../engine/choice/answer-picture.ts';
import { ExecutionProviderError } from '../engine/choice/execution-provider.ts';
import { spreadEngines } from '../engine/devices/choose-devices.ts';
import { DeviceWatch } from '../engine/devices/device-watch.ts';
import type { GpuDevice } from '../engine/devices/gpu-device.ts';
import { listGpus } from '../engine/devices/nvidia-smi.ts';
import { LOAD_TIMEOUT_MS, LOAD_TIMEOUT_TENSORRT_MS } from '../engine/pool/engine.ts';
import { runtimeVersion } from '../engine/runtime-version.ts';
import { enginesInMemory, readMemoryLimitBytes } from '../memory-budget.ts';
import type {
  ExecutionProvider,
  Plan,
  Precision,
  PreparedModel,
} from '../models/prepared-model.ts';
import { checkAnswerOnDevice } from '../models/preparing/answer-on-device.ts';
import { detectInstructionSet } from '../models/preparing/instruction-set.ts';
import { attemptDevice } from './choose-provider.ts';
import {
  enginesInGpu,
  type MeasureOptions,
  measureEngines,
  measureSpeed,
} from './measured-engines.ts';

type EngineEnv = Readonly<Record<string, string>>;
export type GpuProvider = Extract<ExecutionProvider, 'cuda' | 'tensorrt'>;

export type GpuStart = StartOn<GpuProvider>;

export interface StartOn<Provider extends ExecutionProvider> {
  readonly config: Config;
  readonly engineEnv: EngineEnv;
  readonly provider: Provider;
  /** Empty: the one that CUDA takes first, or no GPU of CUDA's. */
  readonly devices: readonly GpuDevice[];
  readonly cpuThreads: number;
  readonly ending: AbortSignal;
  readonly log: Logger;
}

/** GPUs that compute alike. Undefined: nothing says what it is, so nothing is remembered of it. */
export function kindOf(device: GpuDevice, provider: ExecutionProvider): string;
export function kindOf(
  device: GpuDevice | undefined,
  provider: ExecutionProvider,
): string | undefined;
export function kindOf(device: GpuDevice | undefined, provider: ExecutionProvider) {
  if (device === undefined) return undefined;
  const { name, driver } = device.facts;
  return `${name}, driver ${driver}, ${provider}, ONNX Runtime ${runtimeVersion()}`;
}

/**
 * `once` on each kind of GPU; `afresh` on one that was out, of which what another of its kind did,
 * or it before, says nothing.
 */
export type Checked = 'once' | 'afresh';

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
  checked: Checked = 'once',
): Promise<string | undefined> {
  const { childEnv, modelSettings } = config;
  const timeoutMs = provider === 'tensorrt' ? LOAD_TIMEOUT_TENSORRT_MS : LOAD_TIMEOUT_MS;
  for (const { model } of plan.models) {
    ending.throwIfAborted();
    const wrong = await checkAnswerOnDevice({
      model,
      answer: answerOnGpu(device?.envOf(engineEnv) ?? engineEnv, timeoutMs),
      machine: checked === 'once' ? kindOf(device, provider) : undefined,
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
 * nothing is said; `auto` measures how many; a number is spread. Engines on a GPU that is out wait
 * for it.
 */
export async function placeEngines(start: GpuStart, plan: Plan): Promise<GpuDevice[] | undefined> {
  const { devices } = start;
  const { engines } = start.config;
  if (devices.length === 0) return undefined;
  if (engines === undefined) return [...devices];
  const models = plan.models.map(({ model }) => model);
  return engines === 'auto' ? placeMeasured(start, models) : placeNumber(start, models, engines);
}

async function placeMeasured(start: GpuStart, models: readonly PreparedModel[]) {
  const { devices, log } = start;
  const heldByHost = enginesInMemory(readMemoryLimitBytes(), models);
  const enginesMax = Math.max(1, Math.floor(heldByHost / devices.length));
  const placed: GpuDevice[] = [];
  for (const device of devices) {
    if (device.outReason !== undefined) {
      placed.push(device);
      continue;
    }
    const each = { ...measuring(start, models, device), enginesMax };
    const { best: count, imagesPerS } = await measureEngines(each);
    log.info({ gpu: device.facts.id, engines: count, imagesPerS }, 'engines measured');
    for (let i = 0; i < count; i++) placed.push(device);
  }
  return placed;
}

/**
 * In proportion to memory, or to what one engine does where GPUs are of several kinds. Where
 * engines are too few for every GPU, those that are up get them: a GPU that is out would have an
 * engine that waits for it, perhaps for ever, beside a GPU that has none.
 */
async function placeNumber(start: GpuStart, models: readonly PreparedModel[], engines: number) {
  const { devices } = start;
  const up = devices.filter(({ outReason }) => outReason === undefined);
  const weightOf = await weighKinds(start, models, up);
  const spread = (over: readonly GpuDevice[]) =>
    spreadEngines(engines, over, device => ({
      weight: weightOf(device),
      enginesMax: enginesInGpu({ models, device }),
    }));
  const placed = spread(devices);
  const waits = placed.some(({ outReason }) => outReason !== undefined);
  return waits && up.some(device => !placed.includes(device)) ? spread(up) : placed;
}

/** Images a second of one engine; bytes of memory where all that are up are of one kind. */
async function weighKinds(
  start: GpuStart,
  models: readonly PreparedModel[],
  up: readonly GpuDevice[],
): Promise<(device: GpuDevice) => number> {
  const byMemory = ({ facts }: GpuDevice) => facts.memoryBytes;
  const kindOfDevice = (device: GpuDevice) => kindOf(device, start.provider);
  const kinds = new Map(up.map(device => [kindOfDevice(device), device]));
  if (kinds.size < 2) return byMemory;
  const speeds = new Map<string, number>();
  for (const [kind, device] of kinds) {
    const imagesPerS = await measureSpeed(measuring(start, models, device));
    // It may run the next time: it is not left without engines for that.
    if (imagesPerS === 0) return byMemory;
    start.log.info({ gpu: device.facts.id, imagesPerS }, 'GPU measured');
    speeds.set(kind, imagesPerS);
  }
  // One that is out may be of a kind that could not be measured.
  const slowest = Math.min(...speeds.values());
  return device => speeds.get(kindOfDevice(device)) ?? slowest;
}

/** The plan's first model takes most of an image's time. */
export function measuring(
  { provider, cpuThreads, engineEnv: childEnv, ending }: StartOn<ExecutionProvider>,
  models: readonly PreparedModel[],
  device: GpuDevice,
): MeasureOptions {
  const [model] = models;
  assert(model !== undefined, 'a plan has a model');
  const kind = `${kindOf(device, provider)}, ${cpuThreads} cores`;
  return { model, models, device, kind, childEnv, ending };
}

/**
 * Undefined: a GPU that was out runs again: a small graph, and the models as a whole.
 * @param furtherWrong what else keeps a GPU out; undefined: nothing.
 */
export async function tryAgain(
  start: GpuStart,
  plan: Plan,
  device: GpuDevice,
  furtherWrong: (device: GpuDevice) => Promise<string | undefined>,
): Promise<string | undefined> {
  return (
    (await attemptDevice(start.provider, device, start.engineEnv)) ??
    (await wrongAnswer(start, plan, device, 'afresh')) ??
    (await furtherWrong(device))
  );
}

/** Tries GPUs that are out again. Closed with the engines. @param furtherWrong as of `tryAgain`. */
export function watchDevices(
  start: GpuStart,
  plan: Plan,
  furtherWrong: (device: GpuDevice) => Promise<string | undefined>,
): DeviceWatch {
  const { devices, engineEnv, log } = start;
  return new DeviceWatch({
    devices,
    log,
    list: () => listGpus(engineEnv),
    attempt: device => tryAgain(start, plan, device, furtherWrong),
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
