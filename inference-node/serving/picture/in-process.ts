/**
 * The stages of a picture worker in the process of a command, which shows a person what a graph
 * makes of one picture. A node runs them in its workers alone.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { type InputTerms, sizeInInput } from '../models/input-size.ts';
import type { RoleMatte } from './matte/merge-mattes.ts';
import { createModelInput } from './matte/model-input.ts';
import { createRefineInput } from './matte/refine.ts';
import type { RgbaPicture } from './rgba-picture.ts';
import { finishPicture } from './worker/finish.ts';

export type { RgbaPicture, RoleMatte };

interface FittedPicture {
  /** HWC, of `size`; with a trimap as fourth channel if mattes came with the picture. */
  readonly rgb: Buffer;
  /** The size of the picture in the graph's input. */
  readonly size: Size;
}

export function fitToInput(picture: RgbaPicture, terms: InputTerms): FittedPicture {
  const size = sizeInInput(terms, picture);
  return { rgb: createModelInput(picture, size), size };
}

/** Undefined: the mattes leave nothing to refine. */
export function fitWithTrimap(
  picture: RgbaPicture,
  mattes: readonly RoleMatte[],
  terms: InputTerms,
): FittedPicture | undefined {
  const size = sizeInInput(terms, picture);
  const rgb = createRefineInput(picture, mattes, size);
  return rgb && { rgb, size };
}

/** Cuts the picture out as a node does. @returns PNG */
export async function cutOut(picture: RgbaPicture, mattes: readonly RoleMatte[]): Promise<Buffer> {
  const copy = { ...picture, rgba: picture.rgba.slice() };
  const { file } = await finishPicture(copy, mattes, {
    ...{ refinement: true, foregroundEstimation: true },
    ...{ outputFormat: 'png', resultKind: 'cutout' },
  });
  return file;
}
