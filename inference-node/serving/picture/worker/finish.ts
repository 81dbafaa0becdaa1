/** Makes the result file from a decoded picture and the models' mattes. */
import { ContractError } from '#contract/errors.ts';
import { requireFrame } from '#contract/finishing/frame.ts';
import type { Box, Finishing, Size, Subject } from '#contract/finishing.ts';
import type { OutputFormat } from '#contract/formats.ts';
import { BACKGROUND_PIXELS_MAX } from '#contract/limits.ts';
import { type DecodedFile, type DecodeOptions, decodeFile } from '../codecs/decode.ts';
import { encodePixels } from '../codecs/encode.ts';
import { backdropOf, frameCutOut, framePlane, isWhole } from '../finishing/frame.ts';
import { boxInResult, findSubject, layOut, regionIn } from '../finishing/layout.ts';
import { type FinishChoices, jxlPixelsMax, requireJxlPixels } from '../makeable.ts';
import {
  applyAlpha,
  clearOutside,
  estimateForeground,
  multiplySourceAlpha,
} from '../matte/foreground.ts';
import type { RoleMatte } from '../matte/merge-mattes.ts';
import { createModelInput } from '../matte/model-input.ts';
import { refineMatte, stretchMatte } from '../matte/refine.ts';
import type { FinishTimings } from '../picture-protocol.ts';
import { freePixels, type RawPixels, type RgbaPicture, viewAsBytes } from '../rgba-picture.ts';

interface FinishedFile {
  readonly file: Buffer;
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
 * The picture's pixels are overwritten. @throws ContractError NODE_INCAPABLE, PROCESSING_FAILED,
 * INVALID_PARAMETER (an empty region, a frame too large)
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

const SIDE_PX = 64;
/** Larger than the picture: the commonest case, and the one worth compiling first. */
const MODEL_SIDE_PX = 96;

export async function warmUp(): Promise<void> {
  const size = { width: SIDE_PX, height: SIDE_PX };
  const data = Buffer.alloc(SIDE_PX * SIDE_PX * 4, 200);
  const file = await encodePixels({ data, ...size, channels: 4 }, 'png');
  const picture = await decodeFile(file, { declared: undefined, onOpened: () => undefined });
  const modelSize = { width: MODEL_SIDE_PX, height: MODEL_SIDE_PX };
  createModelInput(picture, modelSize);
  const alpha = Buffer.alloc(MODEL_SIDE_PX * MODEL_SIDE_PX, 255);
  // Edges, so that refinement and foreground estimation have something to do.
  for (let at = 0; at < alpha.length; at += 2) alpha[at] = 100;
  await finishPicture(picture, [{ alpha, ...modelSize, role: 'subject' }], {
    refinement: true,
    foregroundEstimation: true,
    outputFormat: 'webp',
    resultKind: 'cutout',
  });
}

/**
 * As of an image; faults name it. @throws ContractError INVALID_PARAMETER, NODE_INCAPABLE,
 * IMAGE_RESOLUTION_TOO_LARGE
 */
export async function decodeBackground(
  file: Buffer,
  options: Omit<DecodeOptions, 'pixelsMax'>,
): Promise<DecodedFile> {
  try {
    return await decodeFile(file, { ...options, pixelsMax: BACKGROUND_PIXELS_MAX });
  } catch (error) {
    throw error instanceof ContractError ? asBackgrounds(error) : error;
  }
}

function asBackgrounds(error: ContractError): ContractError {
  const isOfFile = error.code === 'UNSUPPORTED_IMAGE_FORMAT' || error.code === 'PROCESSING_FAILED';
  const code = isOfFile ? 'INVALID_PARAMETER' : error.code;
  return new ContractError(code, `background: ${error.message}`, { cause: error.cause });
}
