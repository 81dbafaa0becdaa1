/**
 * How many images engines take at once, by MATTING_BATCH_MAX. The graphs for it are prepared, and
 * held against the one for one image, before engines open.
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
} from '../models/prepared-model.ts';
import { checkBatches } from '../models/preparing/check-batches.ts';
import { prepareBatches } from '../models/preparing/prepare-batches.ts';
import { PARTS_BYTES_MAX } from '../process/frames.ts';
import { type Checked, kindOf, type StartOn } from './gpus.ts';

/** On a CPU or WebGPU there are no devices. */
export type BatchStart = StartOn<ExecutionProvider>;

/**
 * With the graphs that MATTING_BATCH_MAX asks for by its number; else the plan as it is.
 * @throws ModelError where a model cannot take so many; ExecutionProviderError where they get other
 * mattes than alone.
 */
export async function prepareAsked(start: BatchStart, plan: Plan): Promise<Plan> {
  const { batchMax } = start.config;
  if (batchMax === 1) return plan;
  requireFrame(plan, batchMax);
  const prepared = await withBatches(plan, batchMax);
  const wrong = await wrongAnywhere(start, prepared);
  if (wrong === undefined) return prepared;
  throw new ExecutionProviderError(start.provider, `${wrong} (MATTING_BATCH_MAX=${batchMax})`);
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

async function withBatches(plan: Plan, images: number): Promise<Plan> {
  const models = await Promise.all(
    plan.models.map(async ({ model, role }) => ({
      model: await prepareBatches(model, images),
      role,
    })),
  );
  return { ...plan, models };
}

/** On one GPU of each kind: what a folder that is only read cannot remember, this does. */
async function wrongAnywhere(start: BatchStart, plan: Plan): Promise<string | undefined> {
  const up = start.devices.filter(({ outReason }) => outReason === undefined);
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
