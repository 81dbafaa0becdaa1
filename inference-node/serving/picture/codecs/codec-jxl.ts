/**
 * JPEG XL: through wasm-vips (libvips with libjxl), and through libjxl's own programs where wasm-vips
 * lacks the memory or cannot read the file.
 */

import type { FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { parseBox } from '@matting/proto/contract/image-header/iso-boxes.ts';
import { hasAssociatedAlpha, isJxlContainer } from '@matting/proto/contract/image-header/jxl.ts';
import { WASM_PIXELS_MAX } from '@matting/proto/contract/picture-memory.ts';
import type Vips from 'wasm-vips';
import {
  EXTRA_OUTPUT,
  INPUT,
  limitsFor,
  OUTPUT,
  readWhole,
  requireRoom,
  runLimited,
  writeAll,
} from '../children/limited-child.ts';
import { type Links, openNameless, withLinks } from '../children/temporary-files.ts';
import { CJXL, DJXL, hasJxlTools } from '../makeable.ts';
import { type OpenedPicture, type RawPixels, viewAsPixels } from '../rgba-picture.ts';
import { convertByProfile, ICC_FIELD, isCmykProfile, STRIP_ROWS, toSrgb } from './colour/icc.ts';
import { divideByAlpha, type Samples } from './colour/source-colour.ts';
import { attempt, requireVips, Scratch } from './wasm-vips.ts';

/*
 * libjxl's own programs, djxl and cjxl (Debian: libjxl-tools), for pictures that need more memory
 * than WebAssembly has, and for the black of CMYK, which libvips leaves out.
 */

const TARGET = 'pixels.ppm';
/**
 * If a file has channels beside colours and alpha, djxl writes those two to ec0 and each other
 * channel to a file of its own. If it finds no link, djxl would create a file.
 */
const LINKS: Links = {
  [TARGET]: OUTPUT,
  'pixels-ec0.ppm': OUTPUT,
  'pixels-ec1.pgm': EXTRA_OUTPUT,
  'pixels-ec2.pgm': EXTRA_OUTPUT,
};
const DJXL_EXTRA_CHANNELS_MAX = 2;

/** Decodes to RGBA of 8 bits, oriented, in the file's own colours, with straight alpha. */
export async function decodeWithDjxl(
  file: Buffer,
  size: Size,
  premultiplied = false,
): Promise<Uint8Array> {
  return await runDjxl(file, size, output => readRgba(output, size, premultiplied));
}

interface Inks {
  readonly cmya: Uint8Array;
  readonly black: Uint8Array;
  readonly hasAlpha: boolean;
}

/** Decodes CMYK whose only further channel is black, which is never multiplied by alpha. */
async function decodeInksWithDjxl(file: Buffer, size: Size, premultiplied: boolean): Promise<Inks> {
  return await runDjxl(file, size, async (output, extra) => {
    const black = await readSamples(extra, size);
    const { channels } = await readHeader(output, size);
    return { cmya: await readRgba(output, size, premultiplied), black, hasAlpha: channels === 4 };
  });
}

async function runDjxl<Result>(
  file: Buffer,
  { width, height }: Size,
  read: (output: FileHandle, extra: FileHandle) => Promise<Result>,
): Promise<Result> {
  const [input, output, extra] = [await openNameless(), await openNameless(), await openNameless()];
  try {
    await writeAll(input, file);
    // It chooses the format by the name of its target: PGM, PPM or PAM, as the picture needs.
    // Its --bits_per_sample spoils 16 bits (djxl 0.7): its output is converted to 8 bits here.
    const options = ['--num_threads=1', '--quiet'];
    const limits = limitsFor(width * height);
    const failure = await withLinks(LINKS, async folder => {
      const command = [DJXL, INPUT, path.join(folder, TARGET), ...options];
      return await runLimited({ command, files: [input, output, extra], limits });
    });
    if (failure !== undefined) {
      await requireRoom(output);
      throw new ContractError('PROCESSING_FAILED', 'The image is damaged or cannot be decoded.', {
        cause: failure,
      });
    }
    return await read(output, extra);
  } finally {
    await Promise.all([input.close(), output.close(), extra.close()]);
  }
}

interface CjxlOptions {
  /** 0: lossless. */
  readonly distance: number;
  readonly effort: number;
}

/** @throws Error where the program fails, which is not the fault of the picture. */
export async function encodeWithCjxl(
  { data, width, height, channels }: RawPixels,
  { distance, effort }: CjxlOptions,
): Promise<Buffer> {
  const [input, output] = [await openNameless(), await openNameless()];
  try {
    const kind = channels === 4 ? 'RGB_ALPHA' : 'GRAYSCALE';
    const fields = `WIDTH ${width}\nHEIGHT ${height}\nDEPTH ${channels}\nMAXVAL 255`;
    await writeAll(input, Buffer.from(`P7\n${fields}\nTUPLTYPE ${kind}\nENDHDR\n`), data);
    const colours = channels === 4 ? 'RGB_D65_SRG_Rel_SRG' : 'Gra_D65_Rel_SRG';
    const quality = ['-d', String(distance), '-e', String(effort)];
    // Without -R 0 alpha is as lossy as the colours (cjxl 0.7).
    const options = [
      ...quality,
      '-R',
      '0',
      '-x',
      `color_space=${colours}`,
      '--num_threads=0',
      '--quiet',
    ];
    const command = [CJXL, INPUT, OUTPUT, ...options];
    const limits = limitsFor(width * height);
    const failure = await runLimited({ command, files: [input, output], limits });
    if (failure !== undefined) throw new Error(`cjxl failed: ${failure.message}`);
    return await output.readFile();
  } finally {
    await Promise.all([input.close(), output.close()]);
  }
}

/* PGM, PPM or PAM, converted to 8 bits. Another size than the header's means damage. */

const PIECE_PIXELS = 1_000_000;
const HEADER_BYTES_MAX = 200;

type Channels = 1 | 2 | 3 | 4;

interface PixelHeader {
  readonly channels: Channels;
  readonly sampleMax: number;
  readonly headerBytes: number;
}

/** Grey becomes three equal colours, missing alpha 255; the result is not premultiplied. */
async function readRgba(
  output: FileHandle,
  size: Size,
  premultiplied: boolean,
): Promise<Uint8Array> {
  const rgba = new Uint8Array(size.width * size.height * 4);
  const take: TakeSamples = (samples, channels, pixel) => {
    spread(samples, channels, rgba.subarray(pixel * 4, pixel * 4 + PIECE_PIXELS * 4));
  };
  await readPieces(output, size, premultiplied, take);
  return rgba;
}

async function readSamples(output: FileHandle, size: Size): Promise<Uint8Array> {
  const plane = new Uint8Array(size.width * size.height);
  await readPieces(output, size, false, (samples, channels, pixel) => {
    if (channels !== 1) throw wrongOutput();
    plane.set(samples, pixel);
  });
  return plane;
}

async function readHeader(output: FileHandle, { width, height }: Size): Promise<PixelHeader> {
  const { buffer: head } = await output.read(Buffer.alloc(HEADER_BYTES_MAX), 0, undefined, 0);
  return parseHeader(head, width, height);
}

type TakeSamples = (samples: Uint8Array, channels: Channels, pixel: number) => void;

async function readPieces(
  output: FileHandle,
  size: Size,
  premultiplied: boolean,
  take: TakeSamples,
): Promise<void> {
  const { channels, sampleMax, headerBytes } = await readHeader(output, size);
  const pixels = size.width * size.height;
  const pixelBytes = channels * (sampleMax > 255 ? 2 : 1);
  const piece = Buffer.alloc(Math.min(PIECE_PIXELS, pixels) * pixelBytes);
  for (let done = 0; done < pixels; ) {
    const wanted = Math.min(PIECE_PIXELS, pixels - done);
    const read = piece.subarray(0, wanted * pixelBytes);
    const isThere = await readWhole(output, read, headerBytes + done * pixelBytes);
    if (!isThere) throw wrongOutput();
    const samples = sampleMax > 255 ? readWords(read) : read;
    if (premultiplied && (channels === 2 || channels === 4)) {
      divideByAlpha(samples, channels, sampleMax);
    }
    take(toBytes(samples, sampleMax), channels, done);
    done += wanted;
  }
}

function readWords(bytes: Buffer): Uint16Array {
  bytes.swap16();
  return new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2);
}

