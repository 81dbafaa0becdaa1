/** A decoded picture and a model's matte to the result file. */
import { ContractError } from '#contract/errors.ts';
import type { OutputFormat } from '#contract/formats.ts';
import type { RawPixels } from './codec-sharp.ts';
import { applyAlpha, multiplySourceAlpha } from './compose.ts';
import { encodePixels } from './encode.ts';
import { jxlPixelsMax } from './jxl-limit.ts';
import { type Matte, refineMatte } from './refine.ts';
import { type RgbaPicture, viewAsBytes } from './rgba-picture.ts';

export interface FinishedFile {
  readonly file: Buffer;
  readonly refineMs: number;
  readonly encodeMs: number;
}

/**
 * The picture's pixels become the cut-out's: they are of no use after it.
 * @throws ContractError NODE_INCAPABLE, PROCESSING_FAILED
 */
export async function finishPicture(
  picture: RgbaPicture,
  matte: Matte,
  outputFormat: OutputFormat,
  resultKind: 'cutout' | 'mask',
): Promise<FinishedFile> {
  const { width, height } = picture;
  if (outputFormat === 'jxl' && width * height > jxlPixelsMax()) {
    const detail = `this node writes JPEG XL up to ${jxlPixelsMax()} pixels`;
    throw new ContractError('NODE_INCAPABLE', detail);
  }
  const startedMs = performance.now();
  const alpha = refineMatte(matte, picture);
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
  return { file, refineMs: refinedMs - startedMs, encodeMs };
}
