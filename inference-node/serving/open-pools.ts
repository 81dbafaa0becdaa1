import type { Logger } from 'pino';
import {
  Admission,
  bytesOfEngines,
  type MegapixelBudget,
  readMemoryLimitBytes,
  requireMegapixelBudget,
} from './admission.ts';
import type { ChildLeft } from './drain.ts';
import { type EngineLayout, enginesOf, readCpuShare } from './engine/choice/engine-layout.ts';
import { ExecutionProviderError, type ProviderChoice } from './engine/choice/execution-provider.ts';
import { createAnswering } from './engine/choice/run-once.ts';
import type { GpuDevice } from './engine/devices/gpu-device.ts';
import type { EnginePool, EnginePoolOptions } from './engine/pool/engine-pool.ts';
import { IdleEngines } from './engine/pool/idle-engines.ts';
import { openEnginePool } from './engine/pool/open-engine-pool.ts';
import type { PlanOutline } from './models/plan.ts';
import type { ExecutionProvider, Plan, PreparedModel } from './models/prepared-model.ts';
import { type Selectable, selectableOf } from './models/selectable.ts';
import { jxlTools } from './picture/makeable.ts';
import { openPicturePool } from './picture/pool/open-picture-pool.ts';
import type { PicturePool } from './picture/pool/picture-pool.ts';
import { Pipeline, type PlanRun, type RunnablePlan } from './pipeline.ts';
import type { AnswerPicture } from './prepared/answer-check.ts';
import type { RuntimeOptions } from './prepared/cpu-runtime.ts';
import { buildPlan, type MakePrepared } from './prepared/load-prepared.ts';
import { BufferPool } from './process/buffer-pool.ts';
import { C_INTERFACE_VARIABLE, NODE_C_INTERFACE } from './providers/c-interface.ts';
import { findOpenvino } from './providers/openvino-files.ts';
import { readEngineEnvironment } from './providers/provider-files.ts';
import {
  type ChosenProvider,
  chooseProvider,
  fallenBack,
  type GpuStart,
  namingSettings,
  wrongAnswer,
} from './start/gpus.ts';
import { chooseHeif } from './start/heif.ts';
import { chooseLayout, chooseWorkers, enginesOpened } from './start/node-layout.ts';
import type { PoolSettings } from './start/pool-settings.ts';

/** One more image may be received or sent while every worker has one. */
const IMAGES_BESIDE_WORKERS = 1;

export interface OpenedPool {
  readonly kind: ChildLeft['kind'];
  readonly pool: {
    close(graceMs: number): Promise<void>;
    processes(): readonly { readonly pid: number }[];
  };
}

interface PoolParts {
  readonly config: PoolSettings;
  readonly log: Logger;
  readonly outline: PlanOutline;
  readonly make: MakePrepared;
  /** Aborts when the node must end: nothing more opens. */
  readonly ending: AbortSignal;
  /** Each pool joins as soon as it has processes, since the node may end during its start. */
  readonly opened: OpenedPool[];
  /** Reports that the engines of a second look, which nothing waits for, cannot be loaded. */
  readonly fail: (error: Error) => void;
}

export interface Pools {
  readonly provider: ProviderChoice;
  readonly device: GpuDevice | undefined;
  readonly plan: RunnablePlan;
  readonly selectable: Selectable;
  readonly engineBytes: number;
  readonly pictures: PicturePool;
  readonly admission: Admission;
  readonly pipeline: Pipeline;
}

