/** Small files made to be expensive by what they claim, unpack to or make a codec do. */
import { deflateSync } from 'node:zlib';
import {
  box,
  heifOf,
  hvcC,
  ispe,
  u16,
  u32,
  writeHeif,
} from '@matting/proto/contract/test/image-header-samples.ts';
import {
  asSharp,
  claimPngSize,
  createPng,
  createPngChunk,
  findJpegMarker,
  insertPngChunks,
  paintSlope,
  writeJxl,
} from '../../pictures.ts';
import type { SeedFile } from './seed-files.ts';

const MIB = 2 ** 20;

/** Every occurrence of a box's content gets `value` at an offset from the name's end. */
function patch(file: Buffer, name: string, at: number, value: Buffer): Buffer {
  const patched = Buffer.from(file);
  for (let found = patched.indexOf(name); found !== -1; found = patched.indexOf(name, found + 4)) {
    value.copy(patched, found + 4 + at);
  }
  return patched;
}

async function pngBombs(): Promise<Record<string, Buffer>> {
  const png = await asSharp(paintSlope(24, 16)).png().toBuffer();
  const zeros = deflateSync(Buffer.alloc(200 * MIB));
  const named = (name: string, ...rest: number[]) =>
    Buffer.concat([Buffer.from(`${name}\0`, 'latin1'), Buffer.from(rest)]);
  const text = createPngChunk('zTXt', Buffer.concat([named('a', 0), zeros]));
  const profile = createPngChunk('iCCP', Buffer.concat([named('a', 0), zeros]));
  const international = Buffer.concat([named('a', 1, 0, 0, 0), zeros]);
  return {
    'png of 65535x65535': claimPngSize(png, 65_535, 65_535),
    'png of 2147483647x1': claimPngSize(png, 2 ** 31 - 1, 1),
    'png that claims 10000x10000': claimPngSize(png, 10_000, 10_000),
    'png of nothing': claimPngSize(png, 0, 0),
    'iCCP of 200 MiB': insertPngChunks(png, profile),
    'zTXt of 200 MiB': insertPngChunks(png, text),
    'fifty zTXt of 200 MiB': insertPngChunks(png, ...Array(50).fill(text)),
    'iTXt of 200 MiB': insertPngChunks(png, createPngChunk('iTXt', international)),
    '100,000 empty chunks': insertPngChunks(
      png,
      ...Array(100_000).fill(createPngChunk('tEXt', named('a'))),
    ),
    '25 megapixels in 25 KB': createPng({
      width: 5_000,
      height: 5_000,
      colourType: 0,
      depth: 1,
      row: Array(625).fill(0),
    }),
  };
}

function claimJpegSize(jpeg: Buffer, marker: number, width: number, height: number): Buffer {
  const claimed = Buffer.from(jpeg);
  const at = findJpegMarker(claimed, marker);
  claimed.writeUInt16BE(height, at + 5);
  claimed.writeUInt16BE(width, at + 7);
  return claimed;
}

async function jpegBombs(): Promise<Record<string, Buffer>> {
  const jpeg = await asSharp(paintSlope(24, 16)).jpeg().toBuffer();
  const progressive = await asSharp(paintSlope(400, 300)).jpeg({ progressive: true }).toBuffer();
  const end = progressive.length - 2;
  const lastScan = progressive.lastIndexOf(Buffer.from([0xff, 0xda]));
  const scans = (count: number) =>
    Buffer.concat([
      progressive.subarray(0, end),
      ...Array(count).fill(progressive.subarray(lastScan, end)),
      progressive.subarray(end),
    ]);
  const segment = Buffer.concat([Buffer.from([0xff, 0xe1]), u16(65_535), Buffer.alloc(65_533)]);
  const start = jpeg.subarray(0, 2);
  return {
    'jpeg of 65535x65535': claimJpegSize(jpeg, 0xc0, 65_535, 65_535),
    'jpeg that claims 10000x10000': claimJpegSize(jpeg, 0xc0, 10_000, 10_000),
    'progressive jpeg that claims 10000x10000': claimJpegSize(progressive, 0xc2, 10_000, 10_000),
    'jpeg of nothing': claimJpegSize(jpeg, 0xc0, 0, 0),
    '20,000 scans': scans(20_000),
    '20,000 scans of a picture that claims 3000x3000': claimJpegSize(
      scans(20_000),
      0xc2,
      3_000,
      3_000,
    ),
    '500 full segments': Buffer.concat([start, ...Array(500).fill(segment), jpeg.subarray(2)]),
    '8 MiB of fill bytes': Buffer.concat([start, Buffer.alloc(8 * MIB, 0xff), jpeg.subarray(2)]),
  };
}

