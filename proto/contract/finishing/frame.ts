/**
 * The size of results: nodes make and admit pictures by it, control planes check requests, choose
 * nodes and count queued work. Before a node sees the pixels, the subject's box (for crop and
 * scale) and the camera's orientation are unknown, so there is a range.
 */
import { ContractError, invalidParameter } from '../errors.ts';
import type { Box, CropMargins, Finishing, Length, Region, Size } from '../finishing.ts';
import { FRAME_PIXELS_MAX, IMAGE_PIXELS_MAX, IMAGE_SIDE_PX_MAX } from '../limits.ts';

/** Keeps numbers finite: a wider margin leaves less than a pixel for the subject. */
const MARGIN_PX_MAX = 1e8;
/** Absorbs rounding errors of almost whole pixels. */
const LAST_DIGIT = 1e-9;

/** A size that need not be whole. */
export type Extent = Size;

export interface Margins {
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
  readonly left: number;
}

/** In whole pixels. */
export function marginsOf({ width, height }: Size, crop: CropMargins): Margins {
  const marginPx = (length: Length, side: number) =>
    Math.round(Math.min(MARGIN_PX_MAX, lengthPx(length, side)));
  return {
    top: marginPx(crop.top, height),
    right: marginPx(crop.right, width),
    bottom: marginPx(crop.bottom, height),
    left: marginPx(crop.left, width),
  };
}

/** @param side 100 %, in px */
export function lengthPx(length: Length, side: number): number {
  return 'px' in length ? length.px : (length.percent / 100) * side;
}

/**
 * Before the limits of results.
 * @param contents the subject with its margins, if a crop or a scale depends on it
 */
export function frameWanted(finishing: Finishing, input: Size, contents?: Size): Extent {
  const { crop, scalePercent = 100, aspectRatio } = finishing;
  const named = frameNamed(finishing, contents ?? input);
  if (named !== undefined) return named;
  if (crop === undefined || contents === undefined) return padded(input, aspectRatio);
  const scale = scalePercent / 100;
  return padded({ width: contents.width / scale, height: contents.height / scale }, aspectRatio);
}

/**
 * @param shown gives the proportions if only one side is named; absent: unknown
 * @returns undefined: the request names too few sides
 */
export function frameNamed(
  { outputWidth, outputHeight, aspectRatio }: Finishing,
  shown?: Size,
): Extent | undefined {
  if (outputWidth !== undefined && outputHeight !== undefined) {
    return { width: outputWidth, height: outputHeight };
  }
  const proportions = aspectRatio ?? shown;
  if (proportions === undefined) return undefined;
  const ratio = ratioOf(proportions);
  if (outputWidth !== undefined) return { width: outputWidth, height: outputWidth / ratio };
  if (outputHeight !== undefined) return { width: outputHeight * ratio, height: outputHeight };
  return undefined;
}

function ratioOf({ width, height }: Size): number {
  return width / height;
}

/** The smallest extent of these proportions that contains the other. */
function padded({ width, height }: Extent, aspectRatio: Size | undefined): Extent {
  if (aspectRatio === undefined) return { width, height };
  const ratio = ratioOf(aspectRatio);
  return { width: Math.max(width, height * ratio), height: Math.max(height, width / ratio) };
}

/** In whole pixels, scaled down to the limits of results. */
export function withinLimits(wanted: Extent, megapixelsMax?: number): Size {
  const pixelsMax = pixelsMaxOf(megapixelsMax);
  const sideScale = IMAGE_SIDE_PX_MAX / Math.max(wanted.width, wanted.height);
  const scale = Math.min(1, sideScale, Math.sqrt(pixelsMax / pixelsOf(wanted)));
  const sidesBy = (whole: (px: number) => number) => ({
    width: Math.min(IMAGE_SIDE_PX_MAX, Math.max(1, whole(wanted.width * scale))),
    height: Math.min(IMAGE_SIDE_PX_MAX, Math.max(1, whole(wanted.height * scale))),
  });
  const rounded = sidesBy(Math.round);
  if (pixelsOf(rounded) <= pixelsMax) return rounded;
  return sidesBy(px => Math.floor(px * (1 - LAST_DIGIT)));
}

function pixelsOf({ width, height }: Size): number {
  return width * height;
}

export interface FrameRange {
  /** Minimum for any subject. Without a subject there is no crop, and it may be less. */
  readonly least: number;
  /** If the subject fills the picture; for estimates of time. */
  readonly whole: number;
  /** Maximum with any subject or none. */
  readonly most: number;
}

/**
 * @param input undefined: unknown
 * @param turned the picture may be rotated, because a header has the size before its orientation
 */
export function frameRange(
  finishing: Finishing,
  input: Size | undefined,
  { turned }: { readonly turned: boolean },
): FrameRange {
  if (input === undefined) return rangeOfAny(finishing);
  const upright = rangeOf(finishing, input);
  const other = turned ? rangeOf(finishing, { width: input.height, height: input.width }) : upright;
  // requireFrame refuses a larger one.
  const max = framePixelsMax(input);
  return {
    least: Math.min(upright.least, other.least),
    whole: Math.min(max, Math.max(upright.whole, other.whole)),
    most: Math.min(max, Math.max(upright.most, other.most)),
  };
}

