/**
 * JPEG, PNG, WebP and AVIF through sharp (libvips). The only importer of sharp, so no bytes can
 * reach other loaders than these.
 */

import { crc32 } from 'node:zlib';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { InputFormat } from '@matting/proto/contract/formats.ts';
import { readAvifColour } from '@matting/proto/contract/image-header/heif-file.ts';
import { IMAGE_PIXELS_MAX } from '@matting/proto/contract/limits.ts';
import sharp, { type Metadata, type Sharp } from 'sharp';
import { type OpenedPicture, type RawPixels, viewAsPixels } from '../rgba-picture.ts';
import { convertGrey, convertRgba, PIXEL_SPACES } from './colour/convert-icc.ts';
import { isSrgbProfile, spaceOfProfile } from './colour/icc-profile.ts';
import { readPngColour } from './colour/png-colour.ts';
import {
  bytesOfSamples,
  divideByAlpha,
  NARROW,
  type Range,
  type Samples,
  stretchColours,
} from './colour/samples.ts';
import {
  colourOfCicp,
  colourOfGamma,
  convertToSrgb,
  isKnownCicp,
  type SourceColour,
} from './colour/source-colour.ts';
import { readAvifTiles } from './files/avif-tiles.ts';
import { type MendedJpeg, mendJpeg } from './files/jpeg-file.ts';
import { withPadByte } from './files/webp-file.ts';

const LOADERS = ['Jpeg', 'Png', 'Webp', 'Heif'].map(name => `VipsForeignLoad${name}`);

sharp.block({ operation: ['VipsForeignLoad'] });
sharp.unblock({ operation: LOADERS });
// One image at a time: threads inside sharp would take the engine's cores (sharp issue 2481).
sharp.concurrency(1);
sharp.cache(false);

/** Undefined if libvips is not sharp's own. */
export const libheifVersion: string | undefined = sharp.versions.heif;

type SharpFormat = Exclude<InputFormat, 'jxl' | 'heic'>;

const SHARP_FORMAT: Readonly<Record<SharpFormat, string>> = {
  jpeg: 'jpeg',
  png: 'png',
  webp: 'webp',
  avif: 'heif',
};

/** libjpeg only warns of unreadable data. jpeg-file.ts repairs the causes of its other warnings. */
const FAIL_ON = 'warning';

/** sharp (0.35) ignores a grey profile in these spaces: 16 bits, or three channels. */
const SPREAD_SPACES: readonly Metadata['space'][] = ['grey16', 'srgb', 'rgb16'];
/** Formats whose grey arrives as three colours. */
const SPREAD_FORMATS: ReadonlySet<SharpFormat> = new Set(['webp', 'avif']);

/** @throws ContractError UNSUPPORTED_IMAGE_FORMAT, IMAGE_RESOLUTION_TOO_LARGE, PROCESSING_FAILED */
export async function openWithSharp(given: Buffer, format: SharpFormat): Promise<OpenedPicture> {
  const padded = format === 'webp' ? withPadByte(given) : undefined;
  const file = padded ?? (format === 'avif' ? withAvifBrand(given) : given);
  let metadata: Metadata;
  try {
    metadata = await sharp(file, { limitInputPixels: IMAGE_PIXELS_MAX }).metadata();
  } catch (error) {
    throw toContractError(error);
  }
  requireExpected(metadata, format);
  const { width, height } = metadata.autoOrient;
  const plan = await planReading(file, format, metadata);
  const mended = padded && ('pad_byte' as const);
  const read = () => readPixels(file, format, metadata, plan);
  return { width, height, readPixels: async () => ({ mended, ...(await read()) }) };
}

/** libvips (8.18) trusts the first brand, and refuses that of sequences even for one picture. */
function withAvifBrand(file: Buffer): Buffer {
  if (file.toString('latin1', 8, 12) === 'avif') return file;
  const still = Buffer.from(file);
  still.write('avif', 8, 'latin1');
  return still;
}

interface StoredPlan {
  readonly premultiplied: boolean;
  readonly ranges: Ranges | undefined;
  toPixels(samples: Samples): Uint32Array | Promise<Uint32Array>;
}

interface Plan {
  /** Undefined: the profile is sRGB or missing. */
  readonly profile: Buffer | undefined;
  readonly stored: StoredPlan | undefined;
}

async function planReading(file: Buffer, format: SharpFormat, metadata: Metadata): Promise<Plan> {
  const { space, hasAlpha, autoOrient } = metadata;
  const {
    colour,
    profile: named,
    premultiplied,
    ranges,
  } = await readColour(file, format, metadata);
  const profile = named && fits(named, space, format) && !isSrgbProfile(named) ? named : undefined;
  const divides = premultiplied && hasAlpha;
  const plan = (toPixels: StoredPlan['toPixels']) => {
    return { profile, stored: { premultiplied: divides, ranges, toPixels } };
  };
  if (colour !== undefined) return plan(samples => convertToSrgb(samples, colour));
  if (profile && spaceOfProfile(profile) === 'grey' && SPREAD_SPACES.includes(space)) {
    return plan(samples => convertGrey(samples, profile));
  }
  if (!divides && ranges === undefined) return { profile, stored: undefined };
  if (profile === undefined) return plan(samples => viewAsPixels(bytesOfSamples(samples)));
  return plan(samples => convertRgba(samples, autoOrient.width, profile));
}