async function avifBombs(): Promise<Record<string, Buffer>> {
  const avif = await asSharp(paintSlope(64, 48)).avif({ effort: 0 }).toBuffer();
  const ftyp = avif.subarray(0, avif.readUInt32BE(0));
  let nested: Buffer = Buffer.alloc(0);
  for (let depth = 0; depth < 3_000; depth++) nested = box('meta', u32(0), nested);
  const tiles = 65_535;
  const infe = box('infe', u32(0x02000000), u16(2), u16(0), Buffer.from('av01\0', 'latin1'));
  const grid = box('infe', u32(0x02000000), u16(1), u16(0), Buffer.from('grid\0', 'latin1'));
  const dimg = box('dimg', u16(1), u16(tiles), Buffer.alloc(2 * tiles, u16(2)));
  const meta = box(
    'meta',
    u32(0),
    box('hdlr', u32(0, 0), Buffer.from('pict', 'latin1'), Buffer.alloc(13)),
    box('pitm', u32(0), u16(1)),
    box('iinf', u32(0), u16(65_535), grid, ...Array(tiles).fill(infe)),
    box('iref', u32(0), dimg),
  );
  const large = (width: number, height: number) => patch(avif, 'ispe', 4, u32(width, height));
  return {
    'avif of 65535x65535': large(65_535, 65_535),
    'avif that claims 10000x10000': large(10_000, 10_000),
    'avif that claims 1x1': large(1, 1),
    'avif of nothing': large(0, 0),
    'billions of locations': patch(avif, 'iloc', 6, u16(65_535)),
    'billions of items': patch(avif, 'iinf', 0, u32(0x01000000, 0xffffffff)),
    'billions of properties': patch(avif, 'ipma', 4, u32(0xffffffff)),
    'a grid of 65,535 tiles': Buffer.concat([ftyp, meta]),
    'boxes 3,000 deep': Buffer.concat([ftyp, nested]),
    '100,000 empty boxes': Buffer.concat([ftyp, ...Array(100_000).fill(box('free'))]),
    'boxes without length': Buffer.concat([ftyp, ...Array(1_000).fill(u32(1, 0x6d657461, 0, 0))]),
  };
}

/** The files code nothing: they are containers alone. */
function heicBombs(): Record<string, Buffer> {
  const brands = ['heic', 'mif1'];
  const heic = (width: number, height: number) =>
    heifOf(brands, [{ id: 1, type: 'hvc1', size: [width, height] }], 1);
  const grid = (tiles: number, ids: readonly number[]) => {
    const side = Math.sqrt(tiles);
    const data = Buffer.concat([
      Buffer.from([0, 0, side - 1, side - 1]),
      u16(64 * side, 64 * side),
    ]);
    const tile = { type: 'hvc1', data: Buffer.alloc(99), properties: [hvcC(), ispe(64, 64)] };
    const items = [...new Set(ids)].map(id => ({ ...tile, id }));
    const picture = { id: 1, type: 'grid', data, properties: [ispe(64 * side, 64 * side)] };
    return writeHeif({ brands, items: [picture, ...items], references: [['dimg', 1, ids]] });
  };
  const deep = Array.from({ length: 3_000 }, (_, i) => ({ id: i + 1, type: 'iden' }));
  return {
    'heic of 65535x65535': heic(65_535, 65_535),
    'heic that claims 10000x10000': writeHeif({
      brands,
      items: [
        { id: 1, type: 'hvc1', data: Buffer.alloc(9), properties: [hvcC(), ispe(10_000, 10_000)] },
      ],
    }),
    'heic of one tile 10,000 times': grid(10_000, Array(10_000).fill(2)),
    'heic of 2,500 tiles': grid(
      2_500,
      Array.from({ length: 2_500 }, (_, i) => i + 2),
    ),
    'heic of itself': grid(4, [1, 1, 1, 1]),
    'heic by 3,000 names': writeHeif({
      brands,
      items: deep,
      references: deep.map(({ id }) => ['dimg', id, [id + 1]]),
    }),
  };
}

async function otherBombs(): Promise<Record<string, Buffer>> {
  const webp = await asSharp(paintSlope(24, 16)).webp({ lossless: true }).toBuffer();
  const lossless = Buffer.from(webp);
  lossless.writeUInt32LE(0x0fffffff, lossless.indexOf('VP8L') + 9);
  const lossy = await asSharp(paintSlope(24, 16)).webp().toBuffer();
  lossy.writeUInt32LE(0x3fff3fff, lossy.indexOf('VP8 ') + 14);
  const jxl = await writeJxl(paintSlope(24, 16));
  // SizeHeader: not in eights, 30 bits of height, ratio 1:1.
  const size = Buffer.from([0xff, 0x0a, 0xfe, 0xff, 0xff, 0xff, 0x3f, 0, 0, 0, 0, 0]);
  const signature = Buffer.from('0000000c4a584c200d0a870a', 'hex');
  let nested: Buffer = Buffer.alloc(0);
  for (let depth = 0; depth < 3_000; depth++) nested = box('jxlc', nested);
  const parts = Array.from({ length: 20_000 }, (_, i) => box('jxlp', u32(i)));
  return {
    'webp that claims 16384x16384': lossless,
    'lossy webp that claims 16383x16383': lossy,
    'jxl of 1073741824x1073741824': Buffer.concat([size, Buffer.alloc(64)]),
    'jxl boxes 3,000 deep': Buffer.concat([signature, nested]),
    'jxl in 20,000 empty parts': Buffer.concat([signature, ...parts]),
    'jxl behind 100,000 boxes': Buffer.concat([
      signature,
      ...Array(100_000).fill(box('Exif')),
      box('jxlc', jxl),
    ]),
    'jxl with 20 MiB behind it': Buffer.concat([jxl, Buffer.alloc(20 * MIB)]),
  };
}

export async function createBombs(withHeic: boolean): Promise<SeedFile[]> {
  const heic = withHeic ? heicBombs() : {};
  const all = [await pngBombs(), await jpegBombs(), await avifBombs(), heic, await otherBombs()];
  return all.flatMap(Object.entries<Buffer>).map(([name, file]) => ({ name, file }));
}
