/** Makes the result file from a decoded picture and the models' mattes: alpha, framing, scaling. */
import { ContractError } from '@matting/proto/contract/errors.ts';
import { requireFrame } from '@matting/proto/contract/finishing/frame.ts';
import type {
  Background,
  Box,
  Finishing,
  Size,
  Subject,
} from '@matting/proto/contract/finishing.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import { BACKGROUND_PIXELS_MAX } from '@matting/proto/contract/limits.ts';
import { type DecodedFile, type DecodeOptions, decodeFile } from '../codecs/decode.ts';
import { encodePixels } from '../codecs/encode.ts';
import { encodeThumbnail } from '../codecs/thumbnail.ts';
import { boxInResult, type Layout, layOut, regionIn } from '../finishing/layout.ts';
import { findSubject } from '../finishing/subject.ts';
import {
  type Borrow,
  borrowCopy,
  bytesAt,
  kernels,
  pixelsAt,
  VECTOR_BYTES,
  withMemory,
} from '../kernels/kernels.ts';
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
 * Its faults name it. @throws ContractError INVALID_PARAMETER, NODE_INCAPABLE,
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

/* Draws what a layout shows of a cut-out, scaled, over the background, in one pass. */

type Backdrop =
  /** The colour as pixels have it: red in the lowest byte, straight alpha in the highest. */
  | { readonly kind: 'colour'; readonly pixel: number }
  | { readonly kind: 'picture'; readonly picture: Pixels };

/** Tells whether the layout changes nothing. */
function isWhole({ frame, source, target }: Layout, input: Size): boolean {
  return [frame, source, target].every(
    ({ width, height }) => width === input.width && height === input.height,
  );
}

function frameCutOut(cutOut: Pixels, layout: Layout, backdrop: Backdrop | undefined): Pixels {
  const { frame, source, target } = layout;
  const rgba = new Uint32Array(frame.width * frame.height);
  if (backdrop !== undefined) paintBackdrop(rgba, frame, backdrop);
  const isCopy = source.width === target.width && source.height === target.height;
  const offsetOf = (y: number) => (target.top + y) * frame.width + target.left;
  if (isCopy && backdrop === undefined) {
    for (let y = 0; y < target.height; y++) rgba.set(rowOf(cutOut, source, y), offsetOf(y));
    return { rgba, ...frame };
  }
  withMemory(borrow => {
    const beneath = borrow(4 * target.width);
    const own = borrow(4 * target.width);
    const lay = (y: number, above: number) => {
      const pixels = rgba.subarray(offsetOf(y), offsetOf(y) + target.width);
      if (backdrop === undefined) {
        pixels.set(pixelsAt(above, target.width));
        return;
      }
      pixelsAt(beneath, target.width).set(pixels);
      kernels.layOnto(above, target.width, beneath);
      pixels.set(pixelsAt(beneath, target.width));
    };
    if (!isCopy) return scalePixels(cutOut, source, target, lay);
    for (let y = 0; y < target.height; y++) {
      pixelsAt(own, target.width).set(rowOf(cutOut, source, y));
      lay(y, own);
    }
  });
  return { rgba, ...frame };
}

function framePlane(plane: Uint8Array, input: Size, layout: Layout): Buffer {
  const { frame, source, target } = layout;
  const result = Buffer.alloc(frame.width * frame.height);
  const offsetOf = (y: number) => (target.top + y) * frame.width + target.left;
  if (source.width === target.width && source.height === target.height) {
    for (let y = 0; y < target.height; y++) {
      const from = (source.top + y) * input.width + source.left;
      result.set(plane.subarray(from, from + source.width), offsetOf(y));
    }
    return result;
  }
  scalePlane(plane, input, source, target, (y, at) => {
    result.set(bytesAt(at, target.width), offsetOf(y));
  });
  return result;
}

function rowOf({ rgba, width }: Pixels, { left, top, width: count }: Window, y: number) {
  const from = (top + y) * width + left;
  return rgba.subarray(from, from + count);
}

function paintBackdrop(rgba: Uint32Array, frame: Size, backdrop: Backdrop): void {
  if (backdrop.kind === 'colour') {
    if (backdrop.pixel !== 0) rgba.fill(backdrop.pixel);
    return;
  }
  const { picture } = backdrop;
  scalePixels(picture, coverWindow(picture, frame), frame, (y, at) => {
    rgba.set(pixelsAt(at, frame.width), y * frame.width);
  });
}