/** A profile for another kind of pixels is ignored, as in browsers. */
function fits(profile: Buffer, space: string, format: SharpFormat): boolean {
  const isFor = spaceOfProfile(profile);
  return isFor === PIXEL_SPACES[space] || (isFor === 'grey' && SPREAD_FORMATS.has(format));
}

interface FileColour {
  readonly colour: SourceColour | undefined;
  readonly profile: Buffer | undefined;
  readonly premultiplied: boolean;
  readonly ranges: Ranges | undefined;
}

async function readColour(
  file: Buffer,
  format: SharpFormat,
  { icc }: Metadata,
): Promise<FileColour> {
  const byProfile = { colour: undefined, profile: icc, premultiplied: false, ranges: undefined };
  const byNumbers = (colour: SourceColour | undefined) => {
    return { ...byProfile, colour, profile: undefined };
  };
  if (format === 'png') {
    const { cicp, isSrgb, exponent, chromaticities } = readPngColour(file);
    if (cicp !== undefined && isKnownCicp(cicp)) {
      return { ...byNumbers(colourOfCicp(cicp)), ranges: cicp.isNarrow ? NARROW_RGB : undefined };
    }
    if (icc !== undefined || isSrgb) return byProfile;
    return byNumbers(colourOfGamma(exponent, chromaticities));
  }
  if (format !== 'avif') return byProfile;
  const { cicp, premultiplied, isGrey } = await readAvifColour(file);
  const colour = cicp && colourOfCicp(cicp);
  // A profile outranks the code points, but cannot describe high dynamic range.
  const isByNumbers = icc === undefined || colour?.toneMaps;
  const ranges = cicp?.isNarrow ? rangesOfLibheif(isGrey, cicp.isRgb) : undefined;
  return { ...(isByNumbers ? byNumbers(colour) : byProfile), premultiplied, ranges };
}

type Ranges = readonly [Range, Range, Range];

const NARROW_RGB: Ranges = [NARROW, NARROW, NARROW];
/** Inverts a stretch as chroma, whose narrow range is wider: 224 steps instead of 219. */
const HALF_STRETCHED: Range = { black: 0, white: (256 * 219) / 224 };
const FULL: Range = { black: 0, white: 255 };

/**
 * libheif (1.23) widens narrow ranges, but leaves grey as it is, and treats red and blue of RGB
 * samples as chroma.
 */
function rangesOfLibheif(isGrey: boolean, isRgb: boolean): Ranges | undefined {
  if (isGrey) return NARROW_RGB;
  return isRgb ? [HALF_STRETCHED, FULL, HALF_STRETCHED] : undefined;
}

function requireExpected(metadata: Metadata, format: SharpFormat): void {
  const { format: found, compression, pages = 1 } = metadata;
  if (found !== SHARP_FORMAT[format] || (format === 'avif' && compression !== 'av1')) {
    throw new ContractError(
      'UNSUPPORTED_IMAGE_FORMAT',
      `The file begins as ${format} but is not ${format}.`,
    );
  }
  // An AVIF grid counts as several pages.
  if (format !== 'avif' && pages > 1) {
    throw new ContractError(
      'UNSUPPORTED_IMAGE_FORMAT',
      'The image is animated. Send one frame of it, as PNG or JPEG.',
    );
  }
}

async function readPixels(file: Buffer, format: SharpFormat, metadata: Metadata, plan: Plan) {
  const { hasAlpha: translucent, autoOrient } = metadata;
  if (format === 'jpeg') {
    return { ...(await readJpegPixels(mendJpeg(file), metadata, plan)), translucent };
  }
  if (format === 'png') requirePngChunks(file);
  const tiles = format === 'avif' ? await readAvifTiles(file) : [];
  const rgba = await readSamples(file, metadata, plan);
  for (const tile of tiles) {
    if (tile.mayBeMissing(rgba, autoOrient)) await requireTile(tile.write());
  }
  return { rgba, translucent };
}

async function readSamples(file: Buffer, metadata: Metadata, plan: Plan) {
  try {
    return plan.stored === undefined
      ? await readRgba(file, metadata, plan.profile)
      : await readStored(file, metadata, plan.stored);
  } catch (error) {
    throw error instanceof ContractError ? error : toContractError(error);
  }
}

/** Decodes one tile of a grid: sharp hides its failure in the whole picture. */
async function requireTile(file: Buffer): Promise<void> {
  try {
    await sharp(file, { failOn: FAIL_ON, limitInputPixels: IMAGE_PIXELS_MAX })
      .extract({ left: 0, top: 0, width: 1, height: 1 })
      .raw()
      .toBuffer();
  } catch (error) {
    throw toContractError(error);
  }
}

