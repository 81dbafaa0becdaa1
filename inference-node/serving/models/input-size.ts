/** The size of a picture in a model's input. Both sides of a process border use it. */
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { GraphForm, PreparedModel } from './prepared-model.ts';

/** Size of the whole input. With fit short-side both are the length of that side. */
export interface InputTerms extends Size, Partial<Pick<GraphForm, 'fit' | 'sides'>> {}

export function inputTerms({ inputWidth, inputHeight, form }: SizedModel): InputTerms {
  const { fit, sides } = form ?? {};
  return { width: inputWidth, height: inputHeight, ...(fit && { fit }), ...(sides && { sides }) };
}

type SizedModel = Pick<PreparedModel, 'inputWidth' | 'inputHeight' | 'form'>;

/** Size of the picture itself, without a letterbox. */
export function sizeInInput({ width, height, fit, sides }: InputTerms, picture: Size): Size {
  if (fit === undefined || fit === 'stretch') return { width, height };
  const longer = Math.max(picture.width, picture.height);
  const shorter = Math.min(picture.width, picture.height);
  // A side has at least one pixel, or the least length of `sides`.
  if (sides === undefined) {
    const scale = Math.min(width / picture.width, height / picture.height);
    const side = (pixels: number) => Math.max(1, Math.round(pixels * scale));
    return { width: side(picture.width), height: side(picture.height) };
  }
  const { multipleOf, min = multipleOf, max } = sides;
  const scale = Math.min(width / shorter, max / longer);
  const [least, most] = [Math.ceil(min / multipleOf), Math.floor(max / multipleOf)];
  const side = (pixels: number) =>
    multipleOf * Math.min(most, Math.max(least, Math.round((pixels * scale) / multipleOf)));
  return { width: side(picture.width), height: side(picture.height) };
}
