/**
 * Whether pictures that run together get the mattes that they get alone, for every number that may
 * run: kernels differ by the number, a driver may choose wrong ones, and a picture's matte must
 * never be another's. Once on each kind of machine, remembered beside the prepared file.
 */
import { imagesARun, type PreparedModel } from '../models/prepared-model.ts';
import { isKnownMachine, type Machine, rememberMachine } from './answer-check.ts';
import { compareAnswers, drawCheckPicture, summariseAnswer } from './check-picture.ts';

/** Computes the alphas of a few runs; each has as many pictures as a graph of the model takes. */
export type AnswerRuns = (
  model: PreparedModel,
  runs: readonly (readonly Uint8Array[])[],
) => Promise<readonly (readonly Uint8Array[])[]>;

/** Undefined where every picture's matte is its own; else one line that says what is wrong. */
export async function checkBatches(
  model: PreparedModel,
  answer: AnswerRuns,
  machine: Machine,
): Promise<string | undefined> {
  const { batches = [], inputWidth: width, inputHeight: height } = model;
  const images = imagesARun(model);
  const together = machine && `${machine}, ${images} images at once`;
  if (images === 1 || (await isKnownMachine(model, together))) return undefined;
  const pictures = drawPictures(width, height, images);
  const runs = batches.map(batch => pictures.slice(0, batch.images));
  let answers: readonly (readonly Uint8Array[])[];
  try {
    answers = await answer(model, [...pictures.map(picture => [picture]), ...runs]);
  } catch (error) {
    return `it does not run with several images at once: ${(error as Error).message}`;
  }
  const summaries = answers.map(alphas => alphas.map(a => summariseAnswer(a, width, height)));
  const alone = summaries.slice(0, images).flat();
  for (const [index, batch] of batches.entries()) {
    const summary = summaries[images + index] ?? [];
    for (const [place, expected] of alone.slice(0, batch.images).entries()) {
      const wrong = compareAnswers(summary[place] ?? [], expected);
      if (wrong === undefined) continue;
      const which = `image ${place + 1} of ${batch.images}`;
      return `${which} has another matte than alone: ${wrong}`;
    }
  }
  await rememberMachine(model, together);
  return undefined;
}

/** The check picture, moved to the side: no two have the same matte. */
function drawPictures(width: number, height: number, images: number): readonly Uint8Array[] {
  const picture = drawCheckPicture(width, height);
  return Array.from({ length: images }, (_, index) => {
    const moved = new Uint8Array(picture.length);
    const shift = 3 * Math.floor((index * width) / images);
    for (let row = 0; row < height; row++) {
      const line = picture.subarray(3 * width * row, 3 * width * (row + 1));
      moved.set(line.subarray(shift), 3 * width * row);
      moved.set(line.subarray(0, shift), 3 * width * (row + 1) - shift);
    }
    return moved;
  });
}
