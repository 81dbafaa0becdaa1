/**
 * The peak memory of a picture in its worker and the programs that it starts. Nodes admit pictures
 * by it, and control planes find a node with room.
 *
 * Measured with bench/formats.ts on a cut-out portrait above an idle worker's 0.1 GB, and rounded
 * up: inputs of 35 MP, results of 12, 35 and 100 MP, with finishing up to 50 MP. Results include
 * the decoded pixels (4 bytes each) and the matte.
 */
import type { InputFormat, OutputFormat } from './formats.ts';
import { IMAGE_PIXELS_MAX } from './limits.ts';

/** A megapixel of a node's capacity: the most that one megapixel of most pictures takes. */
export const BYTES_PER_MEGAPIXEL = 42_000_000;

/**
 * The JPEG XL codec in WebAssembly takes 0.64 GB to decode 40 MP, 1.2 GB with the encode; at 64 MP
 * 1.6 of its 2 GB.
 */
export const WASM_PIXELS_MAX = 40_000_000;

interface Band {
  /** Up to this size. */
  readonly pixelsMax: number;
  readonly bytesPerPixel: number;
}

const ANY_SIZE = Number.POSITIVE_INFINITY;

/**
 * The worst case of each: progressive JPEG; 16-bit indexed PNG; lossless WebP; 10-bit HDR AVIF;
 * JPEG XL by djxl above the limit of WebAssembly; 10-bit HEIC with alpha as one item, by
 * libheif-js.
 */
const DECODE_MEMORY: Readonly<Record<InputFormat, readonly Band[]>> = {
  jpeg: [{ pixelsMax: ANY_SIZE, bytesPerPixel: 11 }],
  png: [{ pixelsMax: ANY_SIZE, bytesPerPixel: 20 }],
  webp: [{ pixelsMax: ANY_SIZE, bytesPerPixel: 10 }],
  avif: [{ pixelsMax: ANY_SIZE, bytesPerPixel: 38 }],
  jxl: [
    { pixelsMax: WASM_PIXELS_MAX, bytesPerPixel: 22 },
    { pixelsMax: ANY_SIZE, bytesPerPixel: 50 },
  ],
  heic: [{ pixelsMax: ANY_SIZE, bytesPerPixel: 42 }],
};

const ENCODE_MEMORY: Readonly<Record<OutputFormat, readonly Band[]>> = {
  png: [{ pixelsMax: ANY_SIZE, bytesPerPixel: 8 }],
  webp: [{ pixelsMax: ANY_SIZE, bytesPerPixel: 31 }],
  avif: [
    { pixelsMax: 17_000_000, bytesPerPixel: 53 },
    { pixelsMax: 35_651_584, bytesPerPixel: 39 },
    { pixelsMax: ANY_SIZE, bytesPerPixel: 15 },
  ],
  jxl: [
    { pixelsMax: WASM_PIXELS_MAX, bytesPerPixel: 52 },
    { pixelsMax: ANY_SIZE, bytesPerPixel: 70 },
  ],
  jpeg: [{ pixelsMax: ANY_SIZE, bytesPerPixel: 20 }],
  zip: [{ pixelsMax: ANY_SIZE, bytesPerPixel: 20 }],
};

/** Lossless, in one channel. */
const MASK_MEMORY: Readonly<Record<OutputFormat, readonly Band[]>> = {
  png: [{ pixelsMax: ANY_SIZE, bytesPerPixel: 8 }],
  webp: [{ pixelsMax: ANY_SIZE, bytesPerPixel: 23 }],
  avif: [{ pixelsMax: ANY_SIZE, bytesPerPixel: 28 }],
  jxl: ENCODE_MEMORY.jxl,
  jpeg: ENCODE_MEMORY.jpeg,
  zip: ENCODE_MEMORY.zip,
};

/** Maximum for any picture up to that size: a larger one that is coded in parts may take less. */
function bytesIn(bands: readonly Band[], pixels: number): number {
  let most = 0;
  for (const { pixelsMax, bytesPerPixel } of bands) {
    most = Math.max(most, bytesPerPixel * Math.min(pixels, pixelsMax));
    if (pixels <= pixelsMax) break;
  }
  return most;
}

/** A decoded picture in memory during other work. */
const HELD_BYTES_PER_PIXEL = 4;
/** A hints picture in memory. */
const HINTS_BYTES_PER_PIXEL = 1;
/** A cut-out with its matte. */
const CUT_OUT_BYTES_PER_PIXEL = 5;

interface FinishingCost {
  readonly framePixels: number;
  readonly background:
    | { readonly inputFormat: InputFormat | undefined; readonly pixels: number }
    | undefined;
}

interface PictureCost {
  /** undefined: unknown, counted as the most expensive. */
  readonly inputFormat: InputFormat | undefined;
  readonly outputFormat: OutputFormat;
  readonly resultKind: 'cutout' | 'mask';
  readonly pixels: number;
  readonly finishing?: FinishingCost | undefined;
  /** The picture of hints. */
  readonly hints?:
    | { readonly inputFormat: InputFormat | undefined; readonly pixels: number }
    | undefined;
}

/** Grows with the pixels. */
export function pictureMemoryBytes(cost: PictureCost): number {
  const { hints } = cost;
  if (hints === undefined) return resultMemoryBytes(cost);
  // Hints are decoded before the image, and one byte a pixel stays in memory.
  const held = HINTS_BYTES_PER_PIXEL * hints.pixels;
  return Math.max(
    held + decodeBytes(hints.inputFormat, hints.pixels),
    held + resultMemoryBytes(cost),
  );
}

function resultMemoryBytes(cost: PictureCost): number {
  const { inputFormat, outputFormat, resultKind, pixels, finishing } = cost;
  const results = (resultKind === 'mask' ? MASK_MEMORY : ENCODE_MEMORY)[outputFormat];
  const decode = decodeBytes(inputFormat, pixels);
  if (finishing === undefined) return Math.max(decode, bytesIn(results, pixels));
  const { framePixels, background } = finishing;
  // The background is decoded first and kept. The cut-out is freed before the result is encoded.
  const held = HELD_BYTES_PER_PIXEL * (background?.pixels ?? 0);
  return Math.max(
    background === undefined ? 0 : decodeBytes(background.inputFormat, background.pixels),
    held + decode,
    held + CUT_OUT_BYTES_PER_PIXEL * pixels + HELD_BYTES_PER_PIXEL * framePixels,
    bytesIn(results, framePixels),
  );
}

function decodeBytes(format: InputFormat | undefined, pixels: number): number {
  const formats = format === undefined ? Object.values(DECODE_MEMORY) : [DECODE_MEMORY[format]];
  return Math.max(...formats.map(bands => bytesIn(bands, pixels)));
}

/** Of a node's capacity. An unknown size counts as the largest. */
export function countedMegapixels({
  pixels = IMAGE_PIXELS_MAX,
  ...formats
}: Omit<PictureCost, 'pixels'> & { readonly pixels: number | undefined }): number {
  const byMemory = pictureMemoryBytes({ ...formats, pixels }) / BYTES_PER_MEGAPIXEL;
  return Math.max(pixels / 1e6, byMemory);
}
