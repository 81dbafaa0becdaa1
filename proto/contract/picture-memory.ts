/**
 * The peak memory that a picture takes in its worker and in the programs that the worker starts.
 * Nodes decide by it how many pictures they have at once, and control planes which node has room
 * for one. Pure.
 *
 * Measured with bench/formats.ts on a cut-out portrait, inputs at 35 MP, results at 12, 35 and 100
 * MP, with finishing up to 50 MP, above an idle worker's 0.1 GB, and rounded up. A result's figure includes the decoded pixels
 * (4 bytes each) and the matte. It falls per pixel where large pictures are coded in parts.
 */
import type { InputFormat, OutputFormat } from './formats.ts';
import { IMAGE_PIXELS_MAX } from './limits.ts';

/** A megapixel of what a node may have at once: the most that one of most pictures takes. */
export const BYTES_PER_MEGAPIXEL = 42_000_000;

/**
 * Limit of the JPEG XL codec in WebAssembly. Input and result of one image in a fresh instance take
 * 0.64 GB for the decode and 1.2 GB with the encode at 40 MP; at 64 MP 1.6 GB of its 2 GB.
 */
export const WASM_PIXELS_MAX = 40_000_000;

interface Band {
  /** Pictures up to this many pixels. */
  readonly pixelsMax: number;
  readonly bytesPerPixel: number;
}

const ANY_SIZE = Number.POSITIVE_INFINITY;

/**
 * The worst case of each: progressive JPEG; 16-bit PNG in numbered colours; lossless WebP; AVIF of
 * 10 bits in a high dynamic range; JPEG XL above the limit of WebAssembly by djxl. HEIC of
 * 10 bits with alpha, as one item, by libheif-js.
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

/** Results that are only the matte, lossless in one channel. */
const MASK_MEMORY: Readonly<Record<OutputFormat, readonly Band[]>> = {
  png: [{ pixelsMax: ANY_SIZE, bytesPerPixel: 8 }],
  webp: [{ pixelsMax: ANY_SIZE, bytesPerPixel: 23 }],
  avif: [{ pixelsMax: ANY_SIZE, bytesPerPixel: 28 }],
  jxl: ENCODE_MEMORY.jxl,
  jpeg: ENCODE_MEMORY.jpeg,
  zip: ENCODE_MEMORY.zip,
};

/** The most for any picture up to that size: one that is coded in parts takes less. */
function bytesIn(bands: readonly Band[], pixels: number): number {
  let most = 0;
  for (const { pixelsMax, bytesPerPixel } of bands) {
    most = Math.max(most, bytesPerPixel * Math.min(pixels, pixelsMax));
    if (pixels <= pixelsMax) break;
  }
  return most;
}

/** Pixels that are held while others are worked on. */
const HELD_BYTES_PER_PIXEL = 4;
/** Hints that are a picture, while the image is worked on. */
const HINTS_BYTES_PER_PIXEL = 1;
/** A cut-out with its matte while the result is made of it. */
const CUT_OUT_BYTES_PER_PIXEL = 5;

interface FinishingCost {
  readonly framePixels: number;
  readonly background:
    | { readonly inputFormat: InputFormat | undefined; readonly pixels: number }
    | undefined;
}

interface PictureCost {
  /** Undefined: not known yet, counted as the costliest. */
  readonly inputFormat: InputFormat | undefined;
  readonly outputFormat: OutputFormat;
  readonly resultKind: 'cutout' | 'mask';
  readonly pixels: number;
  /** Undefined: there is none. */
  readonly finishing?: FinishingCost | undefined;
  /** The picture of hints; undefined: there is none. */
  readonly hints?:
    | { readonly inputFormat: InputFormat | undefined; readonly pixels: number }
    | undefined;
}

/** Bytes; never less for more pixels. */
export function pictureMemoryBytes(cost: PictureCost): number {
  const { hints } = cost;
  if (hints === undefined) return resultMemoryBytes(cost);
  // Hints come before the image, and one byte per pixel of them stays.
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
  // The background comes first and is held; the cut-out is freed before the result is encoded.
  const behind = HELD_BYTES_PER_PIXEL * (background?.pixels ?? 0);
  return Math.max(
    background === undefined ? 0 : decodeBytes(background.inputFormat, background.pixels),
    behind + decode,
    behind + CUT_OUT_BYTES_PER_PIXEL * pixels + HELD_BYTES_PER_PIXEL * framePixels,
    bytesIn(results, framePixels),
  );
}

function decodeBytes(format: InputFormat | undefined, pixels: number): number {
  const formats = format === undefined ? Object.values(DECODE_MEMORY) : [DECODE_MEMORY[format]];
  return Math.max(...formats.map(bands => bytesIn(bands, pixels)));
}

/** Megapixels that an image takes of a node. An unknown size counts as the largest. */
export function countedMegapixels({
  pixels = IMAGE_PIXELS_MAX,
  ...formats
}: Omit<PictureCost, 'pixels'> & { readonly pixels: number | undefined }): number {
  const byMemory = pictureMemoryBytes({ ...formats, pixels }) / BYTES_PER_MEGAPIXEL;
  return Math.max(pixels / 1e6, byMemory);
}
