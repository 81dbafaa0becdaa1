/**
 * JPEG XL: through wasm-vips (libvips with libjxl), and through libjxl's own programs where wasm-vips
 * lacks the memory or cannot read the file.
 */
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { parseBox } from '@matting/proto/contract/image-header/iso-boxes.ts';
import { hasAssociatedAlpha, isJxlContainer } from '@matting/proto/contract/image-header/jxl.ts';
import { WASM_PIXELS_MAX } from '@matting/proto/contract/picture-memory.ts';
import type Vips from 'wasm-vips';
import { hasJxlTools } from '../makeable.ts';
import { type OpenedPicture, type RawPixels, viewAsPixels } from '../rgba-picture.ts';
import { convertByProfile, ICC_FIELD, STRIP_ROWS, toSrgb, toWhole } from './colour/convert-icc.ts';
import { spaceOfProfile } from './colour/icc-profile.ts';
import {
  DJXL_EXTRA_CHANNELS_MAX,
  decodeInksWithDjxl,
  decodeWithDjxl,
  encodeWithCjxl,
} from './jxl-tools.ts';
import { attempt, requireVips, Scratch } from './wasm-vips.ts';

/** Visually lossless by the format's own measure; the contract asks for this or better. */
const DISTANCE = 1;
/**
 * The effort goes from 1 to 9. A photo of 12 MP with alpha takes 1.6 s at 3, 2.2 s at 4 and is no
 * smaller; a photo of 2 MP takes 0.2 s at 3, 1.2 s at 7 (2 cores of an AMD EPYC).
 */
const EFFORT = 3;

/** Below this a failure is the file's fault: WebAssembly's memory is enough for any picture. */
const RETRY_PIXELS_MIN = 8_000_000;

const PAGES_FIELD = 'n-pages';

/** @throws ContractError UNSUPPORTED_IMAGE_FORMAT, PROCESSING_FAILED */
export async function openJxl(given: Buffer): Promise<OpenedPicture> {
  const file = withoutMetadata(given);
  const vips = await requireVips();
  const scratch = new Scratch();
  const loaded = attempt(() =>
    scratch.keep(vips.Image.jxlloadBuffer(file, { access: 'sequential', fail_on: 'error' })),
  );
  const image = attempt(() => toWhole(loaded, scratch));
  if (image.getTypeof(PAGES_FIELD) !== 0 && image.getInt(PAGES_FIELD) > 1) {
    scratch[Symbol.dispose]();
    throw new ContractError(
      'UNSUPPORTED_IMAGE_FORMAT',
      'The image is animated. Send one frame of it, as PNG or JPEG.',
    );
  }
  // libjxl has turned it upright already.
  const { width, height } = image;
  const premultiplied = image.hasAlpha() && (await hasAssociatedAlpha(file));
  const isFloat = loaded.format === 'float';
  const stored = { file, width, height, premultiplied, isFloat, profile: readProfile(image) };
  return { width, height, readPixels: () => readPixels(stored, image, scratch) };
}

interface StoredJxl extends Size {
  readonly file: Buffer;
  readonly premultiplied: boolean;
  /** Samples have more than 16 bits. */
  readonly isFloat: boolean;
  /** The profile of the colours that a decoder returns. */
  readonly profile: Uint8Array | undefined;
}

/**
 * Reads in WebAssembly, or with libjxl's program if WebAssembly lacks the memory. That depends on
 * more than size (lossless takes four times as much), so a large picture that failed is tried
 * again. So is a picture with two further channels, which libvips (8.18) cannot read.
 */
