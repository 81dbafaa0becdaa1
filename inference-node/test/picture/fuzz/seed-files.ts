/** Valid small files of every input format and of its kinds: what the mutants are made from. */

import { deflateSync } from 'node:zlib';
import { at } from '../../../../test/support/at.ts';
import { readCodedItems, writeAvif } from '../../../src/picture/codecs/files/avif-file.ts';
import { nclx, profileColour, writeAvifFields } from '../codecs/avif-files.ts';
import { writeJxlFields } from '../codecs/jxl-files.ts';
import { createGreyProfile, LINEAR_CURVE } from '../codecs/reference-colours.ts';
import {
  asSharp,
  createPng,
  createPngChunk,
  insertPngChunks,
  type Pixels,
  paint,
  writeJxl,
} from '../pictures.ts';

const WIDTH = 48;
const HEIGHT = 36;

export interface SeedFile {
  readonly name: string;
  readonly file: Buffer;
}

function picture(channels: Pixels['channels']): Pixels {
  return paint(WIDTH, HEIGHT, channels, (x, y) =>
    [(x * 5 + ((x * y) % 7)) & 255, (y * 7) & 255, (x ^ y) & 255, (x * 5) & 255].slice(0, channels),
  );
}

async function avifGrid(): Promise<Buffer> {
  const strip = paint(64, 64, 4, (x, y) => [x * 4, y * 4, 99, (x + y) * 2]);
  const coded = await asSharp(strip).avif({ effort: 0, chromaSubsampling: '4:4:4' }).toBuffer();
  const items = readCodedItems(coded);
  const own = { colours: at(items, 0), alpha: at(items, 1) };
  return writeAvif({ width: 64, height: 100, strips: [own, own], stripHeight: 64 });
}

/** Colours multiplied by alpha, and grey with a profile. */
async function otherwiseColoured(): Promise<Record<string, Buffer>> {
  const size = { width: WIDTH, height: HEIGHT };
  const profile = createGreyProfile(LINEAR_CURVE);
  const multiplied = {
    ...size,
    channels: 4,
    samples: picture(4).data,
    premultiplied: true,
  } as const;
  const grey = { ...size, channels: 1, samples: picture(1).data, premultiplied: false } as const;
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
    'png grey profile': createPng({ ...size, colourType: 0, depth: 16, row, chunks: [iccp] }),
  };
}

export async function createSeedFiles(): Promise<SeedFile[]> {
  const rgb = () => asSharp(picture(3));
  const rgba = () => asSharp(picture(4));
  const grey = () => asSharp(picture(1)).toColourspace('b-w');
  const exif = { IFD0: { Copyright: 'someone' } };
  const cicp = createPngChunk('cICP', Buffer.from([9, 16, 0, 1]));
  const palette = createPngChunk('PLTE', Buffer.from([10, 20, 30, 200, 100, 50]));
  const files: Record<string, Buffer> = {
    jpeg: await rgb().jpeg({ quality: 80 }).toBuffer(),
    'jpeg progressive': await rgb().jpeg({ progressive: true }).withExif(exif).toBuffer(),
    'jpeg grey': await grey().jpeg().toBuffer(),
    'jpeg cmyk': await rgb().toColourspace('cmyk').jpeg().toBuffer(),
    'jpeg turned': await rgb().withMetadata({ orientation: 6 }).jpeg().toBuffer(),
    'jpeg p3': await rgb().withIccProfile('p3').jpeg().toBuffer(),
    png: await rgb().png().toBuffer(),
    'png alpha interlaced': await rgba().png({ progressive: true }).toBuffer(),
    'png palette': createPng({
      width: WIDTH,
      height: HEIGHT,
      colourType: 3,
      depth: 1,
      row: Array(WIDTH / 8).fill(0x5a),
      chunks: [palette],
    }),
    'png 16': await rgb().toColourspace('rgb16').png().toBuffer(),
    'png pq': insertPngChunks(await rgb().png().toBuffer(), cicp),
    'png p3': await rgb().withIccProfile('p3').png().toBuffer(),
    webp: await rgb().webp().toBuffer(),
    'webp lossless': await rgba().webp({ lossless: true }).toBuffer(),
    'webp alpha': await rgba().webp({ alphaQuality: 50 }).withExif(exif).toBuffer(),
    avif: await rgb().avif({ effort: 0 }).toBuffer(),
    'avif alpha 444': await rgba().avif({ effort: 0, chromaSubsampling: '4:4:4' }).toBuffer(),
    'avif 10 bits': await rgb().avif({ effort: 0, bitdepth: 10 }).toBuffer(),
    'avif grid': await avifGrid(),
    jxl: await writeJxl(picture(3)),
    'jxl alpha': await writeJxl(picture(4)),
    'jxl lossy': await writeJxl(picture(3), { distance: 1 }),
    'jxl grey 16': await writeJxl(picture(1), { sixteenBit: true }),
    ...(await otherwiseColoured()),
  };
  return Object.entries(files).map(([name, file]) => ({ name, file }));
}
