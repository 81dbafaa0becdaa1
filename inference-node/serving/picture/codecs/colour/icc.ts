/** Conversion of ICC profiles to sRGB, left out where one is sRGB under another name. */
import type Vips from 'wasm-vips';
import { viewAsPixels } from '../../rgba-picture.ts';
import { attempt, isTrap, requireVips, Scratch } from '../wasm-vips.ts';
import { bytesOfSamples, type Samples, sampleMaxOf } from './source-colour.ts';

/*
 * A conversion costs as much as decoding the JPEG (60 ms at 12 MP). A profile that is not
 * understood is not sRGB.
 * Layout: ICC.1:2022 sections 7.2 (header), 7.3 (tag table), 10.6 (curv), 10.18 (para), 10.31
 * (XYZ).
 */

const HEADER_BYTES = 128;
const TAG_ENTRY_BYTES = 12;
const TAGS_MAX = 100;
const CURVE_POINTS_MAX = 4096;
/** Tolerance of a colorant: profiles of sRGB differ by the rounding of their adaptation to D50. */
const COLORANT_TOLERANCE = 0.002;
/** Tolerance of a curve at 256 points, in linear light: half a step of 8 bits in the shadows. */
const CURVE_TOLERANCE = 0.001;

/** XYZ of sRGB's primaries adapted to D50 (IEC 61966-2-1 with Bradford). */
const SRGB_COLORANTS = {
  rXYZ: [0.4361, 0.2225, 0.0139],
  gXYZ: [0.3851, 0.7169, 0.0971],
  bXYZ: [0.1431, 0.0606, 0.7141],
} as const;
const CURVES = ['rTRC', 'gTRC', 'bTRC'] as const;

type Tags = ReadonlyMap<string, Buffer>;

export function isRgbProfile(profile: Uint8Array): boolean {
  return Buffer.from(profile.subarray(16, 20)).toString('latin1') === 'RGB ';
}

export function isCmykProfile(profile: Uint8Array): boolean {
  return Buffer.from(profile.subarray(16, 20)).toString('latin1') === 'CMYK';
}

export function isGreyProfile(profile: Uint8Array): boolean {
  return Buffer.from(profile.subarray(16, 20)).toString('latin1') === 'GRAY';
}

export function isSrgbProfile(profile: Uint8Array): boolean {
  const bytes = Buffer.from(profile.buffer, profile.byteOffset, profile.byteLength);
  const tags = readTags(bytes);
  // Tables for the intents take precedence over the matrix.
  if (tags === undefined || tags.has('A2B0') || tags.has('A2B1')) return false;
  for (const [name, expected] of Object.entries(SRGB_COLORANTS)) {
    const xyz = readXyz(tags.get(name));
    if (xyz === undefined) return false;
    const isNear = (i: 0 | 1 | 2) => Math.abs(xyz[i] - expected[i]) <= COLORANT_TOLERANCE;
    if (!isNear(0) || !isNear(1) || !isNear(2)) return false;
  }
  return CURVES.every(name => isSrgbCurve(tags.get(name)));
}

function readTags(bytes: Buffer): Tags | undefined {
  if (bytes.length < HEADER_BYTES + 4) return undefined;
  const isRgb = bytes.toString('latin1', 16, 20) === 'RGB ';
  const isXyz = bytes.toString('latin1', 20, 24) === 'XYZ ';
  const count = bytes.readUInt32BE(HEADER_BYTES);
  const tableEnd = HEADER_BYTES + 4 + count * TAG_ENTRY_BYTES;
  if (!isRgb || !isXyz || count > TAGS_MAX || tableEnd > bytes.length) return undefined;
  const tags = new Map<string, Buffer>();
  for (let at = HEADER_BYTES + 4; at < tableEnd; at += TAG_ENTRY_BYTES) {
    const offset = bytes.readUInt32BE(at + 4);
    const end = offset + bytes.readUInt32BE(at + 8);
    if (end > bytes.length) return undefined;
    tags.set(bytes.toString('latin1', at, at + 4), bytes.subarray(offset, end));
  }
  return tags;
}