async function readPixels(stored: StoredJxl, image: Vips.Image, scratch: Scratch) {
  const { width, height, premultiplied, profile } = stored;
  using _images = scratch;
  const translucent = image.hasAlpha();
  const extraChannels = countExtraChannels(image);
  // Without a channel for black the profile is not the picture's.
  if (profile && extraChannels > 0 && spaceOfProfile(profile) === 'cmyk') {
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
}

export async function readOutside(stored: StoredJxl): Promise<Uint32Array> {
  const { file, width, profile, premultiplied, isFloat } = stored;
  const samples = await decodeWithDjxl(file, stored, premultiplied, isFloat);
  return await convertByProfile(samples, width, profile);
}

function readProfile(image: Vips.Image): Uint8Array | undefined {
  return image.getTypeof(ICC_FIELD) === 0 ? undefined : Uint8Array.from(image.getBlob(ICC_FIELD));
}

function countExtraChannels({ bands, interpretation }: Vips.Image): number {
  return bands - (interpretation === 'b-w' || interpretation === 'grey16' ? 1 : 3);
}

function requireTools(extraChannels: number): void {
  if (extraChannels > DJXL_EXTRA_CHANNELS_MAX) {
    const detail = 'The JPEG XL image has more channels than the service can read.';
    throw new ContractError('PROCESSING_FAILED', detail);
  }
  if (!hasJxlTools()) {
    const detail =
      'This node needs libjxl-tools to read JPEG XL with CMYK or more channels than RGBA.';
    throw new ContractError('NODE_INCAPABLE', detail);
  }
}

/** Reads CMYK, whose black is a channel beside the colours. */
async function readInks(stored: StoredJxl, profile: Uint8Array, extraChannels: number) {
  const { file, width, premultiplied } = stored;
  const { cmya, black, hasAlpha } = await decodeInksWithDjxl(file, stored, premultiplied);
  if (extraChannels !== (hasAlpha ? 2 : 1)) {
    throw new ContractError('PROCESSING_FAILED', 'The JPEG XL image has inks other than CMYK.');
  }
  const vips = await requireVips();
  for (let at = 0; at < black.length; at += STRIP_ROWS * width) {
    const blackStrip = black.subarray(at, at + STRIP_ROWS * width);
    const strip = cmya.subarray(at * 4, (at + blackStrip.length) * 4);
    using scratch = new Scratch();
    const rgb = attempt(() => {
      const inks = invertInks(strip, blackStrip);
      const rows = blackStrip.length / width;
      const raw = vips.Image.newFromMemory(inks, width, rows, 4, vips.BandFormat.uchar);
      const image = scratch.keep(scratch.keep(raw).copy({ interpretation: 'cmyk' }));
      image.setBlob(ICC_FIELD, profile);
      return toSrgb(image, scratch).writeToMemory() as Uint8Array;
    });
    for (let i = 0; i < blackStrip.length; i++) strip.set(rgb.subarray(3 * i, 3 * i + 3), 4 * i);
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

/** Like divideByAlpha in source-colour.ts, at the image's own depth and in its own colours. */
function divide(image: Vips.Image, scratch: Scratch): Vips.Image {
  const straight = scratch.keep(image.unpremultiply());
  const { format, interpretation } = image;
  const whole = scratch.keep(scratch.keep(straight.rint()).cast(format));
  return scratch.keep(whole.copy({ interpretation }));
}

/** Encodes colours at DISTANCE and alpha losslessly; a grey plane losslessly. */
export async function encodeJxl(pixels: RawPixels): Promise<Buffer> {
  const { data, width, height, channels } = pixels;
  if (width * height > WASM_PIXELS_MAX) {
    const distance = channels === 1 ? 0 : DISTANCE;
    return await encodeWithCjxl(pixels, { distance, effort: EFFORT });
  }
  const vips = await requireVips();
  using scratch = new Scratch();
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
}

/*
 * Takes out what is not the picture (ISO/IEC 18181-2): decoders fail at wrong Exif, XMP or boxes,
 * and pillow-jxl-plugin leaves out four bytes of Exif. The codestream has orientation and colours.
 */

/** The container's own boxes, and those with the codestream or parts of it. */
const PICTURE_TYPES: ReadonlySet<string> = new Set(['JXL ', 'ftyp', 'jxll', 'jxlc', 'jxlp']);
/** Boxes looked at. What follows is left as it is: libjxl writes some tens at most. */
const BOXES_MAX = 8192;

/** @returns the given bytes, or a copy of some of them. */
export function withoutMetadata(file: Buffer): Buffer {
  if (!isJxlContainer(file)) return file;
  const kept: Buffer[] = [];
  let at = 0;
  for (let boxes = 0; boxes < BOXES_MAX; boxes += 1) {
    const box = parseBox(file.subarray(at, at + 16), at, file.length);
    // Behind the last box that can be read there is no codestream.
    if (box === undefined) return joined(kept, file);
    if (PICTURE_TYPES.has(box.type)) kept.push(file.subarray(at, box.end));
    at = box.end;
  }
  return joined([...kept, file.subarray(at)], file);
}

function joined(parts: readonly Buffer[], file: Buffer): Buffer {
  const bytes = parts.reduce((sum, { length }) => sum + length, 0);
  return bytes === file.length ? file : Buffer.concat(parts, bytes);
}
