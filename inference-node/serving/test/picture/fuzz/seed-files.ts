import { deflateSync } from 'node:zlib';
import { asSharp, createPng, createPngChunk, paint } from '../../pictures.ts';
import { nclx, profileColour, writeAvifFields } from '../codecs/avif-files.ts';
import { clap, encode, irot, nclxBox, writeHeic } from '../codecs/heic-files.ts';
import { writeJxlFields } from '../codecs/jxl-files.ts';
import { createGreyProfile, LINEAR_CURVE } from '../codecs/reference-colours.ts';
import { createForms } from '../damage/forms.ts';

const WIDTH = 48;
const HEIGHT = 36;

export interface SeedFile {
  readonly name: string;
  readonly file: Buffer;
}

const PICTURE = paint(WIDTH, HEIGHT, 4, (x, y) => [
  (x * 5 + ((x * y) % 7)) & 255,
  (y * 7) & 255,
  (x ^ y) & 255,
  (x * 5) & 255,
]);
const GREY = paint(WIDTH, HEIGHT, 1, (x, y) => [(x * 5 + ((x * y) % 7)) & 255]);

/** Colours multiplied by alpha, grey with a profile, and metadata. */
async function otherwiseColoured(): Promise<Record<string, Buffer>> {
  const size = { width: WIDTH, height: HEIGHT };
  const profile = createGreyProfile(LINEAR_CURVE);
  const multiplied = {
    ...size,
    channels: 4,
    samples: PICTURE.data,
    premultiplied: true,
  } as const;
  const grey = { ...size, channels: 1, samples: GREY.data, premultiplied: false } as const;
  const iccp = createPngChunk('iCCP', Buffer.concat([Buffer.from('p\0\0'), deflateSync(profile)]));
  const row = Array(2 * WIDTH).fill(0x5a);
  return {
    'avif multiplied': await writeAvifFields({ ...multiplied, bits: 8, colour: nclx(1, 13) }),
    'avif grey profile': await writeAvifFields({
      ...grey,
      bits: 8,
      colour: profileColour(profile),
    }),
    'jxl multiplied': await writeJxlFields({
      ...multiplied,
      colours: { primaries: 11, transfer: 13 },
    }),
    'webp alpha with Exif': await asSharp(PICTURE)
      .webp({ alphaQuality: 50 })
      .withExif({ IFD0: { Copyright: 'someone' } })
      .toBuffer(),
    'png grey profile': createPng({ ...size, colourType: 0, depth: 16, row, chunks: [iccp] }),
  };
}

/** heif-enc fills up smaller ones. */
const TILE_PX = 64;

async function heicForms(): Promise<Record<string, Buffer>> {
  const size = { width: TILE_PX, height: TILE_PX };
  const tile = paint(TILE_PX, TILE_PX, 3, (x, y) => [x * 3, y * 3, (x ^ y) & 255]);
  const grey = paint(TILE_PX, TILE_PX, 3, (x, y) => Array(3).fill(x + y));
  const [colours, alpha] = await encode([tile, grey]);
  const [deep] = await encode([tile], { bits: 10 });
  if (colours === undefined || deep === undefined) throw new Error('heif-enc wrote no picture');
  const grid = { width: 2 * TILE_PX - 9, height: TILE_PX - 5, tiles: [deep, deep], columns: 2 };
  const turned = { transforms: [clap(60, 40, 2, 0), irot(3)], exif: 6 };
  return {
    heic: writeHeic({ ...size, tiles: [colours] }).file,
    'heic with alpha, cropped and turned': writeHeic({
      ...{ ...size, ...turned, tiles: [colours], alpha },
      premultiplied: true,
    }).file,
    'heic grid in P3': writeHeic({ ...grid, toneMapped: true, colours: [nclxBox(12, 13)] }).file,
  };
}

export async function createSeedFiles(withHeic: boolean): Promise<SeedFile[]> {
  const heic = withHeic ? await heicForms() : {};
  const others = Object.entries({ ...(await otherwiseColoured()), ...heic });
  return [
    ...(await createForms({ hasHeic: false })),
    ...others.map(([name, file]) => ({ name, file })),
  ];
}
