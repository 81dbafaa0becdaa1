/**
 * How many images engines take at once: MATTING_BATCH_MAX, or what a measurement finds worth it.
 * The graphs for it are prepared, and held against the one for one image, before engines open.
 */
import { answerRuns, createAnswering } from '../engine/choice/answer-picture.ts';
import { ExecutionProviderError } from '../engine/choice/execution-provider.ts';
import type { GpuDevice } from '../engine/devices/gpu-device.ts';
import { saysMemoryIsShort } from '../engine/native-error.ts';
import { LOAD_TIMEOUT_MS, LOAD_TIMEOUT_TENSORRT_MS } from '../engine/pool/engine.ts';
import { ModelError } from '../models/model-error.ts';
import {
  BATCH_SIZES,
  type ExecutionProvider,
  imagesARun,
  type Plan,
  type PreparedModel,
  takingAtMost,
} from '../models/prepared-model.ts';
import { checkBatches } from '../models/preparing/check-batches.ts';
import { prepareBatches } from '../models/preparing/prepare-batches.ts';
import { PARTS_BYTES_MAX } from '../process/frames.ts';
import { type Checked, kindOf, measuring, type StartOn } from './gpus.ts';
import { imagesInGpu, measureBatches } from './measured-engines.ts';

/** On a CPU or WebGPU there are no devices. */
export type BatchStart = StartOn<ExecutionProvider>;

/**
 * With the graphs that MATTING_BATCH_MAX asks for by its number; else the plan as it is.
 * @throws ModelError where a model cannot take so many; ExecutionProviderError where they get other
 * mattes than alone.
 */
export async function prepareAsked(start: BatchStart, plan: Plan): Promise<Plan> {
  const { batchMax } = start.config;
  if (batchMax === 'auto' || batchMax === 1) return plan;
  requireFrame(plan, batchMax);
  const prepared = await withBatches(plan, batchMax);
  const wrong = await wrongAnywhere(start, prepared, start.devices);
  if (wrong === undefined) return prepared;
  throw new ExecutionProviderError(start.provider, `${wrong} (MATTING_BATCH_MAX=${batchMax})`);
}

/**
 * With `auto`, as many as a measurement finds worth it on the GPUs that engines are placed on, the
 * fewest of them.
 * @param placed the GPU of each engine of a model; undefined: none is known.
 */
export async function prepareMeasured(
  start: BatchStart,
  plan: Plan,
  placed: readonly GpuDevice[] | undefined,
): Promise<Plan> {
  const { config, log } = start;
  const up = [...new Set(placed)].filter(({ outReason }) => outReason === undefined);
  if (config.batchMax !== 'auto' || up.length === 0) return plan;
  const models = plan.models.map(({ model }) => model);
  const enginesOn = (device: GpuDevice) => placed?.filter(other => other === device).length ?? 0;
  const held = up.map(device => imagesInGpu({ models, device, engines: enginesOn(device) }));
  const most = Math.min(...held, ...models.map(imagesInFrame));
  const prepared = most > 1 ? await tryBatches(start, plan, { images: most, up }) : plan;
  const [first] = prepared.models;
  if (first === undefined || imagesARun(first.model) === 1) return plan;
  let best = most;
  for (const device of up) {
    const { best: images, imagesPerS } = await measureBatches({
      ...measuring(start, models, device),
      model: first.model,
      engines: enginesOn(device),
    });
    log.info({ gpu: device.facts.id, images, imagesPerS }, 'images at once measured');
    best = Math.min(best, images);
  }
  return mapModels(prepared, model => takingAtMost(model, best));
}

/** How many pictures of the model's size go to an engine in one frame. */
export function imagesInFrame({ inputWidth, inputHeight }: PreparedModel): number {
  const bytes = 3 * inputWidth * inputHeight;
  return BATCH_SIZES.findLast(images => images * bytes <= PARTS_BYTES_MAX) ?? 1;
}

function requireFrame({ models }: Plan, images: number): void {
  for (const { model } of models) {
    const held = imagesInFrame(model);
    if (images <= held) continue;
    const { model: name, inputWidth, inputHeight } = model;
    throw new ModelError(
      'settings',
      `${name} takes no more than ${held} images of ${inputWidth}x${inputHeight} pixels at once ` +
        `(MATTING_BATCH_MAX=${images}): a run holds ${PARTS_BYTES_MAX / 2 ** 30} GiB of them`,
    );
  }
}