/**
 * Gives the middle of a picture, in the frame's proportions and as large as the picture lets it be.
 */
function coverWindow(picture: Size, frame: Size): Window {
  const scale = Math.min(picture.width / frame.width, picture.height / frame.height);
  const width = frame.width * scale;
  const height = frame.height * scale;
  const left = (picture.width - width) / 2;
  const top = (picture.height - height) / 2;
  return { left, top, width, height };
}

/*
 * Scales pixels with straight alpha, row by row, with the cubic of Catmull and Rom, in floats of
 * colours multiplied by alpha: no colour under a transparent pixel is mixed in. sharp rounds
 * between its steps and clamps alpha before it divides, which lights up the last pixel of an edge
 * by 4 %; Lanczos leaves a line beside every edge. Values are those of the file (sRGB), not of
 * light: the matte is of that space, browsers composite in it, and in light dark curls on white
 * came out paler.
 */

interface Window extends Size {
  readonly left: number;
  readonly top: number;
}

interface Pixels extends Size {
  readonly rgba: Uint32Array;
}

interface Axis {
  /** The first pixel that is read, and how many there are. */
  readonly first: number;
  readonly length: number;
  readonly taps: number;
  /** The first input pixel for each pixel of the result, counted from `first`. */
  readonly starts: Int32Array;
  /** `taps` for each pixel of the result. */
  readonly weights: Float32Array;
}

/** The cubic reaches this far, in pixels of the coarser side. */
const REACH = 2;

function cubic(distance: number): number {
  const x = Math.abs(distance);
  if (x >= REACH) return 0;
  if (x >= 1) return ((2.5 - 0.5 * x) * x - 4) * x + 2;
  return (1.5 * x - 2.5) * x * x + 1;
}

/** Only pixels of the window are read; at its edges the other weights are scaled to 1. */
function createAxis(side: number, start: number, extent: number, to: number): Axis {
  const first = Math.max(0, Math.floor(start));
  const length = Math.min(side, Math.ceil(start + extent)) - first;
  const scale = extent / to;
  const widened = Math.max(1, scale);
  const taps = Math.min(length, Math.ceil(2 * REACH * widened));
  const starts = new Int32Array(to);
  const weights = new Float32Array(to * taps);
  for (let out = 0; out < to; out++) {
    const centre = start - first + (out + 0.5) * scale - 0.5;
    const from = Math.ceil(centre - REACH * widened);
    const at = Math.min(Math.max(0, from), length - taps);
    let sum = 0;
    for (let tap = 0; tap < taps; tap++) sum += cubic((at + tap - centre) / widened);
    for (let tap = 0; tap < taps; tap++) {
      weights[out * taps + tap] = cubic((at + tap - centre) / widened) / sum;
    }
    starts[out] = at;
  }
  return { first, length, taps, starts, weights };
}

interface Passes {
  /** Bytes of a pixel between the passes, and of one of the result. */
  readonly floatBytes: number;
  readonly resultBytes: number;
  /** Reads `count` pixels of a row from `left` on, scales them along it. */
  along(y: number, left: number, count: number, axis: AxisAt, out: number): void;
  across(rows: number, weights: number, taps: number, out: number): void;
  /** Bytes for what `along` needs in between, for each pixel that it reads. */
  readonly scratchBytes: number;
}

interface AxisAt {
  readonly starts: number;
  readonly weights: number;
  readonly taps: number;
  readonly scratch: number;
}