/** Checks the Huffman codes on this thread while the decoder works on another. */
async function readJpegPixels(
  { file, requireWhole, withoutStray }: MendedJpeg,
  metadata: Metadata,
  plan: Plan,
) {
  const reading = readSamples(file, metadata, plan);
  try {
    requireWhole();
  } catch (error) {
    await Promise.allSettled([reading]);
    throw error;
  }
  try {
    return { rgba: await reading };
  } catch (error) {
    const clean = withoutStray(String((error as Error).cause));
    if (clean === undefined) throw error;
    return { rgba: await readSamples(clean, metadata, plan), mended: 'stray_bytes' as const };
  }
}

async function readRgba(file: Buffer, { depth }: Metadata, profile: Buffer | undefined) {
  const needsConversion = profile !== undefined;
  let picture = sharp(file, {
    failOn: FAIL_ON,
    autoOrient: true,
    ignoreIcc: !needsConversion,
    limitInputPixels: IMAGE_PIXELS_MAX,
  });
  // With 16 bits, sharp 0.35 converts to Display P3 unless an output profile is set.
  if (needsConversion && depth === 'ushort') picture = picture.withIccProfile('srgb');
  return viewAsPixels(await picture.toColourspace('srgb').ensureAlpha().raw().toBuffer());
}

/** Keeps all bits until the conversion. */
async function readStored(
  file: Buffer,
  metadata: Metadata,
  { premultiplied, ranges, toPixels }: StoredPlan,
): Promise<Uint32Array> {
  const samples = await readStoredSamples(file, metadata);
  if (ranges !== undefined) stretchColours(samples, ranges);
  if (premultiplied) divideByAlpha(samples);
  return await toPixels(samples);
}

async function readStoredSamples(file: Buffer, { depth }: Metadata): Promise<Samples> {
  const isDeep = depth === 'ushort';
  const bytes = await sharp(file, {
    failOn: FAIL_ON,
    autoOrient: true,
    ignoreIcc: true,
    limitInputPixels: IMAGE_PIXELS_MAX,
  })
    .toColourspace(isDeep ? 'rgb16' : 'srgb')
    .ensureAlpha()
    .raw({ depth: isDeep ? 'ushort' : 'uchar' })
    .toBuffer();
  return isDeep ? new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2) : bytes;
}

/** @throws ContractError PROCESSING_FAILED */
export async function readPngSamples(png: Buffer, { width, height }: Size): Promise<Samples> {
  try {
    const metadata = await sharp(png, { limitInputPixels: IMAGE_PIXELS_MAX }).metadata();
    if (metadata.width !== width || metadata.height !== height) {
      throw new Error(`it was decoded to ${metadata.width}x${metadata.height} pixels`);
    }
    return await readStoredSamples(png, metadata);
  } catch (error) {
    throw toContractError(error);
  }
}

function toContractError(error: unknown): ContractError {
  const { message } = error as Error;
  if (message.includes('exceeds pixel limit')) {
    return new ContractError(
      'IMAGE_RESOLUTION_TOO_LARGE',
      'The image has too many pixels. Scale it down.',
      {
        cause: error,
      },
    );
  }
  const detail = 'The image is damaged or cannot be decoded.';
  return new ContractError('PROCESSING_FAILED', detail, { cause: error });
}

/** Pixels without metadata are sRGB. */
export function openRaw({ data, width, height, channels }: RawPixels): Sharp {
  const picture = sharp(data, { raw: { width, height, channels }, limitInputPixels: false });
  return channels === 1 ? picture.toColourspace('b-w') : picture;
}

/*
 * libpng silently drops an ancillary chunk with a wrong checksum (ISO/IEC 15948, 5.3):
 * transparency, a profile or an orientation would be missing.
 */

const SIGNATURE_BYTES = 8;
const CHUNK_FRAME_BYTES = 12;
/** libpng keeps at most 1000. */
const CHUNKS_MAX = 4096;
/** Chunks that change no pixel, and critical ones, which libpng checks. */
const UNCHECKED = new Set(
  'IHDR PLTE IDAT IEND tEXt zTXt iTXt tIME pHYs hIST sPLT bKGD oFFs pCAL sCAL sTER fdAT'.split(' '),
);

function requirePngChunks(file: Buffer): void {
  let offset = SIGNATURE_BYTES;
  for (let chunk = 0; chunk < CHUNKS_MAX && offset + CHUNK_FRAME_BYTES <= file.length; chunk++) {
    const end = offset + CHUNK_FRAME_BYTES + file.readUInt32BE(offset);
    const type = file.toString('latin1', offset + 4, offset + 8);
    if (type === 'IEND' || end > file.length) return;
    if (!UNCHECKED.has(type)) {
      const crc = crc32(file.subarray(offset + 4, end - 4));
      if (crc !== file.readUInt32BE(end - 4)) {
        throw new ContractError('PROCESSING_FAILED', `The image is damaged in its chunk ${type}.`);
      }
    }
    offset = end;
  }
}
