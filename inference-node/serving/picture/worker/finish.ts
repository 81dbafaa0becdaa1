/** Makes the result file from a decoded picture and the models' mattes. */

import { requireFrame } from '#contract/finishing/frame.ts';
import type { Box, Finishing, Size, Subject } from '#contract/finishing.ts';
import type { OutputFormat } from '#contract/formats.ts';
import { encodePixels } from '../codecs/encode.ts';
import type { RawPixels } from '../codecs/raw-pixels.ts';
import type { FinishChoices } from '../finish-choices.ts';
import { backdropOf } from '../finishing/backdrop.ts';
import { frameCutOut, framePlane, isWhole } from '../finishing/frame.ts';
import { boxInResult, layOut, regionIn } from '../finishing/layout.ts';
import { findSubject } from '../finishing/subject.ts';
import { jxlPixelsMax } from '../jxl-limit.ts';
import { requireJxlPixels } from '../makeable.ts';
import { applyAlpha, clearOutside, multiplySourceAlpha } from '../matte/compose.ts';
import { estimateForeground } from '../matte/foreground.ts';
import type { RoleMatte } from '../matte/merge-mattes.ts';
import { refineMatte, stretchMatte } from '../matte/refine.ts';
import type { FinishTimings } from '../picture-protocol.ts';
import { freePixels, type RgbaPicture, viewAsBytes } from '../rgba-picture.ts';

export interface FinishedFile {
  readonly file: Buffer;
  /** Of the result. */
  readonly size: Size;
  /** Undefined: none was seen. */
  readonly subject: Subject | undefined;
  readonly timings: FinishTimings;
}

export interface FinishExtras {
  /** The finishing's background picture. Its pixels are overwritten and freed. */
  readonly background?: RgbaPicture | undefined;
  /** Called with the size of the result before it is made. */
  readonly onFramed?: (frame: Size) => void;
}

/**
 * The picture's pixels are overwritten; with finishing they are freed.
 * @throws ContractError NODE_INCAPABLE, PROCESSING_FAILED, INVALID_PARAMETER (an empty region, a
 *   frame that is too large)
 */
export async function finishPicture(
  picture: RgbaPicture,
  mattes: readonly RoleMatte[],
  choices: FinishChoices,
  extras: FinishExtras = {},
): Promise<FinishedFile> {
  const { finishing, outputFormat } = choices;
  if (finishing === undefined) requireWritable(outputFormat, picture);
  const startedMs = performance.now();
  const alpha = makeAlpha(picture, mattes, choices);
  const seen = findSubject(alpha, picture);
  if (choices.resultKind === 'cutout') applyAlpha(picture, alpha);
  const refinedMs = performance.now();
  const framed =
    finishing === undefined
      ? { pixels: pixelsOf(picture, alpha, choices), box: seen?.box }
      : frame(picture, alpha, { ...choices, finishing }, seen?.box, extras);
  const framedMs = performance.now();
  const { width, height } = framed.pixels;
  const file = await encodePixels(framed.pixels, outputFormat);
  const timings = {
    refineMs: refinedMs - startedMs,
    finishMs: finishing === undefined ? 0 : framedMs - refinedMs,
    encodeMs: performance.now() - framedMs,
  };
  const subject =
    seen === undefined || framed.box === undefined
      ? undefined
      : { inputBox: seen.box, resultBox: framed.box, share: seen.share };
  return { file, size: { width, height }, subject, timings };
}

/** The matte at the picture's size; nothing outside of the finishing's region. */
function makeAlpha(
  picture: RgbaPicture,
  mattes: readonly RoleMatte[],
  { refinement, foregroundEstimation, resultKind, finishing }: FinishChoices,
): Buffer {
  const alpha = refinement ? refineMatte(mattes, picture) : stretchMatte(mattes, picture);
  // A mask has no colours. The model's alpha is what the background was mixed in with, not the
  // file's own.
  if (resultKind === 'cutout' && foregroundEstimation) estimateForeground(picture, alpha);
  multiplySourceAlpha(alpha, picture);
  if (finishing?.region !== undefined) {
    clearOutside(alpha, picture, regionIn(picture, finishing.region));
  }
  return alpha;
}

function pixelsOf(
  { rgba, width, height }: RgbaPicture,
  alpha: Buffer,
  { resultKind }: FinishChoices,
): RawPixels {
  return resultKind === 'mask'
    ? { data: alpha, width, height, channels: 1 }
    : { data: viewAsBytes(rgba), width, height, channels: 4 };
}

/** Applies the finishing. What is not needed for the result any more is freed before it is encoded. */
function frame(
  picture: RgbaPicture,
  alpha: Buffer,
  choices: FinishChoices & { readonly finishing: Finishing },
  seen: Box | undefined,
  { background, onFramed }: FinishExtras,
): { pixels: RawPixels; box: Box | undefined } {
  const { finishing, outputFormat, resultKind } = choices;
  const layout = layOut(picture, seen, finishing);
  requireFrame(finishing, picture, layout.frame.width * layout.frame.height);
  requireWritable(outputFormat, layout.frame);
  onFramed?.(layout.frame);
  const box = seen && boxInResult(layout, seen);
  const backdrop = backdropOf(finishing.background, background, outputFormat);
  if (isWhole(layout, picture) && backdrop === undefined) {
    return { pixels: pixelsOf(picture, alpha, choices), box };
  }
  if (resultKind === 'mask') {
    const data = framePlane(alpha, picture, layout);
    freePixels(picture.rgba);
    return { pixels: { data, ...layout.frame, channels: 1 }, box };
  }
  const { rgba } = frameCutOut(picture, layout, backdrop);
  freePixels(picture.rgba);
  if (background !== undefined) freePixels(background.rgba);
  return { pixels: { data: viewAsBytes(rgba), ...layout.frame, channels: 4 }, box };
}

function requireWritable(outputFormat: OutputFormat, { width, height }: Size): void {
  if (outputFormat === 'jxl') requireJxlPixels(width * height, jxlPixelsMax());
}
