/** Whole small files of every input format and of its forms: what the mutants are made from. */
import { deflateSync } from 'node:zlib';
import { asSharp, createPng, createPngChunk, paint } from '../../pictures.ts';
import { nclx, profileColour, writeAvifFields } from '../codecs/avif-files.ts';
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

export async function createSeedFiles(): Promise<SeedFile[]> {
  const others = Object.entries(await otherwiseColoured());
  return [...(await createForms()), ...others.map(([name, file]) => ({ name, file }))];
}
