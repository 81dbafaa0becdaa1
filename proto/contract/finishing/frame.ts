/**
 * How large a result is: the one rule of it, by which nodes make results and take pictures, and
 * control planes check requests, choose nodes and count what waits. Pure.
 *
 * Before a node has looked at the pixels two things are not known: where the subject is, which a
 * crop and a scale go by, and whether a camera turned the picture. Until then there is a range.
 */
import { ContractError, invalidParameter } from '../errors.ts';
import type { Box, CropMargins, Finishing, Length, Region, Size } from '../finishing.ts';
import { FRAME_PIXELS_MAX, IMAGE_PIXELS_MAX, IMAGE_SIDE_PX_MAX } from '../limits.ts';

/** A wider margin leaves less than a pixel of the largest subject: it only keeps numbers finite. */
const MARGIN_PX_MAX = 1e8;
/** A hair: what comes to whole pixels but for the arithmetic's last digit. */
const LAST_DIGIT = 1e-9;

/** Sides of a rectangle that need not be whole. */
export type Extent = Size;

export interface Margins {
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
  readonly left: number;
}

/** Whole pixels, around a subject of that size. */
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

/** @param side the side of what the length is a part of, px */
export function lengthPx(length: Length, side: number): number {
  return 'px' in length ? length.px : (length.percent / 100) * side;
}

/**
 * The frame before the limits of a result.
 * @param contents the subject with its margins, where one is seen that a crop or a scale goes by
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
 * The frame by its sides.
 * @param shown has the proportions that a frame with one side takes; absent: those are not known
 * @returns undefined: the request names no side, or too few of them
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

/** The least extent of these proportions that holds the other one. */
function padded({ width, height }: Extent, aspectRatio: Size | undefined): Extent {
  if (aspectRatio === undefined) return { width, height };
  const ratio = ratioOf(aspectRatio);
  return { width: Math.max(width, height * ratio), height: Math.max(height, width / ratio) };
}

/** Whole pixels, scaled down to what a result may have. */
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
  /** The least for any subject. Without a subject there is no crop, and it can be less. */
  readonly least: number;
  /** The pixels if the subject fills the picture, for estimates of time. */
  readonly whole: number;
  /** The most for any subject, and without one. */
  readonly most: number;
}

/**
 * @param input undefined: not known, at most as large as any that is taken
 * @param turned whether the picture may lie on its side: what a file's header shows is before its
 *   orientation is applied
 */
export function frameRange(
  finishing: Finishing,
  input: Size | undefined,
  { turned }: { readonly turned: boolean },
): FrameRange {
  if (input === undefined) return rangeOfAny(finishing);
  const upright = rangeOf(finishing, input);
  const other = turned ? rangeOf(finishing, { width: input.height, height: input.width }) : upright;
  // A larger one is refused (requireFrame).
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
  // Between these the pixels rise, and fall again where a side meets its limit: the least are at a
  // corner. The most may lie between.
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

/** Sides are rounded: by half a pixel here, by up to a whole one in the frame that is made. */
function leastOf(frame: Size): number {
  return Math.max(1, pixelsOf(frame) - 3 * IMAGE_SIDE_PX_MAX);
}

function withMargins(subject: Size, crop: CropMargins | undefined): Size {
  if (crop === undefined) return subject;
  const { top, right, bottom, left } = marginsOf(subject, crop);
  return { width: subject.width + left + right, height: subject.height + top + bottom };
}

/**
 * The most that the fields make of a picture of which nothing is known, beyond what it has itself;
 * 0: they never make it larger.
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

/** The most pixels of a frame for such a picture. A larger picture is not made smaller. */
function framePixelsMax(input: Size): number {
  return Math.max(FRAME_PIXELS_MAX, pixelsOf(input));
}

/**
 * INVALID_PARAMETER where fields make a frame larger than the picture and than FRAME_PIXELS_MAX.
 * @param pixels of the frame, or the least it has
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

/** The field that makes a frame larger than the picture, as the interfaces name it. */
export function enlargingField(finishing: Finishing): string {
  const { outputWidth, outputHeight, crop, aspectRatio } = finishing;
  if (outputHeight !== undefined) return 'output_height';
  if (outputWidth !== undefined) return 'output_width';
  if (crop !== undefined && Object.values(crop).some(isLong)) return 'crop_margin';
  return aspectRatio === undefined ? 'scale' : 'aspect_ratio';
}

/**
 * @param field for an error
 * @throws ContractError INVALID_PARAMETER where no pixel of the input lies in it.
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
