/**
 * JPEG XL through wasm-vips (libvips with libjxl), and through libjxl's own programs where
 * wasm-vips lacks the memory or cannot read the file.
 */

import type Vips from 'wasm-vips';
import { ContractError } from '#contract/errors.ts';
import type { Size } from '#contract/finishing.ts';
import { hasAssociatedAlpha, isJxlContainer } from '#contract/image-header/jxl.ts';
import { WASM_PIXELS_MAX } from '#contract/picture-memory.ts';
import { hasJxlTools } from '../jxl-limit.ts';
import { viewAsPixels } from '../rgba-picture.ts';
import { isCmykProfile, isGreyProfile, isRgbProfile, isSrgbProfile } from './colour/icc.ts';
import { convertGrey, convertRgba, ICC_FIELD, STRIP_ROWS, toSrgb } from './icc-conversion.ts';
import {
  DJXL_EXTRA_CHANNELS_MAX,
  decodeInksWithDjxl,
  decodeWithDjxl,
  encodeWithCjxl,
} from './jxl-tools.ts';
import type { OpenedPicture } from './opened-picture.ts';
import type { RawPixels } from './raw-pixels.ts';
import { attempt, requireVips, Scratch } from './wasm-vips.ts';

/** Visually lossless by the format's own measure; the contract asks for this or better. */
const DISTANCE = 1;
/**
 * From 1 to 9. A photo of 12 MP with alpha takes 1.6 s at 3, 2.2 s at 4 for a file that is no
 * smaller; one of 2 MP 0.2 s at 3, 1.2 s at 7 (2 cores of an AMD EPYC).
 */
const EFFORT = 3;

/** Below this a failure is the file's fault: WebAssembly's memory is enough for any picture. */
const RETRY_PIXELS_MIN = 8_000_000;

const PAGES_FIELD = 'n-pages';

/**
 * Reads the header, not a pixel.
 * @throws ContractError UNSUPPORTED_IMAGE_FORMAT, PROCESSING_FAILED
 */
export async function openJxl(given: Buffer): Promise<OpenedPicture> {
  const file = withoutMetadata(given);
  const vips = await requireVips();
  const scratch = new Scratch();
  const image = attempt(() =>
    scratch.keep(vips.Image.jxlloadBuffer(file, { access: 'sequential', fail_on: 'error' })),
  );
  if (image.getTypeof(PAGES_FIELD) !== 0 && image.getInt(PAGES_FIELD) > 1) {
    scratch.free();
    throw new ContractError('UNSUPPORTED_IMAGE_FORMAT', 'animated images are not supported');
  }
  // libjxl has turned it upright already.
  const { width, height } = image;
  const premultiplied = image.hasAlpha() && (await hasAssociatedAlpha(file));
  const stored = { file, width, height, premultiplied, profile: readProfile(image) };
  return { width, height, readPixels: () => readPixels(stored, image, scratch) };
}

/** What is known about a file before its pixels are read. */
interface StoredJxl extends Size {
  readonly file: Buffer;
  /** Its colours are multiplied by its alpha. */
  readonly premultiplied: boolean;
  /** The profile of the colours that a decoder returns. */
  readonly profile: Uint8Array | undefined;
}

/**
 * Reads in WebAssembly, or where it lacks the memory with libjxl's own program. Which pictures
 * those are depends on more than their size (lossless ones take four times as much), so a large
 * picture that failed in WebAssembly is tried with the program. So is what libvips (8.18) cannot
 * read: it takes any single channel beside the colours for alpha, and fails at two.
 */
async function readPixels(stored: StoredJxl, image: Vips.Image, scratch: Scratch) {
  const { width, height, premultiplied, profile } = stored;
  const translucent = image.hasAlpha();
  const extraChannels = countExtraChannels(image);
  try {
    if (profile !== undefined && isCmykProfile(profile)) {
      requireTools(extraChannels);
      return await readInks(stored, profile, extraChannels);
    }
    if (extraChannels > 1) requireTools(extraChannels);
    else if (width * height <= WASM_PIXELS_MAX) {
      try {
        return { rgba: readInWasm(image, premultiplied, scratch), translucent };
      } catch (error) {
        if (width * height < RETRY_PIXELS_MIN || !hasJxlTools()) throw error;
      }
    }
    return { rgba: await readOutside(stored), translucent };
  } finally {
    scratch.free();
  }
}

