/** A whole file of every input format and of every form in which it comes. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import type { InputFormat } from '@matting/proto/contract/formats.ts';
import { box, u16, u32 } from '@matting/proto/contract/test/image-header-samples.ts';
import sharp from 'sharp';
import {
  createPngChunk,
  insertPngChunks,
  paint,
  writeJpegWithRestarts,
  writeJxl,
} from '../../pictures.ts';
import { writeGrid } from '../codecs/avif-grids.ts';
import { cutTiles, encode, encodeFile, hasHeifEnc, writeHeic } from '../codecs/heic-files.ts';
import { codestreamOf } from '../codecs/jxl-files.ts';

const WIDTH = 120;
const HEIGHT = 96;
const CJXL = '/usr/bin/cjxl';

export interface Form {
  readonly name: string;
  readonly format: InputFormat;
  readonly file: Buffer;
}

/** The picture has slopes with a busy part, as photos have them; alpha has both as well. */
const PICTURE = paint(WIDTH, HEIGHT, 4, (x, y) => {
  const noise = (Math.imul(x * 31 + y * 17 + 7, 0x9e3779b1) >>> 24) & (x > 60 ? 63 : 7);
  const clear = x < 20 ? 0 : y > 70 ? 255 : 60 + x + (noise >> 2);
  return [x + 40 + noise, 2 * y + (noise >> 1), 200 - x + (noise >> 2), Math.min(255, clear)];
});

const rgba = () => sharp(PICTURE.data, { raw: { width: WIDTH, height: HEIGHT, channels: 4 } });
const rgb = () => rgba().removeAlpha();
const grey = () => rgb().toColourspace('b-w');
const rawRgb = async () => ({
  data: await rgb().raw().toBuffer(),
  width: WIDTH,
  height: HEIGHT,
  channels: 3 as const,
});

async function jpegForms(): Promise<Record<string, Buffer>> {
  return {
    '4:2:0': await rgb().jpeg().toBuffer(),
    '4:4:4': await rgb().jpeg({ quality: 90, chromaSubsampling: '4:4:4' }).toBuffer(),
    progressive: await rgb().jpeg({ progressive: true }).toBuffer(),
    restarts: await writeJpegWithRestarts(PICTURE),
    grey: await grey().jpeg().toBuffer(),
    cmyk: await rgb().toColourspace('cmyk').jpeg().toBuffer(),
    profile: await rgb().withIccProfile('p3').jpeg().toBuffer(),
    turned: await rgb().withMetadata({ orientation: 6 }).jpeg().toBuffer(),
  };
}

/** The frame control of one frame that is the whole picture, in front of its data. */
export function pngOfOneFrame(png: Buffer, width: number, height: number): Buffer {
  const frame = Buffer.concat([u32(0, width, height, 0, 0), u16(1, 10), Buffer.alloc(2)]);
  const chunks = [createPngChunk('acTL', u32(1, 0)), createPngChunk('fcTL', frame)];
  return insertPngChunks(png, ...chunks);
}

const KEYED_COLOUR = [...PICTURE.data.subarray(0, 3)];

async function pngForms(): Promise<Record<string, Buffer>> {
  const plain = await rgb().png().toBuffer();
  return {
    plain,
    alpha: await rgba().png().toBuffer(),
    interlaced: await rgba().png({ progressive: true }).toBuffer(),
    '16 bits': await rgb().toColourspace('rgb16').png().toBuffer(),
    palette: await rgb().png({ palette: true, colours: 32 }).toBuffer(),
    grey: await grey().png().toBuffer(),
    profile: await rgb().withIccProfile('p3').png().toBuffer(),
    'keyed colour': insertPngChunks(plain, createPngChunk('tRNS', u16(...KEYED_COLOUR))),
    cicp: insertPngChunks(plain, createPngChunk('cICP', Buffer.from([9, 16, 0, 1]))),
    'one frame': pngOfOneFrame(plain, WIDTH, HEIGHT),
  };
}

export function riff(type: string, body: Buffer): Buffer {
  const head = Buffer.alloc(8);
  head.write(type, 'latin1');
  head.writeUInt32LE(body.length, 4);
  return Buffer.concat([head, body, Buffer.alloc(body.length & 1)]);
}

function u24(value: number): Buffer {
  return Buffer.from([value & 255, (value >>> 8) & 255, value >>> 16]);
}

export function webpOfOneFrame(webp: Buffer, width: number, height: number): Buffer {
  const isExtended = webp.toString('latin1', 12, 16) === 'VP8X';
  const chunks = webp.subarray(isExtended ? 30 : 12);
  const size = [u24(width - 1), u24(height - 1)];
  const frame = Buffer.concat([u24(0), u24(0), ...size, u24(100), Buffer.from([2]), chunks]);
  const extended = Buffer.concat([Buffer.from([0x12, 0, 0, 0]), ...size]);
  const body = Buffer.concat([
    Buffer.from('WEBP', 'latin1'),
    riff('VP8X', extended),
    riff('ANIM', Buffer.alloc(6)),
    riff('ANMF', frame),
  ]);
  return riff('RIFF', body);
}