export async function openPools(given: PoolParts): Promise<Pools> {
  const { config, log, ending } = given;
  const cpuShare = await readCpuShare();
  const parts = { ...given, cpuShare, engineEnv: await readEngineEnv(given) };
  const providerStart = await startOnProvider(parts);
  const { prepared, provider, device, engineEnv } = providerStart;
  const selected = provider.selected;
  const layout = chooseLayout(parts, selected, prepared, device);
  ending.throwIfAborted();
  // Comes before any child: without enough memory the node must not begin.
  const budget = chooseBudget(config, prepared, layout.engines);
  const heif = await chooseHeif(config, log);
  const { failure: reason } = jxlTools();
  if (reason !== undefined) log.warn({ reason }, 'libjxl-tools are installed and not used');
  ending.throwIfAborted();
  const opened = enginesOpened(prepared, layout.engines);
  const host = { provider: selected, cpuShare };
  const workers = config.pictureWorkers ?? chooseWorkers(host, layout.engines, opened.length);
  const { modelIdleMs: idleMs } = config;
  if (idleMs !== undefined) {
    log.info({ engines: layout.engines, workers, idleMs }, 'engines end when idle');
  }
  const buffers = new BufferPool();
  const openPictures = async () => {
    const { childEnv } = config;
    const pictures = await openPicturePool({ workers, childEnv, log, buffers, heif });
    parts.opened.push({ kind: 'picture worker', pool: pictures });
    return pictures;
  };
  device?.onLost(reason => {
    const { id: gpu, name } = device.facts;
    log.error({ gpu, name, reason }, 'GPU is out: its engines end');
  });
  const [runs, pictures] = await Promise.all([
    openEngines({ ...parts, engineEnv, buffers }, prepared, layout, providerStart),
    openPictures(),
  ]);
  const plan = { name: prepared.name, runs };
  const admission = new Admission({ imagesMax: workers + IMAGES_BESIDE_WORKERS, ...budget });
  const selectable = selectableOf(prepared, parts.outline.goodFor);
  const pipeline = new Pipeline(pictures);
  const engineBytes = bytesOfEngines(opened);
  return { provider, device, plan, selectable, engineBytes, pictures, admission, pipeline };
}

interface EngineParts extends PoolParts {
  readonly cpuShare: number;
  /** The engines' whole environment. Picture workers get no variable of GPUs. */
  readonly engineEnv: Readonly<Record<string, string>>;
}

interface ProviderStart extends ChosenProvider, Pick<EngineParts, 'engineEnv'> {
  readonly prepared: Plan;
  readonly gpu: GpuStart | undefined;
}

/** If CUDA does not run right by the C interface, it runs by the binding. */
async function startOnProvider(parts: EngineParts): Promise<ProviderStart> {
  const { config, log, ending } = parts;
  const { executionProvider: requested, cudaInterface } = config;
  if (requested === 'cpu' || cudaInterface === 'binding') return await startBy(parts);
  try {
    const engineEnv = { ...parts.engineEnv, [C_INTERFACE_VARIABLE]: NODE_C_INTERFACE };
    const strict = { ...config, executionProvider: 'cuda' } as const;
    const start = await startBy({ ...parts, engineEnv, config: strict });
    return { ...start, provider: { ...start.provider, requested } };
  } catch (error) {
    ending.throwIfAborted();
    log.warn({ reason: (error as Error).message }, 'the C interface is not used');
    return await startBy(parts);
  }
}

async function startBy(parts: EngineParts): Promise<ProviderStart> {
  const { config, make, log, ending, engineEnv } = parts;
  let chosen = await chooseProvider(config, engineEnv, log);
  ending.throwIfAborted();
  let prepared = await preparePlan(parts, chosen.provider.selected);
  const { selected: provider, requested } = chosen.provider;
  if (provider === 'cuda') {
    const cpuThreads = readCpuThreads(parts);
    const { device } = chosen;
    const gpu: GpuStart = { config, make, engineEnv, device, cpuThreads, ending };
    const wrong = await wrongAnswer(gpu, prepared);
    if (wrong === undefined) return { ...chosen, prepared, gpu, engineEnv };
    if (requested !== 'auto' || config.gpuDevice !== undefined)
      throw new ExecutionProviderError(provider, wrong);
    chosen = fallenBack(wrong);
    prepared = await preparePlan(parts, 'cpu');
  }
  for (const { provider: tried, reason } of chosen.provider.fallbacks) {
    log.warn({ provider: tried, selected: chosen.provider.selected, reason }, 'provider fell back');
  }
  return { ...chosen, prepared, gpu: undefined, engineEnv };
}

/** If no GPU is requested, engines get the environment of every child. */
export async function readEngineEnv({
  config,
  log,
}: {
  readonly config: Pick<PoolSettings, 'executionProvider' | 'providerDir' | 'childEnv'>;
  readonly log: Logger;
}): Promise<EngineParts['engineEnv']> {
  const { executionProvider, providerDir, childEnv } = config;
  if (executionProvider === 'cpu') return childEnv;
  const { childEnv: engineEnv, installed } = await readEngineEnvironment(providerDir, childEnv);
  if (installed.state === 'unusable') {
    const { folder, reason } = installed;
    log.warn({ folder, reason }, 'the installed provider is not used');
  }
  return engineEnv;
}