/** Decodes with djxl and converts the colours to sRGB here. */
export async function readOutside(stored: StoredJxl): Promise<Uint32Array> {
  const { file, width, profile, premultiplied } = stored;
  const samples = await decodeWithDjxl(file, stored, premultiplied);
  if (profile === undefined || isSrgbProfile(profile)) return viewAsPixels(samples);
  if (isGreyProfile(profile)) return await convertGrey(samples, profile);
  return isRgbProfile(profile) ? await convertRgba(samples, width, profile) : viewAsPixels(samples);
}

function readProfile(image: Vips.Image): Uint8Array | undefined {
  // A copy: it may be needed after the image is gone.
  return image.getTypeof(ICC_FIELD) === 0 ? undefined : Uint8Array.from(image.getBlob(ICC_FIELD));
}

/** Channels beside the colours; alpha is one. */
function countExtraChannels({ bands, interpretation }: Vips.Image): number {
  return bands - (interpretation === 'b-w' || interpretation === 'grey16' ? 1 : 3);
}

function requireTools(extraChannels: number): void {
  if (extraChannels > DJXL_EXTRA_CHANNELS_MAX) {
    const detail = 'the JPEG XL image has more channels than can be read';
    throw new ContractError('PROCESSING_FAILED', detail);
  }
  if (!hasJxlTools()) {
    const detail =
      'this node reads JPEG XL of CMYK or of more channels than RGBA only with libjxl-tools';
    throw new ContractError('NODE_INCAPABLE', detail);
  }
}

/** Reads CMYK, whose black is a channel beside the colours. */
async function readInks(stored: StoredJxl, profile: Uint8Array, extraChannels: number) {
  const { file, width, premultiplied } = stored;
  const { cmya, black, hasAlpha } = await decodeInksWithDjxl(file, stored, premultiplied);
  if (extraChannels !== (hasAlpha ? 2 : 1)) {
    throw new ContractError('PROCESSING_FAILED', 'the JPEG XL image has inks beside CMYK');
  }
  const vips = await requireVips();
  for (let at = 0; at < black.length; at += STRIP_ROWS * width) {
    const blackStrip = black.subarray(at, at + STRIP_ROWS * width);
    const strip = cmya.subarray(at * 4, (at + blackStrip.length) * 4);
    const scratch = new Scratch();
    try {
      const rgb = attempt(() => {
        const inks = invertInks(strip, blackStrip);
        const rows = blackStrip.length / width;
        const raw = vips.Image.newFromMemory(inks, width, rows, 4, vips.BandFormat.uchar);
        const image = scratch.keep(scratch.keep(raw).copy({ interpretation: 'cmyk' }));
        image.setBlob(ICC_FIELD, profile);
        return toSrgb(image, scratch).writeToMemory() as Uint8Array;
      });
      for (let i = 0; i < blackStrip.length; i++) strip.set(rgb.subarray(3 * i, 3 * i + 3), 4 * i);
    } finally {
      scratch.free();
    }
  }
  return { rgba: viewAsPixels(cmya), translucent: hasAlpha };
}

/** Converts to what colour management takes: 255 is full ink, black comes fourth. */
function invertInks(cmya: Uint8Array, black: Uint8Array): Uint8Array {
  const inks = new Uint8Array(cmya.length);
  // `cmya` has four samples for each of `black`.
  for (let i = 0; i < inks.length; i++) inks[i] = 255 - (i % 4 === 3 ? black[i >> 2]! : cmya[i]!);
  return inks;
}

function readInWasm(image: Vips.Image, premultiplied: boolean, scratch: Scratch): Uint32Array {
  return attempt(() => {
    const srgb = toSrgb(premultiplied ? divide(image, scratch) : image, scratch);
    const rgba = image.hasAlpha() ? srgb : scratch.keep(srgb.bandjoin(255));
    if (rgba.bands !== 4) throw new Error(`${rgba.bands} channels after the conversion to sRGB`);
    return viewAsPixels(rgba.writeToMemory() as Uint8Array);
  });
}