/** With fewer where the memory is too short for them; the plan as it is, with a line, for none. */
async function tryBatches(
  start: BatchStart,
  plan: Plan,
  { images, up }: { readonly images: number; readonly up: readonly GpuDevice[] },
): Promise<Plan> {
  let reason = '';
  for (const fewer of BATCH_SIZES.filter(size => size <= images).reverse()) {
    try {
      const prepared = await withBatches(plan, fewer);
      const wrong = await wrongAnywhere(start, prepared, up);
      if (wrong === undefined) return prepared;
      reason = wrong;
    } catch (error) {
      if (!(error instanceof ModelError)) throw error;
      reason = error.message;
    }
    // Others may have memory that the estimate counts.
    if (!saysMemoryIsShort(reason)) break;
  }
  start.log.warn({ reason }, 'images run one at a time');
  return plan;
}

async function withBatches(plan: Plan, images: number): Promise<Plan> {
  const models = await Promise.all(
    plan.models.map(async ({ model, role }) => ({
      model: await prepareBatches(model, images),
      role,
    })),
  );
  return { ...plan, models };
}

function mapModels(plan: Plan, change: (model: PreparedModel) => PreparedModel): Plan {
  const models = plan.models.map(({ model, role }) => ({ model: change(model), role }));
  return { ...plan, models };
}

/** On one of each kind of `devices`: what a folder that is only read cannot remember, this does. */
async function wrongAnywhere(
  start: BatchStart,
  plan: Plan,
  devices: readonly GpuDevice[],
): Promise<string | undefined> {
  const up = devices.filter(({ outReason }) => outReason === undefined);
  const checked = new Set<string | undefined>();
  for (const device of up.length === 0 ? [undefined] : up) {
    const kind = kindOf(device, start.provider);
    if (checked.has(kind)) continue;
    const wrong = await wrongTogether(start, plan, device);
    if (wrong !== undefined) return wrong;
    checked.add(kind);
  }
  return undefined;
}

/**
 * Undefined: on this GPU, or the CPU, images that run together have the mattes that they have
 * alone; where none run together too. `once` is remembered by kind.
 */
export async function wrongTogether(
  { config, engineEnv, provider, cpuThreads, ending }: BatchStart,
  plan: Plan,
  device: GpuDevice | undefined,
  checked: Checked = 'once',
): Promise<string | undefined> {
  const childEnv = device?.envOf(engineEnv) ?? engineEnv;
  const threads = provider === 'cpu' ? cpuThreads : 1;
  const { machine: cpu } = createAnswering({ childEnv: config.childEnv, threads });
  const kind = provider === 'cpu' ? cpu : kindOf(device, provider);
  const machine = checked === 'once' ? kind : undefined;
  const loadMs = provider === 'tensorrt' ? LOAD_TIMEOUT_TENSORRT_MS : LOAD_TIMEOUT_MS;
  for (const { model } of plan.models) {
    ending.throwIfAborted();
    const timeoutMs = (1 + (model.batches?.length ?? 0)) * loadMs;
    const answer = answerRuns({ childEnv, threads, timeoutMs });
    const wrong = await checkBatches({ model, answer, machine });
    if (wrong !== undefined) return `${model.model} in ${model.precision}: ${wrong}`;
  }
  return undefined;
}

/**
 * As `ready`, of engines of `model`. What does not fit into the memory may be the graphs for several
 * images, or engines beside one another: where none of its engines loads, the error names what
 * would do without them.
 * @param engines of the model on one GPU.
 */
export async function namingSettings(
  ready: Promise<void>,
  model: PreparedModel,
  engines: number,
): Promise<void> {
  try {
    await ready;
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const { message } = error;
    const images = imagesARun(model);
    const advice = [
      ...(images > 1
        ? [`with graphs for up to ${images} images at once: MATTING_BATCH_MAX=1 does without`]
        : []),
      ...(engines > 1 && saysMemoryIsShort(message)
        ? [`with ${engines} engines of each model on a GPU: MATTING_ENGINES takes fewer`]
        : []),
    ];
    if (advice.length === 0) throw error;
    throw new Error(`${message} (${advice.join('; ')})`, { cause: error });
  }
}