function toBytes(samples: Samples, sampleMax: number): Uint8Array {
  if (sampleMax === 255) return samples as Uint8Array;
  const bytes = new Uint8Array(samples.buffer, samples.byteOffset, samples.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = (samples[i]! * 255) / sampleMax + 0.5;
  return bytes;
}

function wrongOutput(): ContractError {
  return new ContractError('PROCESSING_FAILED', 'The image is damaged or cannot be decoded.', {
    cause: new Error('djxl wrote another picture than the header says'),
  });
}

function parseHeader(head: Buffer, width: number, height: number): PixelHeader {
  const text = head.toString('latin1');
  const match =
    /^P(?<kind>[56])\n(?<width>\d+) (?<height>\d+)\n(?<max>\d+)\n/.exec(text) ??
    /^P7\nWIDTH (?<width>\d+)\nHEIGHT (?<height>\d+)\nDEPTH (?<depth>[1-4])\nMAXVAL (?<max>\d+)\n.*\nENDHDR\n/.exec(
      text,
    );
  const fields = match?.groups;
  const sampleMax = Number(fields?.max);
  const isSame = Number(fields?.width) === width && Number(fields?.height) === height;
  if (match === null || fields === undefined || !isSame || !(sampleMax >= 1)) throw wrongOutput();
  const channels = fields.kind === undefined ? Number(fields.depth) : fields.kind === '5' ? 1 : 3;
  return { channels: channels as Channels, sampleMax, headerBytes: match[0].length };
}

function spread(from: Uint8Array, channels: Channels, rgba: Uint8Array): void {
  const isGrey = channels <= 2;
  const hasAlpha = channels % 2 === 0;
  // `from` has as many pixels as `rgba`: each index lies inside.
  for (let at = 0, out = 0; out < rgba.length; at += channels, out += 4) {
    rgba[out] = from[at]!;
    rgba[out + 1] = isGrey ? from[at]! : from[at + 1]!;
    rgba[out + 2] = isGrey ? from[at]! : from[at + 2]!;
    rgba[out + 3] = hasAlpha ? from[at + channels - 1]! : 255;
  }
}

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
  const image = attempt(() =>
    scratch.keep(vips.Image.jxlloadBuffer(file, { access: 'sequential', fail_on: 'error' })),
  );
  if (image.getTypeof(PAGES_FIELD) !== 0 && image.getInt(PAGES_FIELD) > 1) {
    scratch.free();
    throw new ContractError(
      'UNSUPPORTED_IMAGE_FORMAT',
      'The image is animated. Send one frame of it, as PNG or JPEG.',
    );
  }
  // libjxl has turned it upright already.
  const { width, height } = image;
  const premultiplied = image.hasAlpha() && (await hasAssociatedAlpha(file));
  const stored = { file, width, height, premultiplied, profile: readProfile(image) };
  return { width, height, readPixels: () => readPixels(stored, image, scratch) };
}

interface StoredJxl extends Size {
  readonly file: Buffer;
  readonly premultiplied: boolean;
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

export async function readOutside(stored: StoredJxl): Promise<Uint32Array> {
  const { file, width, profile, premultiplied } = stored;
  const samples = await decodeWithDjxl(file, stored, premultiplied);
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

/** Like divideByAlpha in source-colour.ts, at the image's own depth and in its own colours. */
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