type PlanParts = Pick<
  EngineParts,
  'config' | 'log' | 'outline' | 'make' | 'engineEnv' | 'cpuShare'
>;

export async function preparePlan(
  parts: PlanParts,
  provider: ExecutionProvider,
  answer?: AnswerPicture,
): Promise<Plan> {
  const { log, outline, make, engineEnv: childEnv } = parts;
  const { modelDir: cacheDir, weightsDir, addedModelsDir, precision } = parts.config.modelSettings;
  const runtime = provider === 'cpu' ? await readRuntimeOptions(parts) : undefined;
  const plan = await buildPlan({
    ...{ outline, cacheDir, weightsDir, addedModelsDir, precision, provider, make, runtime },
    answering: {
      ...createAnswering({ childEnv, threads: readCpuThreads(parts) }),
      ...(answer && { answer }),
    },
    onProgress: (name, progress) => {
      const unwanted = progress.step === 'discard' || progress.step === 'keep';
      log[unwanted ? 'warn' : 'debug']({ model: name, ...progress }, 'preparing');
    },
  });
  for (const { model } of plan.models) {
    const { model: name, precision, precisionFallback: reason, runtimeFallback } = model;
    if (reason !== undefined)
      log.info({ model: name, selected: precision, reason }, 'precision fell back');
    if (runtimeFallback !== undefined && runtime?.openvino !== undefined)
      log.info({ model: name, reason: runtimeFallback }, 'OpenVINO does not run a model');
  }
  return plan;
}

async function readRuntimeOptions({ config, log }: PlanParts): Promise<RuntimeOptions> {
  const { cpuRuntime: wanted, providerDir } = config;
  const found = await findOpenvino(providerDir, wanted);
  if (typeof found !== 'string') return { wanted, openvino: found };
  log.info({ reason: found }, 'OpenVINO is not used');
  return { wanted, openvino: undefined };
}

export function chooseBudget(
  { memoryPercent }: Pick<PoolSettings, 'memoryPercent'>,
  { models }: Plan,
  engines: number,
): MegapixelBudget {
  const opened = enginesOpened({ models }, engines);
  const memoryLimitBytes = readMemoryLimitBytes(memoryPercent);
  return requireMegapixelBudget({ memoryLimitBytes, engines: opened });
}

function readCpuThreads({ cpuShare }: Pick<EngineParts, 'cpuShare'>): number {
  return Math.max(1, Math.floor(cpuShare));
}

function openPool(
  { modelIdleMs: idleMs }: PoolSettings,
  model: PreparedModel,
  options: Omit<EnginePoolOptions, 'model'>,
): EnginePool {
  const open = () => openEnginePool({ model, ...options });
  if (idleMs === undefined) return open();
  const { engines, log } = options;
  return new IdleEngines({ model: model.model, engines, idleMs, log, open });
}

async function openEngines(
  {
    engineEnv: childEnv,
    log,
    ending,
    opened,
    fail,
    buffers,
    ...parts
  }: EngineParts & { readonly buffers: BufferPool },
  { models }: Plan,
  layout: EngineLayout,
  { provider: { selected: provider }, device }: ProviderStart,
): Promise<PlanRun[]> {
  const sharesCores = provider === 'cpu' && models.length > 1;
  const runs: PlanRun[] = [];
  const awaited: Promise<void>[] = [];
  for (const planned of models) {
    ending.throwIfAborted();
    const { model, role, extraRuns } = planned;
    const alike = { ...layout, device, sharesCores, childEnv, log, buffers };
    const options = { ...alike, engines: enginesOf(planned, models, layout.engines) };
    const engines = openPool(parts.config, model, options);
    opened.push({ kind: 'engine', pool: engines });
    runs.push({ model, role, engines, extraRuns });
    const ready = namingSettings(engines.ready(), layout.engines);
    // On a GPU an engine may load for minutes, so the node serves only after that.
    if (provider !== 'cpu') awaited.push(ready);
    // A picture that needs a second look before its engine is ready waits for it.
    else if (role === 'secondLook' || role === 'surerLook') ready.catch(fail);
    // Each engine warms up with all cores, so in parallel they would only be ready later.
    else await ready;
  }
  await Promise.all(awaited);
  return runs;
}
