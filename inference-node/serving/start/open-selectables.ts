/** Finds what a request may name beside the own plan, and loads it as a start loads a model. */
import type { Logger } from 'pino';
import type { Admission } from '../admission.ts';
import { enginesInMemory, readMemoryLimitBytes } from '../admission.ts';
import { createAnswering } from '../engine/choice/answer-picture.ts';
import { type EngineLayout, THREADS_PER_ENGINE_MAX } from '../engine/choice/engine-layout.ts';
import { ExecutionProviderError } from '../engine/choice/execution-provider.ts';
import type { GpuDevice } from '../engine/devices/gpu-device.ts';
import type { EnginePool } from '../engine/pool/engine-pool.ts';
import { openEnginePool } from '../engine/pool/open-engine-pool.ts';
import type { NodeMetrics } from '../metrics.ts';
import { loadManifest, MANIFEST_DIRECTORY } from '../models/manifest.ts';
import { ModelError } from '../models/model-error.ts';
import type { PlanOutline } from '../models/plan.ts';
import type { ExecutionProvider, Plan, PreparedModel } from '../models/prepared-model.ts';
import { sumOf } from '../models/selectable.ts';
import type { RunnablePlan } from '../pipeline.ts';
import type { RuntimeOptions } from '../prepared/cpu-runtime.ts';
import { isMadeOnLoad } from '../prepared/glance-at-model.ts';
import { detectInstructionSet } from '../prepared/instruction-set.ts';
import { type LoadOptions, loadPrepared, type MakePrepared } from '../prepared/load-prepared.ts';
import type { BufferPool } from '../process/buffer-pool.ts';
import { findOpenvino } from '../providers/openvino-files.ts';
import { EngineMemory } from '../selectables/engine-memory.ts';
import { lookAround } from '../selectables/look.ts';
import { Selectables } from '../selectables/selectables.ts';
import { type GpuStart, wrongAnswer } from './gpus.ts';
import type { PoolSettings } from './pool-settings.ts';

interface SelectablesStart {
  readonly config: PoolSettings;
  readonly make: MakePrepared;
  readonly engineEnv: Readonly<Record<string, string>>;
  readonly provider: ExecutionProvider;
  readonly cpuThreads: number;
  readonly log: Logger;
  readonly outline: PlanOutline;
  readonly plan: RunnablePlan;
  readonly layout: EngineLayout;
  readonly device: GpuDevice | undefined;
  readonly gpu: GpuStart | undefined;
  /** The memory of the own plan's engines. */
  readonly ownBytes: number;
  readonly admission: Admission;
  readonly buffers: BufferPool;
  readonly metrics: Pick<NodeMetrics, 'modelLoaded' | 'modelUnloaded'>;
}

export async function openSelectables(start: SelectablesStart): Promise<Selectables> {
  const { config, provider, plan, layout, ownBytes, admission, outline, log, metrics } = start;
  const instructionSet = await detectInstructionSet();
  const limitBytes = readMemoryLimitBytes();
  const isModel = plan.runs.length === 1 && plan.runs[0]?.model.model === plan.name;
  const kind = isModel ? 'model' : 'plan';
  const selectables = new Selectables({
    ...{ log, metrics, idleMs: config.modelIdleMs },
    own: { ...plan, kind, goodFor: outline.goodFor ?? '' },
    memory: new EngineMemory({ limitBytes, ownBytes }, admission),
    look: () => lookAround({ settings: config.modelSettings, provider, instructionSet }),
    enginesOf: model => {
      const fitting = enginesInMemory(limitBytes, engines => Array(engines).fill(model), ownBytes);
      return Math.max(1, Math.min(layout.engines, fitting));
    },
    prepare: (model, memoryMaxBytes) =>
      prepareAgain(start, model, { instructionSet, memoryMaxBytes }),
    open: (model, engines) => openEngines(start, model, engines),
  });
  await selectables.open();
  return selectables;
}

/**
 * Prepares a model that was found until it runs: whole, and checked on the machine that computes.
 */
async function prepareAgain(
  start: SelectablesStart,
  found: PreparedModel,
  bounds: Pick<LoadOptions, 'instructionSet' | 'memoryMaxBytes'>,
): Promise<PreparedModel> {
  const { config, provider, cpuThreads } = start;
  const { modelDir: cacheDir, weightsDir, addedModelsDir } = config.modelSettings;
  const manifest = await loadManifest(found.model, MANIFEST_DIRECTORY, addedModelsDir);
  const openvino = await findOpenvino(config.providerDir, config.cpuRuntime);
  const runtime: RuntimeOptions = {
    wanted: config.cpuRuntime,
    openvino: typeof openvino === 'string' ? undefined : openvino,
  };
  const model = await loadPrepared({
    ...{ manifest, cacheDir, weightsDir, provider, ...bounds, runtime },
    inputSize: { width: found.inputWidth, height: found.inputHeight },
    answering: createAnswering({ childEnv: config.childEnv, threads: cpuThreads }),
    make: isMadeOnLoad(manifest, provider) ? start.make : nothingMade,
  });
  const planOf = (one: PreparedModel): Plan => {
    return { name: one.model, models: [{ model: one, role: 'subject' }] };
  };
  if (sumOf(planOf(model)) !== sumOf(planOf(found))) {
    throw new ModelError('altered', `the manifest of ${found.model} has changed`);
  }
  // The GPU is not lost for it: it computes the own plan's models rightly.
  const wrong = start.gpu && (await wrongAnswer(start.gpu, planOf(model)));
  if (wrong !== undefined) throw new ExecutionProviderError(provider, wrong);
  return model;
}

async function nothingMade(): Promise<never> {
  throw new ModelError(
    'prepare',
    'its prepared file is gone or damaged: `models prepare` makes it',
  );
}

function openEngines(
  {
    config,
    provider,
    layout,
    device,
    engineEnv: childEnv,
    cpuThreads,
    log,
    buffers,
  }: SelectablesStart,
  model: PreparedModel,
  engines: number,
): EnginePool {
  const share = Math.min(THREADS_PER_ENGINE_MAX, Math.max(1, Math.floor(cpuThreads / engines)));
  const onCpu = Math.max(share, layout.threadsPerEngine);
  const threadsPerEngine = config.engineThreads ?? (provider === 'cpu' ? onCpu : 1);
  const sharesCores = provider === 'cpu';
  const options = { engines, threadsPerEngine, device, sharesCores, childEnv, log, buffers };
  return openEnginePool({ model, sparesDevice: true, ...options });
}
