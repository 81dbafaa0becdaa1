/**
 * Does to photos with reference mattes what customers' pictures have been through: they are more
 * photos to judge by, on which no constant was chosen. The same photo gives the same variant.
 */
import sharp, { type Sharp } from 'sharp';
import { estimateForeground } from '../../inference-node/serving/picture/matte/foreground.ts';
import type { RgbaPicture } from '../../inference-node/serving/picture/rgba-picture.ts';
import { at } from '../../test/support/at.ts';
import type { Photo } from './photos.ts';

/** Bytes interleaved, or a plane with one channel. */
interface Raster {
  readonly data: Uint8Array;
  readonly width: number;
  readonly height: number;
  readonly channels: 1 | 3;
}

/** A photo taken apart: what is seen, its matte and the subject's true colours where known. */
interface Parts {
  readonly seen: Raster;
  readonly alpha: Raster;
  readonly subject: Raster | undefined;
}

type Make = (parts: Parts, ground: Raster) => Parts | Promise<Parts>;

const JPEG_QUALITY = 60;
const NOISE_SIGMA = 10;
const BLUR_SIGMA = 1.5;
const DARKER = 0.4;
const SMALLER = 0.5;
/** Parts of the subject's box that are cut off, so that its body meets the border. */
const CUT_BELOW = 0.35;
const CUT_RIGHT = 0.2;
/** Light of the new ground on the subject: its most, at the edge, and how far it reaches in. */
const SPILL = 0.25;
const SPILL_REACH = 1 / 40;
/** Another photo, so far out of focus that its subject is no subject any more. */
const GROUND_BLUR = 1 / 24;

const MAKES: Readonly<Record<string, Make>> = {
  asTaken: parts => parts,
  jpeg: async parts => ({ ...parts, seen: await throughJpeg(parts.seen) }),
  noise: parts => ({ ...parts, seen: withNoise(parts.seen) }),
  blur: async ({ seen, alpha }) => ({
    seen: await blurred(seen, BLUR_SIGMA),
    alpha: await blurred(alpha, BLUR_SIGMA),
    subject: undefined,
  }),
  darker: ({ seen, alpha, subject }) => ({
    seen: darker(seen),
    alpha,
    subject: subject && darker(subject),
  }),
  smaller: async ({ seen, alpha, subject }) => ({
    seen: await smaller(seen),
    alpha: await smaller(alpha),
    subject: subject && (await smaller(subject)),
  }),
  cut: parts => cut(parts),
  ground: (parts, ground) => onGround(parts, ground),
};

export const VARIANT_NAMES = Object.keys(MAKES);

/** @param other another photo, whose colours become the ground where the variant has a new one. */
export async function makeVariant(name: string, photo: Photo, other: Photo): Promise<Photo> {
  const make = MAKES[name];
  if (make === undefined) throw new Error(`no variant ${name}: ${VARIANT_NAMES.join(', ')}`);
  if (name === 'asTaken') return { ...photo, name: `${name}/${photo.name}` };
  const made = await make(takeApart(photo), await groundOf(other.picture, photo.picture));
  return {
    name: `${name}/${photo.name}`,
    picture: toPicture(made.seen),
    alpha: made.alpha.data,
    foreground: made.subject?.data,
  };
}

function takeApart({ picture, alpha, foreground }: Photo): Parts {
  const { width, height } = picture;
  const subject =
    foreground === undefined ? undefined : raster({ data: foreground, width, height, channels: 3 });
  return {
    seen: coloursOf(picture),
    alpha: raster({ data: alpha, width, height, channels: 1 }),
    subject,
  };
}

const raster = (of: Raster): Raster => of;

function coloursOf({ rgba, width, height }: RgbaPicture): Raster {
  const data = new Uint8Array(3 * rgba.length);
  for (let i = 0; i < data.length; i++) {
    data[i] = (at(rgba, Math.floor(i / 3)) >>> (8 * (i % 3))) & 255;
  }
  return { data, width, height, channels: 3 };
}

function toPicture({ data, width, height }: Raster): RgbaPicture {
  const rgba = new Uint32Array(width * height);
  for (let i = 0; i < rgba.length; i++) {
    const colour = at(data, 3 * i) | (at(data, 3 * i + 1) << 8) | (at(data, 3 * i + 2) << 16);
    rgba[i] = (colour | (255 << 24)) >>> 0;
  }
  return { rgba, width, height, translucent: false };
}

