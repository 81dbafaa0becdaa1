/** Chooses the execution provider, prepares the plan's models, opens engines and picture workers. */
import type { Logger } from 'pino';
import { ConfigError } from '#program/env.ts';
import { Admission } from './admission.ts';
import type { Config } from './config.ts';
import type { ChildLeft } from './drain.ts';
import { createAnswering } from './engine/choice/answer-picture.ts';
import { readCpuShare } from './engine/choice/cpu-share.ts';
import { chooseEngineLayout, type EngineLayout } from './engine/choice/engine-layout.ts';
import {
  type ProviderChoice,
  requireParity,
  selectExecutionProvider,
} from './engine/choice/execution-provider.ts';
import { openEnginePool } from './engine/pool/open-engine-pool.ts';
import {
  computeMegapixelBudget,
  enginesInMemory,
  type MegapixelBudget,
  operatorsBudget,
  readMemoryLimitBytes,
} from './memory-budget.ts';
import { loadPlanOutlines, type PlanOutline } from './models/plan.ts';
import type { ExecutionProvider, Plan } from './models/prepared-model.ts';
import { buildPlan } from './models/preparing/build-plan.ts';
import { detectInstructionSet } from './models/preparing/instruction-set.ts';
import { openPicturePool } from './picture/pool/open-picture-pool.ts';
import type { WorkerPicturePool } from './picture/pool/picture-pool.ts';
import { Pipeline, type PlanRun, type RunnablePlan } from './pipeline.ts';
import { readEngineEnvironment } from './providers/engine-environment.ts';

/** Decode of the next image and encode of the one before overlap with a run. */
const WORKERS_BESIDE_ENGINES = 2;
/** One image is being received or sent while every worker has one. */
const IMAGES_BESIDE_WORKERS = 1;

/** A pool of child processes, as the drain sees it. */
export interface OpenedPool {
  readonly kind: ChildLeft['kind'];
  readonly pool: {
    close(graceMs: number): Promise<void>;
    processes(): readonly { readonly pid: number }[];
  };
}

export interface PoolParts {
  readonly config: Config;
  readonly log: Logger;
  /** What is to run; admittedOutlineOf made it. */
  readonly outline: PlanOutline;
  /** Aborted when the node is told to end: then nothing more is opened. */
  readonly ending: AbortSignal;
  /** Each pool joins it as soon as it has processes: the node may have to end while it starts. */
  readonly opened: OpenedPool[];
  /** The engines of a second look, which nothing waits for, cannot be loaded. */
  readonly fail: (error: Error) => void;
}

export interface Pools {
  readonly provider: ProviderChoice;
  readonly plan: RunnablePlan;
  /** Every plan whose models run here, `plan` among them. */
  readonly plans: readonly RunnablePlan[];
  readonly pictures: WorkerPicturePool;
  readonly admission: Admission;
  readonly pipeline: Pipeline;
}

/**
 * Resolves when every model that an image waits for has an engine.
 * @throws ModelError, ExecutionProviderError, ConfigError, each for the operator.
 */
export async function openPools(given: PoolParts): Promise<Pools> {
  const { config, log, ending } = given;
  const parts = { ...given, engineEnv: await readEngineEnv(given) };
  const provider = await chooseProvider(parts);
  ending.throwIfAborted();
  const prepared = await preparePlan(parts, provider.selected);
  const layout = await chooseLayout(config, provider.selected, prepared);
  ending.throwIfAborted();
  // Before any child exists: a node without the memory must not begin.
  const budget = requireMegapixelBudget(config, prepared, layout.engines);
  await requireParityOf(prepared, provider.selected, parts.engineEnv);
  ending.throwIfAborted();
  const workers = config.pictureWorkers ?? layout.engines + WORKERS_BESIDE_ENGINES;
  const openPictures = async () => {
    const pictures = await openPicturePool({ workers, childEnv: config.childEnv, log });
    parts.opened.push({ kind: 'picture worker', pool: pictures });
    return pictures;
  };
  const [runs, pictures] = await Promise.all([
    openEngines(parts, prepared, layout, provider.selected),
    openPictures(),
  ]);
  const plan = { name: prepared.name, runs };
  const plans = [plan, ...otherPlans(plan, await loadPlanOutlines())];
  const admission = new Admission({ imagesMax: workers + IMAGES_BESIDE_WORKERS, ...budget });
  return { provider, plan, plans, pictures, admission, pipeline: new Pipeline(pictures) };
}

interface EngineParts extends PoolParts {
  /** The engines' whole environment; that of picture workers has no word of GPUs. */
  readonly engineEnv: Readonly<Record<string, string>>;
}

/** Where no GPU is asked for it is the environment of every child. */
async function readEngineEnv({ config, log }: PoolParts): Promise<EngineParts['engineEnv']> {
  const { executionProvider, providerDir, childEnv } = config;
  if (executionProvider === 'cpu' || executionProvider === 'webgpu') return childEnv;
  const { childEnv: engineEnv, installed } = await readEngineEnvironment(providerDir, childEnv);
  if (installed.state === 'unusable') {
    const { folder, reason } = installed;
    log.warn({ folder, reason }, 'the installed provider is not used');
  }
  return engineEnv;
}