async function webpForms(): Promise<Record<string, Buffer>> {
  const lossless = await rgba().webp({ lossless: true }).toBuffer();
  const lossyAlpha = await rgba().webp({ alphaQuality: 40 }).toBuffer();
  return {
    lossy: await rgb().webp().toBuffer(),
    'lossy, lossless alpha': await rgba().webp({ quality: 90, alphaQuality: 100 }).toBuffer(),
    'lossy, lossy alpha': lossyAlpha,
    lossless,
    profile: await rgb().withIccProfile('p3').webp().toBuffer(),
    turned: await rgb().withMetadata({ orientation: 6 }).webp({ lossless: true }).toBuffer(),
    'one frame': webpOfOneFrame(lossless, WIDTH, HEIGHT),
    'one frame, lossy': webpOfOneFrame(lossyAlpha, WIDTH, HEIGHT),
  };
}

async function avifForms(): Promise<Record<string, Buffer>> {
  const fine = { effort: 0, chromaSubsampling: '4:4:4' } as const;
  const tiled = { columns: 2, rows: 2, tilePx: 64 } as const;
  const profile = (await sharp(await rgb().withIccProfile('p3').png().toBuffer()).metadata()).icc;
  const pixels = await rawRgb();
  return {
    '4:2:0': await rgb().avif({ effort: 0 }).toBuffer(),
    alpha: await rgba().avif(fine).toBuffer(),
    '10 bits': await rgb()
      .avif({ ...fine, bitdepth: 10 })
      .toBuffer(),
    grey: await grey().avif({ effort: 0 }).toBuffer(),
    profile: await rgb().withIccProfile('p3').avif({ effort: 0 }).toBuffer(),
    grid: (await writeGrid(pixels, tiled)).file,
    'grid, alpha, in idat': (await writeGrid(PICTURE, { ...tiled, isInIdat: true })).file,
    'grid, 4:2:0, profile': (await writeGrid(pixels, { ...tiled, chroma: '4:2:0', profile })).file,
  };
}

const JXL_SIGNATURE = Buffer.from('0000000c4a584c200d0a870a', 'hex');
const JXL_FTYP = box('ftyp', Buffer.from('jxl \0\0\0\0jxl ', 'latin1'));

function jxlInBoxes(codestream: Buffer, cuts: readonly number[]): Buffer {
  const ends = [...cuts, codestream.length];
  const boxes = ends.map((end, i) => {
    const isLast = i === ends.length - 1;
    const number = u32(isLast ? (i | 0x80000000) >>> 0 : i);
    return box('jxlp', number, codestream.subarray(i === 0 ? 0 : ends[i - 1], end));
  });
  const content = cuts.length === 0 ? [box('jxlc', codestream)] : boxes;
  const exif = box('Exif', u32(0), Buffer.from('MM\0*\0\0\0\x08\0\0\0\0\0\0', 'latin1'));
  return Buffer.concat([JXL_SIGNATURE, JXL_FTYP, ...content, exif]);
}

/** Makes the forms that wasm-vips does not write; there are none without libjxl's own program. */
async function cjxlForms(): Promise<Record<string, Buffer>> {
  if (!existsSync(CJXL)) return {};
  const folder = await mkdtemp(path.join(tmpdir(), 'matting-forms-'));
  const [input, output] = [path.join(folder, 'in.png'), path.join(folder, 'out.jxl')];
  const run = async (source: Buffer, ...options: string[]) => {
    await writeFile(input, source);
    await promisify(execFile)(CJXL, [input, output, '--quiet', ...options]);
    return await readFile(output);
  };
  try {
    return {
      progressive: await run(await rgb().png().toBuffer(), '-p', '-d', '1'),
      profile: await run(await rgb().withIccProfile('p3').png().toBuffer(), '-d', '0'),
    };
  } finally {
    await rm(folder, { recursive: true });
  }
}

async function jxlForms(): Promise<Record<string, Buffer>> {
  const lossy = codestreamOf(await writeJxl(await rawRgb(), { distance: 1 }));
  const lossless = codestreamOf(await writeJxl(await rawRgb()));
  return {
    lossy,
    lossless,
    alpha: await writeJxl(PICTURE, { distance: 1 }),
    '16 bits': await writeJxl(await rawRgb(), { sixteenBit: true }),
    boxed: jxlInBoxes(lossy, []),
    'boxed in parts': jxlInBoxes(lossless, [5, 40, lossless.length >> 1]),
    ...(await cjxlForms()),
  };
}

/**
 * Makes no form without heif-enc. The grid's files have a gain map and a thumbnail, which are no
 * part of the picture.
 */
async function heicForms(): Promise<Record<string, Buffer>> {
  if (!hasHeifEnc) return {};
  const pixels = await rawRgb();
  const tiles = await encode(await cutTiles(pixels, 64), { chroma: '420', quality: 70 });
  return {
    '4:2:0': await encodeFile([pixels], { chroma: '420', quality: 70 }),
    '4:4:4, 10 bits': await encodeFile([pixels], { bits: 10 }),
    alpha: await encodeFile([PICTURE]),
    grid: writeHeic({ width: WIDTH, height: HEIGHT, columns: 2, tiles }).file,
  };
}

export async function createForms({ hasHeic }: { readonly hasHeic: boolean }): Promise<Form[]> {
  const byFormat = {
    jpeg: await jpegForms(),
    png: await pngForms(),
    webp: await webpForms(),
    avif: await avifForms(),
    jxl: await jxlForms(),
    heic: hasHeic ? await heicForms() : {},
  };
  return Object.entries(byFormat).flatMap(([format, forms]) =>
    Object.entries(forms).map(([name, file]) => ({
      name: `${format} ${name}`,
      format: format as InputFormat,
      file,
    })),
  );
}
