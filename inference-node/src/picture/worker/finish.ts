/** Makes the result file from a decoded picture and the models' mattes. */
import { ContractError } from '#contract/errors.ts';
import { encodePixels } from '../codecs/encode.ts';
import type { RawPixels } from '../codecs/raw-pixels.ts';
import type { FinishChoices } from '../finish-choices.ts';
import { jxlPixelsMax } from '../jxl-limit.ts';
import { applyAlpha, multiplySourceAlpha } from '../matte/compose.ts';
import { estimateForeground } from '../matte/foreground.ts';
import type { RoleMatte } from '../matte/merge-mattes.ts';
import { refineMatte, stretchMatte } from '../matte/refine.ts';
import type { FinishTimings } from '../picture-protocol.ts';
import { type RgbaPicture, viewAsBytes } from '../rgba-picture.ts';

export interface FinishedFile {
  readonly file: Buffer;
  readonly timings: FinishTimings;
}

/**
 * The picture's pixels are overwritten.
 * @throws ContractError NODE_INCAPABLE, PROCESSING_FAILED
 */
export async function finishPicture(
  picture: RgbaPicture,
  mattes: readonly RoleMatte[],
  choices: FinishChoices,
): Promise<FinishedFile> {
  const { width, height } = picture;
  const { outputFormat, resultKind, refinement, foregroundEstimation } = choices;
  if (outputFormat === 'jxl' && width * height > jxlPixelsMax()) {
    const detail = `this node writes JPEG XL up to ${jxlPixelsMax()} pixels`;
    throw new ContractError('NODE_INCAPABLE', detail);
  }
  const startedMs = performance.now();
  const alpha = refinement ? refineMatte(mattes, picture) : stretchMatte(mattes, picture);
  // A mask has no colours. The model's alpha is what the background was mixed in with, not the
  // file's own.
  if (resultKind === 'cutout' && foregroundEstimation) estimateForeground(picture, alpha);
  multiplySourceAlpha(alpha, picture);
  let pixels: RawPixels;
  if (resultKind === 'mask') {
    pixels = { data: alpha, width, height, channels: 1 };
  } else {
    applyAlpha(picture, alpha);
    pixels = { data: viewAsBytes(picture.rgba), width, height, channels: 4 };
  }
  const refinedMs = performance.now();
  const file = await encodePixels(pixels, outputFormat);
  const encodeMs = performance.now() - refinedMs;
  return { file, timings: { refineMs: refinedMs - startedMs, encodeMs } };
}
