/**
 * JPEG XL through wasm-vips, or through libjxl's own programs if wasm-vips lacks the memory or
 * cannot read the file.
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

/** Visually lossless by the format's own measure, as the contract asks. */
const DISTANCE = 1;
/**
 * From 1 to 9. A photo of 12 MP takes 1.6 s at 3, and 2.2 s at 4 for no fewer bytes (2 cores of an
 * AMD EPYC).
 */
const EFFORT = 3;

/** A smaller picture fits WebAssembly's memory, so its failure is the file's fault. */
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
  const { width, height } = image;
  const premultiplied = image.hasAlpha() && (await hasAssociatedAlpha(file));
  const isFloat = loaded.format === 'float';
  const stored = { file, width, height, premultiplied, isFloat, profile: readProfile(image) };
  return { width, height, readPixels: () => readPixels(stored, image, scratch) };
}

interface StoredJxl extends Size {
  readonly file: Buffer;
  readonly premultiplied: boolean;
  readonly isFloat: boolean;
  readonly profile: Uint8Array | undefined;
}

/**
 * Large pictures that fail are tried again with libjxl's program: the memory that they need depends
 * on more than size (lossless takes four times as much). libvips (8.18) cannot read two extra
 * channels.
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

/** Converts to what colour management expects: 255 is full ink, black comes fourth. */
function invertInks(cmya: Uint8Array, black: Uint8Array): Uint8Array {
  const inks = new Uint8Array(cmya.length);
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

/** As divideByAlpha, at the image's own depth and in its own colours. */
function divide(image: Vips.Image, scratch: Scratch): Vips.Image {
  const straight = scratch.keep(image.unpremultiply());
  const { format, interpretation } = image;
  const whole = scratch.keep(scratch.keep(straight.rint()).cast(format));
  return scratch.keep(whole.copy({ interpretation }));
}

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
 * Removes metadata (ISO/IEC 18181-2): decoders fail at wrong Exif, XMP or boxes, and
 * pillow-jxl-plugin omits four bytes of Exif. Orientation and colours are in the codestream.
 */

const PICTURE_TYPES: ReadonlySet<string> = new Set(['JXL ', 'ftyp', 'jxll', 'jxlc', 'jxlp']);
/** libjxl writes some tens of boxes at most. */
const BOXES_MAX = 8192;

export function withoutMetadata(file: Buffer): Buffer {
  if (!isJxlContainer(file)) return file;
  const kept: Buffer[] = [];
  let at = 0;
  for (let boxes = 0; boxes < BOXES_MAX; boxes += 1) {
    const box = parseBox(file.subarray(at, at + 16), at, file.length);
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
