/** Makes the result file from a decoded picture and the models' mattes: alpha, framing, scaling. */
import { requireFrame } from '@matting/proto/contract/finishing/frame.ts';
import type { Box, Finishing, Size, Subject } from '@matting/proto/contract/finishing.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import { encodePixels } from '../codecs/encode.ts';
import { encodeThumbnail } from '../codecs/thumbnail.ts';
import { backdropOf } from '../finishing/backdrop.ts';
import { frameCutOut, framePlane, isWhole } from '../finishing/draw-frame.ts';
import { boxInResult, layOut, regionIn } from '../finishing/layout.ts';
import { findSubject } from '../finishing/subject.ts';
import { type FinishChoices, jxlPixelsMax, requireJxlPixels } from '../makeable.ts';
import { estimateForeground } from '../matte/foreground.ts';
import type { RoleMatte } from '../matte/merge-mattes.ts';
import { applyAlpha, clearOutside, multiplySourceAlpha } from '../matte/picture-alpha.ts';
import { refineMatte, stretchMatte } from '../matte/refine.ts';
import type { FinishTimings } from '../picture-protocol.ts';
import { freePixels, type RawPixels, type RgbaPicture, viewAsBytes } from '../rgba-picture.ts';

interface FinishedFile {
  readonly file: Buffer;
  readonly thumbnail: Buffer | undefined;
  readonly size: Size;
  readonly subject: Subject | undefined;
  readonly timings: FinishTimings;
}

interface FinishExtras {
  /** The finishing's background picture. Its pixels are overwritten and freed. */
  readonly background?: RgbaPicture | undefined;
  /** Called with the size of the result before it is made. */
  readonly onFramed?: (frame: Size) => void;
}

/**
 * The picture's pixels go. @throws ContractError NODE_INCAPABLE, PROCESSING_FAILED,
 * INVALID_PARAMETER
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
  // The thumbnail comes before the file: an encoder may overwrite the pixels.
  const thumbnail = choices.thumbnail ? await thumbnailOf(framed.pixels) : undefined;
  const file = await encodePixels(framed.pixels, outputFormat);
  freePixels(picture.rgba);
  const timings = {
    refineMs: refinedMs - startedMs,
    finishMs: finishing === undefined ? 0 : framedMs - refinedMs,
    encodeMs: performance.now() - framedMs,
  };
  const subject = seen && framed.box && subjectOf(seen, framed.box);
  return { file, thumbnail, size: { width, height }, subject, timings };
}

/** An error of the thumbnail goes to the log: the result does not depend on it. */
async function thumbnailOf(pixels: RawPixels): Promise<Buffer | undefined> {
  try {
    return await encodeThumbnail(pixels);
  } catch (error) {
    console.error(`no thumbnail: ${(error as Error).message}`);
    return undefined;
  }
}

function subjectOf(seen: NonNullable<ReturnType<typeof findSubject>>, resultBox: Box): Subject {
  const { box: inputBox, share, unsure, cutOff } = seen;
  return { inputBox, resultBox, share, unsure, cutOff };
}

/** The matte at the picture's size; nothing outside of the finishing's region. */
function makeAlpha(
  picture: RgbaPicture,
  mattes: readonly RoleMatte[],
  { refinement, foregroundEstimation, resultKind, finishing }: FinishChoices,
): Buffer {
  const alpha = refinement ? refineMatte(mattes, picture) : stretchMatte(mattes, picture);
  // The background was mixed in with the model's alpha, not the file's own.
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