async function chooseProvider({ config, log, engineEnv }: EngineParts): Promise<ProviderChoice> {
  const choice = await selectExecutionProvider(config.executionProvider, { childEnv: engineEnv });
  for (const { provider, reason } of choice.fallbacks) {
    log.warn({ provider, selected: choice.selected, reason }, 'provider fell back');
  }
  return choice;
}

async function preparePlan(
  { config, log, outline, engineEnv: childEnv }: EngineParts,
  provider: ExecutionProvider,
): Promise<Plan> {
  const { modelSettings } = config;
  const plan = await buildPlan({
    outline,
    cacheDir: modelSettings.modelDir,
    weightsDir: modelSettings.weightsDir,
    precision: modelSettings.precision,
    provider,
    instructionSet: await detectInstructionSet(),
    answering: createAnswering({ childEnv, threads: await readCpuThreads() }),
    onProgress: (name, progress) => {
      const discarded = progress.step === 'discard';
      log[discarded ? 'warn' : 'debug']({ model: name, ...progress }, 'preparing');
    },
  });
  for (const { model } of plan.models) {
    const { model: name, precision, precisionFallback: reason } = model;
    if (reason === undefined) continue;
    log.warn({ model: name, selected: precision, reason }, 'precision fell back');
  }
  return plan;
}

async function chooseLayout(
  { engines, engineThreads, engineGoal }: Config,
  provider: ExecutionProvider,
  { models }: Plan,
): Promise<EngineLayout> {
  const cpuShare = await readCpuShare();
  const chosen = chooseEngineLayout({
    provider,
    precisions: models.map(({ model }) => model.precision),
    cpuShare,
    goal: engineGoal,
    enginesMax: enginesInMemory(
      readMemoryLimitBytes(),
      models.map(({ model }) => model),
    ),
  });
  if (engines === undefined) {
    return { ...chosen, threadsPerEngine: engineThreads ?? chosen.threadsPerEngine };
  }
  const share = provider === 'cpu' ? Math.max(1, Math.floor(cpuShare / engines)) : 1;
  return { engines, threadsPerEngine: engineThreads ?? share };
}

function requireMegapixelBudget(
  { megapixelsMax }: Config,
  { models }: Plan,
  engines: number,
): MegapixelBudget {
  if (megapixelsMax !== undefined) return operatorsBudget(megapixelsMax);
  const memoryLimitBytes = readMemoryLimitBytes();
  const opened = models.flatMap(({ model }) => Array.from({ length: engines }, () => model));
  const budget = computeMegapixelBudget({ memoryLimitBytes, engines: opened });
  if (budget !== undefined) return budget;
  const expected =
    `set: the memory limit (${Math.round(memoryLimitBytes / 1e6)} MB) leaves no room for a ` +
    'photo beside the engines; give more memory, fewer engines, or the megapixels you want to risk';
  throw new ConfigError([{ variable: 'MATTING_NODE_MEGAPIXELS_MAX', expected }]);
}

async function requireParityOf(
  { models }: Plan,
  provider: ExecutionProvider,
  childEnv: EngineParts['engineEnv'],
): Promise<void> {
  if (provider !== 'webgpu') return;
  const cpuThreads = await readCpuThreads();
  for (const { model } of models) await requireParity(model, { childEnv, cpuThreads });
}

async function readCpuThreads(): Promise<number> {
  return Math.max(1, Math.floor(await readCpuShare()));
}

async function openEngines(
  { engineEnv: childEnv, log, ending, opened, fail }: EngineParts,
  { models }: Plan,
  layout: EngineLayout,
  provider: ExecutionProvider,
): Promise<PlanRun[]> {
  const sharesCores = provider === 'cpu' && models.length > 1;
  const runs: PlanRun[] = [];
  const awaited: Promise<void>[] = [];
  for (const { model, role } of models) {
    ending.throwIfAborted();
    const engines = openEnginePool({ model, ...layout, sharesCores, childEnv, log });
    opened.push({ kind: 'engine', pool: engines });
    runs.push({ model, role, engines });
    const ready = engines.ready();
    // A picture that needs a second look before its engine is ready takes longer.
    if (role === 'secondLook') ready.catch(fail);
    // On a CPU each warms up with all cores: all at once would not be ready sooner, but later.
    else if (provider === 'cpu') await ready;
    else awaited.push(ready);
  }
  await Promise.all(awaited);
  return runs;
}

/** The plans whose every model runs here too, at the same size. */
function otherPlans(own: RunnablePlan, outlines: readonly PlanOutline[]): RunnablePlan[] {
  return outlines.flatMap(({ name, entries }) => {
    if (name === own.name) return [];
    const runs = entries.flatMap(({ model, inputSize, role }) => {
      const run = own.runs.find(
        candidate => candidate.model.model === model && candidate.model.inputWidth === inputSize,
      );
      return run === undefined ? [] : [{ ...run, role }];
    });
    return runs.length === entries.length ? [{ name, runs }] : [];
  });
}
