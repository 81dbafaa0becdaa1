/**
 * The whole model against a stored answer, at the first start on a kind of GPU: half precision,
 * kernels that a driver chose, and a card that computes wrongly show there, not in a small graph.
 */
import { loadManifest, type ModelManifest } from '../models/manifest.ts';
import type { PreparedModel } from '../models/prepared-model.ts';
import { type AnswerPicture, checkAnswer, type Machine } from './answer-check.ts';
import { drawCheckPicture, summariseAnswer } from './check-picture.ts';
import { type LoadOptions, loadPrepared } from './load-prepared.ts';
import { loadRanges } from './ranges.ts';

export interface DeviceAnswerOptions
  extends Pick<
    LoadOptions,
    'cacheDir' | 'weightsDir' | 'manifestDirectory' | 'instructionSet' | 'answering' | 'make'
  > {
  readonly model: PreparedModel;
  /** Runs the model on the GPU. */
  readonly answer: AnswerPicture;
  /** The GPU, its driver, the runtime and the provider. */
  readonly machine: Machine;
}

/** Undefined where the GPU's answer is the model's; else one line that says what is wrong. */
export async function checkAnswerOnDevice(
  options: DeviceAnswerOptions,
): Promise<string | undefined> {
  return await checkAnswer(options.model, () => storedAnswer(options), options);
}

/** Of the model's ranges where there are some for this size; else the CPU's, in fp32, made now. */
async function storedAnswer(options: DeviceAnswerOptions): Promise<readonly number[]> {
  const { model, manifestDirectory } = options;
  const { inputWidth: width, inputHeight: height } = model;
  const manifest = await loadManifest(model.model, manifestDirectory);
  if (width === height && (manifest.inputSize.int8 ?? []).includes(width)) {
    const { ranges } = await loadRanges(manifest, width, manifestDirectory);
    return ranges.checkAnswer;
  }
  return await answerOfCpu(manifest, options);
}

async function answerOfCpu(
  manifest: ModelManifest,
  { model, ...options }: DeviceAnswerOptions,
): Promise<readonly number[]> {
  const { inputWidth: width, inputHeight: height } = model;
  const { cacheDir, weightsDir, instructionSet, answering, make } = options;
  const onCpu = await loadPrepared({
    ...{ manifest, cacheDir, weightsDir, instructionSet, answering, make },
    inputSize: { width, height },
    precision: 'fp32',
    provider: 'cpu',
  });
  const alpha = await answering.answer(onCpu, drawCheckPicture(width, height));
  return summariseAnswer(alpha, width, height);
}