/** Like divideByAlpha in samples.ts, at the image's own depth and in its own colours. */
function divide(image: Vips.Image, scratch: Scratch): Vips.Image {
  const straight = scratch.keep(image.unpremultiply());
  const { format, interpretation } = image;
  const whole = format === 'float' ? straight : scratch.keep(straight.rint());
  return scratch.keep(scratch.keep(whole.cast(format)).copy({ interpretation }));
}

/** Encodes colours at DISTANCE and alpha losslessly; a grey plane losslessly. */
export async function encodeJxl(pixels: RawPixels): Promise<Buffer> {
  const { data, width, height, channels } = pixels;
  if (width * height > WASM_PIXELS_MAX) {
    const distance = channels === 1 ? 0 : DISTANCE;
    return await encodeWithCjxl(pixels, { distance, effort: EFFORT });
  }
  const vips = await requireVips();
  const scratch = new Scratch();
  try {
    return attempt(() => {
      const raw = scratch.keep(
        vips.Image.newFromMemory(data, width, height, channels, vips.BandFormat.uchar),
      );
      const interpretation = channels === 1 ? 'b-w' : 'srgb';
      const image = scratch.keep(raw.copy({ interpretation }));
      const quality = channels === 1 ? { lossless: true } : { distance: DISTANCE };
      const file = image.jxlsaveBuffer({ ...quality, effort: EFFORT, keep: 'none' });
      return Buffer.from(file.buffer, file.byteOffset, file.byteLength);
    });
  } finally {
    scratch.free();
  }
}

/*
 * Takes out of a JPEG XL container what is not its picture (ISO/IEC 18181-2). Decoders fail at what
 * is wrong with Exif, XMP or boxes that they know, and pillow-jxl-plugin leaves out the first four
 * bytes of each Exif. Nothing of it is used: the codestream has the orientation and the colours.
 */

/** The container's own boxes, and those with the codestream or parts of it. */
const PICTURE_TYPES = new Set(
  ['JXL ', 'ftyp', 'jxll', 'jxlc', 'jxlp'].map(type => Buffer.from(type).readUInt32BE()),
);
/** Boxes looked at. What follows is left as it is: libjxl writes some tens at most. */
const BOXES_MAX = 8192;
const HEAD_BYTES = 8;
const LARGE_HEAD_BYTES = 16;

/** @returns the given bytes, or a copy of some of them. */
export function withoutMetadata(file: Buffer): Buffer {
  if (!isJxlContainer(file)) return file;
  const kept: Buffer[] = [];
  let at = 0;
  for (let boxes = 0; boxes < BOXES_MAX; boxes += 1) {
    const end = endOfBox(file, at);
    // Behind the last box that can be read there is no codestream.
    if (end === undefined) return joined(kept, file);
    if (PICTURE_TYPES.has(file.readUInt32BE(at + 4))) kept.push(file.subarray(at, end));
    at = end;
  }
  return joined([...kept, file.subarray(at)], file);
}

/** Where the box at `at` ends, at most the file's end; undefined: there is none. */
function endOfBox(file: Buffer, at: number): number | undefined {
  if (at + HEAD_BYTES > file.length) return undefined;
  const size = file.readUInt32BE(at);
  if (size === 0) return file.length;
  if (size !== 1) return size < HEAD_BYTES ? undefined : Math.min(file.length, at + size);
  if (at + LARGE_HEAD_BYTES > file.length) return undefined;
  const large = Number(file.readBigUInt64BE(at + HEAD_BYTES));
  return large < LARGE_HEAD_BYTES ? undefined : Math.min(file.length, at + large);
}

function joined(parts: readonly Buffer[], file: Buffer): Buffer {
  const bytes = parts.reduce((sum, { length }) => sum + length, 0);
  return bytes === file.length ? file : Buffer.concat(parts, bytes);
}