function readFixed(tag: Buffer, at: number): number {
  return tag.readInt32BE(at) / 65536;
}

function readXyz(tag: Buffer | undefined): readonly [number, number, number] | undefined {
  if (tag === undefined || tag.length < 20 || tag.toString('latin1', 0, 4) !== 'XYZ ') {
    return undefined;
  }
  return [readFixed(tag, 8), readFixed(tag, 12), readFixed(tag, 16)];
}

function srgbToLinear(value: number): number {
  return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
}

function isSrgbCurve(tag: Buffer | undefined): boolean {
  const curve = tag && readCurve(tag);
  if (curve === undefined) return false;
  for (let i = 0; i < 256; i++) {
    if (!(Math.abs(curve(i / 255) - srgbToLinear(i / 255)) <= CURVE_TOLERANCE)) return false;
  }
  return true;
}

function readCurve(tag: Buffer): ((value: number) => number) | undefined {
  if (tag.length < 12) return undefined;
  const type = tag.toString('latin1', 0, 4);
  if (type === 'curv') return readSampledCurve(tag);
  return type === 'para' ? readParametricCurve(tag) : undefined;
}

/** Tables only: a single gamma, or none, is not sRGB's curve. */
function readSampledCurve(tag: Buffer): ((value: number) => number) | undefined {
  const points = tag.readUInt32BE(8);
  if (points < 2 || points > CURVE_POINTS_MAX || tag.length < 12 + 2 * points) return undefined;
  return value => {
    const place = value * (points - 1);
    const below = Math.min(points - 2, Math.floor(place));
    const low = tag.readUInt16BE(12 + 2 * below);
    const high = tag.readUInt16BE(14 + 2 * below);
    return (low + (high - low) * (place - below)) / 65535;
  };
}

/** Types 3 and 4, which have sRGB's linear piece: X < d: cX (+ f), else (aX + b)^g (+ e). */
function readParametricCurve(tag: Buffer): ((value: number) => number) | undefined {
  const type = tag.readUInt16BE(8);
  const parameters = type === 3 ? 5 : type === 4 ? 7 : 0;
  if (parameters === 0 || tag.length < 12 + 4 * parameters) return undefined;
  const at = (i: number) => readFixed(tag, 12 + 4 * i);
  const [g, a, b, c, d] = [at(0), at(1), at(2), at(3), at(4)];
  const [e, f] = type === 4 ? [at(5), at(6)] : [0, 0];
  return value => (value < d ? c * value + f : (a * value + b) ** g + e);
}

/*
 * Converts by a profile if sharp cannot: for JPEG XL, samples that were divided by alpha, and grey
 * that is not one channel of 8 bits. LittleCMS does it, inside wasm-vips. An unreadable profile is
 * ignored, as in browsers.
 */

export const ICC_FIELD = 'icc-profile-data';
export const STRIP_ROWS = 128;

/** Converts to 8 bits, three colours, and alpha after them where there is one. */
export function toSrgb(image: Vips.Image, scratch: Scratch): Vips.Image {
  const colours = scratch.keep(convertProfile(image, scratch).colourspace('srgb'));
  return scratch.keep(colours.cast('uchar'));
}

/** libjxl gives every picture a profile; most are sRGB. */
function convertProfile(image: Vips.Image, scratch: Scratch): Vips.Image {
  if (image.getTypeof(ICC_FIELD) === 0 || isSrgbProfile(image.getBlob(ICC_FIELD))) return image;
  const depth = image.format === 'uchar' ? 8 : 16;
  const options = { embedded: true, depth, intent: 'perceptual' } as const;
  try {
    return scratch.keep(image.iccTransform('srgb', options));
  } catch (error) {
    if (isTrap(error)) throw error;
    return image;
  }
}

/**
 * RGBA in a profile's colours to pixels in sRGB; samples of 8 bits may be converted in place. A
 * profile of neither RGB nor grey is ignored.
 */
