/** Makes the result file from a decoded picture and the models' mattes: alpha, framing, scaling. */
import { regionIn, requireFrame } from '@matting/proto/contract/finishing/frame.ts';
import type { Box, Finishing, Size, Subject } from '@matting/proto/contract/finishing.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import { encodePixels } from '../codecs/encode.ts';
import { encodeThumbnail } from '../codecs/thumbnail.ts';
import { backdropOf } from '../finishing/backdrop.ts';
import { drawShadow, frameCutOut, framePlane, isWhole } from '../finishing/draw-frame.ts';
import { boxInResult, layOut, withSurroundings } from '../finishing/layout.ts';
import { castShadow } from '../finishing/shadow.ts';
import { findSubject } from '../finishing/subject.ts';
import { type FinishChoices, jxlPixelsMax, requireJxlPixels } from '../makeable.ts';
import { estimateForeground } from '../matte/foreground.ts';
import type { RoleMatte } from '../matte/merge-mattes.ts';
import { applyAlpha, clearOutside, multiplySourceAlpha } from '../matte/picture-alpha.ts';
import { pastePart, spreadAlpha } from '../matte/picture-part.ts';
import { refineMerged, stretchMerged } from '../matte/refine.ts';
import type { FinishTimings } from '../picture-protocol.ts';
import { freePixels, type RawPixels, type RgbaPicture, viewAsBytes } from '../rgba-picture.ts';
import { writeMatte } from './matte-file.ts';
import {
  followHints,
  type Looks,
  type MergedLooks,
  mergeLooks,
  type SeenMatte,
} from './merge-looks.ts';

interface FinishedFile {
  readonly file: Buffer;
  readonly thumbnail: Buffer | undefined;
  /** Undefined: it was not wanted. */
  readonly matte: Buffer | undefined;
  readonly size: Size;
  readonly subject: Subject | undefined;
  readonly timings: FinishTimings;
}

interface FinishExtras extends Omit<Looks, 'mattes'> {
  /** The looks as they are merged already. */
  readonly mergedLooks?: MergedLooks | undefined;
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
  const { hintsPlane, given } = extras;
  const looks = extras.mergedLooks ?? mergeLooks(picture, { mattes, given, hintsPlane }, choices);
  const looked = followHints(looks, picture);
  const matte = choices.matte ? await writeMatte(looked) : undefined;
  const alpha = makeAlpha(picture, looked, choices);
  const seen = findSubject(alpha, picture);
  if (choices.resultKind === 'cutout' && !keepsGround(choices)) applyAlpha(picture, alpha);
  const refinedMs = performance.now();
  const framed =
    finishing === undefined
      ? { pixels: pixelsOf(picture, alpha, choices), box: seen?.box }
      : frame(picture, alpha, { ...choices, finishing }, seen?.box, extras);
  const framedMs = performance.now();
  const { width, height } = framed.pixels;
  // The thumbnail comes before the file: an encoder may overwrite the pixels.
  const thumbnail = choices.thumbnail ? await thumbnailOf(framed.pixels) : undefined;
  const file = await encodePixels(framed.pixels, outputFormat, finishing?.quality);
  for (const plane of [picture.rgba, alpha, looked.merged.alpha]) freePixels(plane);
  const timings = {
    refineMs: refinedMs - startedMs,
    finishMs: finishing === undefined ? 0 : framedMs - refinedMs,
    encodeMs: performance.now() - framedMs,
  };
  const subject = seen && framed.box && subjectOf(seen, framed.box);
  return { file, thumbnail, matte, size: { width, height }, subject, timings };
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
  { part, seen, merged }: SeenMatte,
  choices: FinishChoices,
): Buffer {
  const { refinement, foregroundEstimation, resultKind, finishing, hints } = choices;
  const seenAlpha = (refinement ? refineMerged : stretchMerged)(merged, seen);
  const isCutOut = resultKind === 'cutout' && !keepsGround(choices);
  // The background was mixed in with the model's alpha, not the file's own.
  if (isCutOut && foregroundEstimation) estimateForeground(seen, seenAlpha);
  if (part !== undefined) pastePart(seen, picture, part);
  const alpha = part === undefined ? seenAlpha : spreadAlpha(seenAlpha, part, picture);
  multiplySourceAlpha(alpha, picture);
  for (const region of [hints?.subjectBox, finishing?.region]) {
    if (region !== undefined) clearOutside(alpha, picture, regionIn(picture, region));
  }
  return alpha;
}

/** The result shows the picture as it was: the matte decides its frame alone. */
function keepsGround({ finishing }: Pick<FinishChoices, 'finishing'>): boolean {
  return finishing?.background?.kind === 'original';
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
  const contents = layOut(picture, seen, finishing);
  requireFrame(finishing, picture, contents.frame.width * contents.frame.height);
  requireWritable(outputFormat, contents.frame);
  onFramed?.(contents.frame);
  const box = seen && boxInResult(contents, seen);
  const layout = keepsGround(choices) ? withSurroundings(contents, picture) : contents;
  const backdrop = backdropOf(finishing.background, background, outputFormat);
  const { shadow: asked } = finishing;
  const shadow =
    asked && seen && castShadow(alpha, picture, { layout, subject: seen, shadow: asked });
  if (isWhole(layout, picture) && backdrop === undefined) {
    if (shadow !== undefined) drawShadow(picture.rgba, layout.frame, shadow, 'beneath');
    return { pixels: pixelsOf(picture, alpha, choices), box };
  }
  if (resultKind === 'mask') {
    const data = framePlane(alpha, picture, layout);
    freePixels(picture.rgba);
    return { pixels: { data, ...layout.frame, channels: 1 }, box };
  }
  const { rgba } = frameCutOut(picture, layout, { backdrop, shadow });
  freePixels(picture.rgba);
  if (background !== undefined) freePixels(background.rgba);
  return { pixels: { data: viewAsBytes(rgba), ...layout.frame, channels: 4 }, box };
}

function requireWritable(outputFormat: OutputFormat, { width, height }: Size): void {
  if (outputFormat === 'jxl') requireJxlPixels(width * height, jxlPixelsMax());
}
