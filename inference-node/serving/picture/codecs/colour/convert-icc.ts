/**
 * Converts by a profile if sharp cannot: JPEG XL, samples divided by alpha, and grey that is not
 * one channel of 8 bits. It ignores an unreadable profile, as browsers do.
 */
import type Vips from 'wasm-vips';
import { viewAsPixels } from '../../rgba-picture.ts';
import { attempt, isTrap, requireVips, Scratch } from '../wasm-vips.ts';
import { isSrgbProfile, type PixelSpace, spaceOfProfile } from './icc-profile.ts';
import { bytesOfSamples, type Samples, sampleMaxOf } from './samples.ts';

export const ICC_FIELD = 'icc-profile-data';
export const STRIP_ROWS = 128;

/** Keys are libvips' interpretations. */
export const PIXEL_SPACES: Readonly<Record<string, PixelSpace | undefined>> = {
  srgb: 'rgb',
  rgb16: 'rgb',
  'b-w': 'grey',
  grey16: 'grey',
  cmyk: 'cmyk',
};

/** libvips (8.18) takes 32-bit samples for linear light, or for 0 to 255, whatever the profile. */
export function toWhole(image: Vips.Image, scratch: Scratch): Vips.Image {
  if (image.format !== 'float') return image;
  const scaled = scratch.keep(image.linear(65_535, 0.5));
  const interpretation = image.interpretation === 'b-w' ? 'grey16' : 'rgb16';
  return scratch.keep(scratch.keep(scaled.cast('ushort')).copy({ interpretation }));
}

/** 8 bits, three colours, and alpha if the image has it. */
export function toSrgb(image: Vips.Image, scratch: Scratch): Vips.Image {
  const colours = scratch.keep(convertProfile(image, scratch).colourspace('srgb'));
  return scratch.keep(colours.cast('uchar'));
}

/** Skips sRGB profiles: libjxl gives every picture a profile. */
function convertProfile(image: Vips.Image, scratch: Scratch): Vips.Image {
  if (image.getTypeof(ICC_FIELD) === 0) return image;
  const profile = image.getBlob(ICC_FIELD);
  const isFor = spaceOfProfile(profile);
  if (isFor !== PIXEL_SPACES[image.interpretation] || isSrgbProfile(profile)) return image;
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
 * @param samples RGBA; 8-bit samples may be converted in place. A profile of neither RGB nor grey
 * is ignored
 */
export async function convertByProfile(
  samples: Samples,
  width: number,
  profile: Uint8Array | undefined,
): Promise<Uint32Array> {
  if (profile === undefined || isSrgbProfile(profile)) return viewAsPixels(bytesOfSamples(samples));
  const space = spaceOfProfile(profile);
  if (space === 'grey') return await convertGrey(samples, profile);
  if (space === 'rgb') return await convertRgba(samples, width, profile);
  return viewAsPixels(bytesOfSamples(samples));
}

/** Converts 8-bit samples in place. */
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
    using scratch = new Scratch();
    attempt(() => {
      const format = isDeep ? ushort : uchar;
      const raw = scratch.keep(vips.Image.newFromMemory(strip, width, rows, 4, format));
      const image = scratch.keep(raw.copy({ interpretation: isDeep ? 'rgb16' : 'srgb' }));
      image.setBlob(ICC_FIELD, profile);
      result.set(toSrgb(image, scratch).writeToMemory() as Uint8Array, at);
    });
  }
  return viewAsPixels(result);
}

/** Converts 8-bit samples in place. Ignores the profile if pixels are not grey, as browsers do. */
export async function convertGrey(samples: Samples, profile: Uint8Array): Promise<Uint32Array> {
  if (!isGrey(samples)) return viewAsPixels(bytesOfSamples(samples));
  const sampleMax = sampleMaxOf(samples);
  const table = await tabulateGrey(profile, sampleMax);
  const result = samples instanceof Uint16Array ? new Uint8Array(samples.length) : samples;
  for (let at = 0; at < samples.length; at += 4) {
    const from = 3 * samples[at]!;
    result[at] = table[from]!;
    result[at + 1] = table[from + 1]!;
    result[at + 2] = table[from + 2]!;
    result[at + 3] = (samples[at + 3]! * 255) / sampleMax + 0.5;
  }
  return viewAsPixels(result);
}

/** Lossy codecs may be one level of 255 off. */
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
  using scratch = new Scratch();
  return attempt(() => {
    const format = isDeep ? ushort : uchar;
    const raw = scratch.keep(vips.Image.newFromMemory(ramp, 256, ramp.length / 256, 1, format));
    const image = scratch.keep(raw.copy({ interpretation: isDeep ? 'grey16' : 'b-w' }));
    image.setBlob(ICC_FIELD, profile);
    return Uint8Array.from(toSrgb(image, scratch).writeToMemory() as Uint8Array);
  });
}
