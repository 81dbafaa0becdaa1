/**
 * Checks a model's answer on a GPU: faults of half precision, of a driver's kernels or of a card
 * show only in a whole model.
 */
import { loadManifest, type ModelManifest } from '../models/manifest.ts';
import type { PreparedModel } from '../models/prepared-model.ts';
import {
  type AnswerPicture,
  checkAnswer,
  drawCheckInput,
  type Machine,
  summariseAnswer,
} from './answer-check.ts';
import { type LoadOptions, loadPrepared } from './load-prepared.ts';
import { loadRanges } from './ranges.ts';

interface DeviceAnswerOptions
  extends Pick<
    LoadOptions,
    | 'cacheDir'
    | 'weightsDir'
    | 'manifestDirectory'
    | 'addedModelsDir'
    | 'instructionSet'
    | 'answering'
    | 'make'
  > {
  readonly model: PreparedModel;
  readonly answer: AnswerPicture;
  readonly machine: Machine;
}

/** Undefined if the answer is right, else the fault in one line. */
export async function checkAnswerOnDevice(
  options: DeviceAnswerOptions,
): Promise<string | undefined> {
  return await checkAnswer(options.model, () => storedAnswer(options), options);
}

/** The answer in the model's ranges if it has some for this size, else the CPU's in fp32, now. */
async function storedAnswer(options: DeviceAnswerOptions): Promise<readonly number[]> {
  const { model, manifestDirectory, addedModelsDir } = options;
  const { inputWidth: width, inputHeight: height } = model;
  const manifest = await loadManifest(model.model, manifestDirectory, addedModelsDir);
  if (width === height && (manifest.inputSize.int8 ?? []).includes(width)) {
    const { ranges } = await loadRanges(manifest, width, manifestDirectory);
    return ranges.checkAnswer;
  }
  return await answerOfCpu(manifest, options);
}

async function answerOfCpu(manifest: ModelManifest, { model, ...options }: DeviceAnswerOptions) {
  const { inputWidth: width, inputHeight: height } = model;
  const { cacheDir, weightsDir, instructionSet, answering, make } = options;
  const onCpu = await loadPrepared({
    ...{ manifest, cacheDir, weightsDir, instructionSet, answering, make },
    inputSize: { width, height },
    precision: manifest.graph.dynamic === undefined ? 'fp32' : 'auto',
    provider: 'cpu',
  });
  return summariseAnswer(await answering.answer(onCpu, drawCheckInput(onCpu)));
}