const open = ({ data, width, height, channels }: Raster) =>
  sharp(data, { raw: { width, height, channels } });

async function read(image: Sharp, channels: 1 | 3): Promise<Raster> {
  const plane = channels === 1 ? image.extractChannel(0) : image;
  const { data, info } = await plane.raw().toBuffer({ resolveWithObject: true });
  return { data, width: info.width, height: info.height, channels };
}

async function throughJpeg(seen: Raster): Promise<Raster> {
  const file = await open(seen).jpeg({ quality: JPEG_QUALITY }).toBuffer();
  return read(sharp(file), 3);
}

/** Twice the sum of three uniform numbers has nearly a normal distribution, of variance 1. */
function withNoise(seen: Raster): Raster {
  let state = 1;
  const uniform = () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32 - 0.5;
  };
  const normal = () => 2 * (uniform() + uniform() + uniform());
  const data = seen.data.map(value => clampByte(value + NOISE_SIGMA * normal()));
  return { ...seen, data };
}

function clampByte(value: number): number {
  return Math.max(0, Math.min(255, Math.round(value)));
}

async function blurred(image: Raster, sigma: number): Promise<Raster> {
  return read(open(image).blur(sigma), image.channels);
}

function darker(image: Raster): Raster {
  return { ...image, data: image.data.map(value => Math.round(value * DARKER)) };
}

async function smaller(image: Raster): Promise<Raster> {
  const side = (length: number) => Math.max(1, Math.round(length * SMALLER));
  const options = { fit: 'fill', kernel: 'linear' } as const;
  const small = open(image).resize(side(image.width), side(image.height), options);
  return read(small, image.channels);
}

async function cut({ seen, alpha, subject }: Parts): Promise<Parts> {
  const { left, top, right, bottom } = boxOf(alpha);
  const width = Math.round(right - CUT_RIGHT * (right - left)) + 1;
  const height = Math.round(bottom - CUT_BELOW * (bottom - top)) + 1;
  const crop = (image: Raster) =>
    read(open(image).extract({ left: 0, top: 0, width, height }), image.channels);
  return {
    seen: await crop(seen),
    alpha: await crop(alpha),
    subject: subject && (await crop(subject)),
  };
}

function boxOf({ data, width, height }: Raster) {
  const box = { left: width - 1, top: height - 1, right: 0, bottom: 0 };
  for (let i = 0; i < data.length; i++) {
    if (at(data, i) < 128) continue;
    const x = i % width;
    const y = Math.floor(i / width);
    box.left = Math.min(box.left, x);
    box.right = Math.max(box.right, x);
    box.top = Math.min(box.top, y);
    box.bottom = Math.max(box.bottom, y);
  }
  return box;
}

async function groundOf(other: RgbaPicture, { width, height }: RgbaPicture): Promise<Raster> {
  const sigma = Math.max(1, Math.max(width, height) * GROUND_BLUR);
  const image = open(coloursOf(other)).resize(width, height, { fit: 'cover' });
  return read(sharp(await image.png().toBuffer()).blur(sigma), 3);
}

/** The colours of a subject whose own are not known are estimated with its reference matte. */
async function onGround({ seen, alpha, subject }: Parts, ground: Raster): Promise<Parts> {
  const own = subject ?? estimated(seen, alpha);
  const reach = Math.max(1, Math.max(seen.width, seen.height) * SPILL_REACH);
  const near = await blurred(alpha, reach);
  const lit = own.data.map((value, i) => {
    const spill = SPILL * (1 - at(near.data, Math.floor(i / 3)) / 255);
    return Math.round(value + spill * (at(ground.data, i) - value));
  });
  const data = lit.map((value, i) => {
    const share = at(alpha.data, Math.floor(i / 3)) / 255;
    return Math.round(share * value + (1 - share) * at(ground.data, i));
  });
  return {
    seen: { ...seen, data },
    alpha,
    subject: subject === undefined ? undefined : { ...own, data: lit },
  };
}

function estimated(seen: Raster, alpha: Raster): Raster {
  const picture = toPicture(seen);
  estimateForeground(picture, alpha.data);
  return coloursOf(picture);
}
