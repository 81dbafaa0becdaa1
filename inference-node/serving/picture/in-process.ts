/**
 * A picture worker's stages inside the process of a command, which shows what a graph makes of one
 * picture. A node runs them only in workers.
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
  /** HWC of `size`; with a trimap as fourth channel if mattes were given. */
  readonly rgb: Buffer;
  /** The picture's size in the graph's input. */
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

/** @returns PNG */
export async function cutOut(picture: RgbaPicture, mattes: readonly RoleMatte[]): Promise<Buffer> {
  const copy = { ...picture, rgba: picture.rgba.slice() };
  const { file } = await finishPicture(copy, mattes, {
    ...{ refinement: true, foregroundEstimation: true },
    ...{ outputFormat: 'png', resultKind: 'cutout' },
  });
  return file;
}