function rangeOfAny(finishing: Finishing): FrameRange {
  const { outputWidth, outputHeight, sizeMaxMegapixels } = finishing;
  const largest = { width: IMAGE_SIDE_PX_MAX, height: IMAGE_SIDE_PX_MAX };
  const named = frameNamed(finishing);
  if (named !== undefined) {
    const pixels = pixelsOf(withinLimits(named, sizeMaxMegapixels));
    return { least: pixels, whole: pixels, most: pixels };
  }
  const wanted = { width: outputWidth ?? largest.width, height: outputHeight ?? largest.height };
  const most = Math.ceil(Math.min(pixelsOf(wanted), pixelsMaxOf(sizeMaxMegapixels)));
  return { least: 1, whole: most, most };
}

function pixelsMaxOf(megapixelsMax = Number.POSITIVE_INFINITY): number {
  return Math.min(IMAGE_PIXELS_MAX, megapixelsMax * 1e6);
}

function rangeOf(finishing: Finishing, input: Size): FrameRange {
  const { outputWidth, outputHeight, crop, scalePercent, sizeMaxMegapixels } = finishing;
  const made = (contents?: Size) =>
    withinLimits(frameWanted(finishing, input, contents), sizeMaxMegapixels);
  const unseen = pixelsOf(made());
  const isNamed = frameNamed(finishing) !== undefined;
  const hasSide = outputWidth !== undefined || outputHeight !== undefined;
  if (isNamed || (crop === undefined && !(hasSide && scalePercent !== undefined))) {
    return { least: unseen, whole: unseen, most: unseen };
  }
  const smallest = withMargins({ width: 1, height: 1 }, crop);
  const largest = withMargins(input, crop);
  // The pixels rise between these, and fall where a side meets its limit. So the minimum is at a
  // corner, but the maximum may be between.
  const corners = [smallest.width, largest.width].flatMap(width =>
    [smallest.height, largest.height].map(height => ({ width, height })),
  );
  const wanted = [undefined, ...corners].map(contents => frameWanted(finishing, input, contents));
  const longest = (side: keyof Size) =>
    Math.ceil(Math.min(IMAGE_SIDE_PX_MAX, Math.max(...wanted.map(extent => extent[side]))));
  const most = Math.min(pixelsMaxOf(sizeMaxMegapixels), longest('width') * longest('height'));
  return {
    least: Math.min(...corners.map(contents => leastOf(made(contents)))),
    whole: pixelsOf(made(largest)),
    most: Math.ceil(most),
  };
}

/** Rounding changes a side by half a pixel here, and by up to one in the real frame. */
function leastOf(frame: Size): number {
  return Math.max(1, pixelsOf(frame) - 3 * IMAGE_SIDE_PX_MAX);
}

function withMargins(subject: Size, crop: CropMargins | undefined): Size {
  if (crop === undefined) return subject;
  const { top, right, bottom, left } = marginsOf(subject, crop);
  return { width: subject.width + left + right, height: subject.height + top + bottom };
}

/**
 * Maximum for an unknown picture, if it exceeds the picture's own. 0: the fields never enlarge it.
 */
export function framePixelsUnseen(finishing: Finishing): number {
  const { outputWidth, outputHeight, crop, scalePercent = 100, aspectRatio } = finishing;
  const hasMargins = crop !== undefined && Object.values(crop).some(isLong);
  const isWider =
    hasMargins || (crop !== undefined && scalePercent < 100) || aspectRatio !== undefined;
  if (outputWidth === undefined && outputHeight === undefined && !isWider) return 0;
  return Math.min(FRAME_PIXELS_MAX, rangeOfAny(finishing).most);
}

function isLong(length: Length): boolean {
  return lengthPx(length, 1) > 0;
}

/** A larger picture is not reduced. */
function framePixelsMax(input: Size): number {
  return Math.max(FRAME_PIXELS_MAX, pixelsOf(input));
}

/**
 * INVALID_PARAMETER if the frame exceeds both the picture and FRAME_PIXELS_MAX.
 * @param pixels of the frame, or its minimum
 */
export function frameRefusal(
  finishing: Finishing,
  input: Size,
  pixels: number,
): ContractError | undefined {
  if (pixels <= framePixelsMax(input)) return undefined;
  const wrong =
    `makes a frame of ${pixels} pixels. The limit is ${FRAME_PIXELS_MAX / 1e6} megapixels, ` +
    `or the size of the image`;
  return invalidParameter(enlargingField(finishing), wrong);
}

/** @throws ContractError INVALID_PARAMETER as `frameRefusal` */
export function requireFrame(finishing: Finishing, input: Size, pixels: number): void {
  const refusal = frameRefusal(finishing, input, pixels);
  if (refusal !== undefined) throw refusal;
}

/** The public name of the field that enlarges the frame. */
export function enlargingField(finishing: Finishing): string {
  const { outputWidth, outputHeight, crop, aspectRatio } = finishing;
  if (outputHeight !== undefined) return 'output_height';
  if (outputWidth !== undefined) return 'output_width';
  if (crop !== undefined && Object.values(crop).some(isLong)) return 'crop_margin';
  return aspectRatio === undefined ? 'scale' : 'aspect_ratio';
}

/**
 * @param field for the error @throws ContractError INVALID_PARAMETER: it contains no pixel of the
 * input
 */
export function regionIn({ width, height }: Size, region: Region, field = 'region (roi)'): Box {
  const edge = (length: Length, side: number) =>
    Math.round(Math.min(side, Math.max(0, lengthPx(length, side))));
  const left = edge(region.left, width);
  const top = edge(region.top, height);
  const box = {
    left,
    top,
    width: edge(region.right, width) - left,
    height: edge(region.bottom, height) - top,
  };
  if (box.width >= 1 && box.height >= 1) return box;
  throw new ContractError(
    'INVALID_PARAMETER',
    `${field} is empty. It must have at least one pixel of the image.`,
  );
}