export async function convertByProfile(
  samples: Samples,
  width: number,
  profile: Uint8Array | undefined,
): Promise<Uint32Array> {
  if (profile === undefined || isSrgbProfile(profile)) return viewAsPixels(bytesOfSamples(samples));
  if (isGreyProfile(profile)) return await convertGrey(samples, profile);
  if (isRgbProfile(profile)) return await convertRgba(samples, width, profile);
  return viewAsPixels(bytesOfSamples(samples));
}

/** Converts RGBA in a profile's colours to pixels in sRGB; samples of 8 bits in place. */
export async function convertRgba(
  samples: Samples,
  width: number,
  profile: Uint8Array,
): Promise<Uint32Array> {
  const vips = await requireVips();
  const { uchar, ushort } = vips.BandFormat;
  const isDeep = samples instanceof Uint16Array;
  const result = isDeep ? new Uint8Array(samples.length) : samples;
  const stripLength = STRIP_ROWS * width * 4;
  for (let at = 0; at < samples.length; at += stripLength) {
    const strip = samples.subarray(at, at + stripLength);
    const rows = strip.length / (width * 4);
    const scratch = new Scratch();
    try {
      attempt(() => {
        const format = isDeep ? ushort : uchar;
        const raw = scratch.keep(vips.Image.newFromMemory(strip, width, rows, 4, format));
        const image = scratch.keep(raw.copy({ interpretation: isDeep ? 'rgb16' : 'srgb' }));
        image.setBlob(ICC_FIELD, profile);
        result.set(toSrgb(image, scratch).writeToMemory() as Uint8Array, at);
      });
    } finally {
      scratch.free();
    }
  }
  return viewAsPixels(result);
}

/**
 * Converts samples of 8 bits in place. If pixels are not grey, the profile is ignored, as in
 * browsers.
 */
export async function convertGrey(samples: Samples, profile: Uint8Array): Promise<Uint32Array> {
  if (!isGrey(samples)) return viewAsPixels(bytesOfSamples(samples));
  const sampleMax = sampleMaxOf(samples);
  const table = await tabulateGrey(profile, sampleMax);
  const result = samples instanceof Uint16Array ? new Uint8Array(samples.length) : samples;
  // Samples are whole pixels, and the table has three entries for each value of a sample.
  for (let at = 0; at < samples.length; at += 4) {
    const from = 3 * samples[at]!;
    result[at] = table[from]!;
    result[at + 1] = table[from + 1]!;
    result[at + 2] = table[from + 2]!;
    result[at + 3] = (samples[at + 3]! * 255) / sampleMax + 0.5;
  }
  return viewAsPixels(result);
}

/** Within one level of 255: lossy codecs may be that far off. */
function isGrey(samples: Samples): boolean {
  const levelMax = sampleMaxOf(samples) / 255;
  for (let at = 0; at < samples.length; at += 4) {
    const green = samples[at + 1]!;
    if (Math.abs(samples[at]! - green) > levelMax) return false;
    if (Math.abs(samples[at + 2]! - green) > levelMax) return false;
  }
  return true;
}

/** Red, green and blue for each value of a sample. */
async function tabulateGrey(profile: Uint8Array, sampleMax: number): Promise<Uint8Array> {
  const vips = await requireVips();
  const isDeep = sampleMax > 255;
  const { uchar, ushort } = vips.BandFormat;
  const ramp = new (isDeep ? Uint16Array : Uint8Array)(sampleMax + 1);
  for (let value = 0; value <= sampleMax; value++) ramp[value] = value;
  const scratch = new Scratch();
  try {
    return attempt(() => {
      const format = isDeep ? ushort : uchar;
      const raw = scratch.keep(vips.Image.newFromMemory(ramp, 256, ramp.length / 256, 1, format));
      const image = scratch.keep(raw.copy({ interpretation: isDeep ? 'grey16' : 'b-w' }));
      image.setBlob(ICC_FIELD, profile);
      return Uint8Array.from(toSrgb(image, scratch).writeToMemory() as Uint8Array);
    });
  } finally {
    scratch.free();
  }
}