function scaleRows(
  side: Size,
  window: Window,
  to: Size,
  passes: Passes,
  take: (y: number, at: number) => void,
): void {
  const across = createAxis(side.width, window.left, window.width, to.width);
  const down = createAxis(side.height, window.top, window.height, to.height);
  withMemory(borrow => {
    const axis = {
      starts: borrowCopy(borrow, across.starts),
      weights: borrowCopy(borrow, across.weights),
      taps: across.taps,
      scratch: borrow(across.length * passes.scratchBytes),
    };
    const shares = borrowCopy(borrow, down.weights);
    const ring = borrowRing(borrow, down.taps, to.width * passes.floatBytes);
    const rowsAt = borrow(4 * down.taps);
    const out = borrow(to.width * passes.resultBytes);
    const addresses = new Int32Array(down.taps);
    let rows = 0;
    // `ring` has an address for each tap, `starts` an element for each row of the result.
    for (let y = 0; y < to.height; y++) {
      const first = down.starts[y]!;
      for (; rows < first + down.taps; rows++) {
        const to = ring[rows % down.taps]!;
        passes.along(down.first + rows, across.first, across.length, axis, to);
      }
      for (let tap = 0; tap < down.taps; tap++) addresses[tap] = ring[(first + tap) % down.taps]!;
      bytesAt(rowsAt, 4 * down.taps).set(new Uint8Array(addresses.buffer));
      passes.across(rowsAt, shares + 4 * y * down.taps, down.taps, out);
      take(y, out);
    }
  });
}

function borrowRing(borrow: Borrow, rows: number, rowBytes: number): readonly number[] {
  return Array.from({ length: rows }, () => borrow(rowBytes));
}

/** `take` gets the address of each row in the kernels' memory, in order; it is valid meanwhile. */
function scalePixels(
  { rgba, width, height }: Pixels,
  window: Window,
  to: Size,
  take: (y: number, at: number) => void,
): void {
  const passes: Passes = {
    floatBytes: VECTOR_BYTES,
    resultBytes: 4,
    scratchBytes: 4 + VECTOR_BYTES,
    along: (y, left, count, { starts, weights, taps, scratch }, out) => {
      const from = y * width + left;
      const row = scratch + VECTOR_BYTES * count;
      pixelsAt(row, count).set(rgba.subarray(from, from + count));
      kernels.premultiply(row, count, scratch);
      kernels.alongVectors(scratch, starts, weights, taps, to.width, out);
    },
    across: (rows, weights, taps, out) => kernels.acrossCutOut(rows, weights, taps, to.width, out),
  };
  scaleRows({ width, height }, window, to, passes, take);
}

function scalePlane(
  plane: Uint8Array,
  { width, height }: Size,
  window: Window,
  to: Size,
  take: (y: number, at: number) => void,
): void {
  const passes: Passes = {
    floatBytes: 4,
    resultBytes: 1,
    scratchBytes: 1,
    along: (y, left, count, { starts, weights, taps, scratch }, out) => {
      const from = y * width + left;
      bytesAt(scratch, count).set(plane.subarray(from, from + count));
      kernels.alongGrey(scratch, starts, weights, taps, to.width, out);
    },
    across: (rows, weights, taps, out) => kernels.acrossGrey(rows, weights, taps, to.width, out),
  };
  scaleRows({ width, height }, window, to, passes, take);
}

const WHITE = 0xffffffff;

/** Returns undefined if there is no backdrop. It may overwrite the pixels of `picture`. */
function backdropOf(
  background: Background | undefined,
  picture: RgbaPicture | undefined,
  outputFormat: OutputFormat,
): Backdrop | undefined {
  switch (background?.kind) {
    case undefined:
      return undefined;
    case 'colour':
      return { kind: 'colour', pixel: pixelOfRgba(background.rgba) };
    case 'picture':
      if (picture === undefined) throw new Error('a background picture without its pixels');
      // A picture may turn out to be transparent, a JPEG cannot.
      if (outputFormat === 'jpeg' && picture.translucent) layOnWhite(picture);
      return { kind: 'picture', picture };
  }
}

/** Returns the colour as pixels have it: red in the lowest byte. It is 0 where alpha is 0. */
function pixelOfRgba(rgba: number): number {
  if ((rgba & 255) === 0) return 0;
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(rgba);
  return bytes.readUInt32LE();
}

function layOnWhite({ rgba, width, height }: RgbaPicture): void {
  withMemory(borrow => {
    const above = borrow(4 * width);
    const beneath = borrow(4 * width);
    for (let y = 0; y < height; y++) {
      const row = rgba.subarray(y * width, (y + 1) * width);
      pixelsAt(above, width).set(row);
      const white = pixelsAt(beneath, width).fill(WHITE);
      kernels.layOnto(above, width, beneath);
      row.set(white);
    }
  });
}
