import assert from 'node:assert/strict';
import { test } from 'node:test';
import sharp from 'sharp';
import type { ErrorCode } from '#contract/errors.ts';
import { at as elementAt } from '../../../../test/support/at.ts';
import { type DecodedFile, decodeFile } from '../../../src/picture/codecs/decode.ts';
import {
  asSharp,
  claimPngSize,
  createPngChunk,
  decode,
  findJpegMarker,
  insertPngChunks,
  type Pixels,
  paint,
  paintSlope,
  writeJxl,
} from '../pictures.ts';

type Format = 'jpeg' | 'png' | 'webp' | 'avif' | 'jxl';
const FORMATS: readonly Format[] = ['jpeg', 'png', 'webp', 'avif', 'jxl'];

async function write(pixels: Pixels, format: Format): Promise<Buffer> {
  switch (format) {
    case 'jpeg':
      return await asSharp(pixels).jpeg({ quality: 95, chromaSubsampling: '4:4:4' }).toBuffer();
    case 'png':
      return await asSharp(pixels).png().toBuffer();
    case 'webp':
      return await asSharp(pixels).webp({ lossless: true }).toBuffer();
    case 'avif':
      return await asSharp(pixels).avif({ quality: 95, effort: 0 }).toBuffer();
    case 'jxl':
      return await writeJxl(pixels);
  }
}

async function requireCode(file: Buffer, code: ErrorCode, label: string): Promise<void> {
  await assert.rejects(decode(file), { code, retryable: code === 'NODE_INCAPABLE' }, label);
}

function pixelAt({ rgba, width }: DecodedFile, x: number, y: number): number[] {
  const pixel = elementAt(rgba, y * width + x);
  return [pixel & 255, (pixel >>> 8) & 255, (pixel >>> 16) & 255, pixel >>> 24];
}

function requireNear(
  actual: readonly number[],
  expected: readonly number[],
  by: number,
  label = '',
) {
  assert.equal(actual.length, expected.length);
  for (const [i, value] of actual.entries()) {
    assert.ok(Math.abs(value - elementAt(expected, i)) <= by, `${label} ${actual} for ${expected}`);
  }
}

test('bytes that are no supported image are refused, whatever they call themselves', async () => {
  const slope = asSharp(paintSlope(24, 16));
  const svg = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>';
  const avif = await write(paintSlope(24, 16), 'avif');
  const heic = Buffer.from(avif);
  heic.write('heic', 8, 'latin1');
  heic.write('mif1', 16, 'latin1');
  for (let at = 20; at < avif.readUInt32BE(0); at += 4) heic.write('heic', at, 'latin1');
  const files: Record<string, Buffer> = {
    empty: Buffer.alloc(0),
    text: Buffer.from('this is no picture at all, however long it goes on'),
    svg: Buffer.from(svg),
    xml: Buffer.from(`<?xml version="1.0"?>\n${svg}`),
    pdf: Buffer.from('%PDF-1.7\n1 0 obj\n<<>>\nendobj\n'),
    html: Buffer.from('<!doctype html><html></html>'),
    gif: await slope.clone().gif().toBuffer(),
    tiff: await slope.clone().tiff().toBuffer(),
    heic,
    bmp: Buffer.concat([Buffer.from('BM'), Buffer.alloc(100)]),
    ico: Buffer.concat([Buffer.from([0, 0, 1, 0, 1, 0]), Buffer.alloc(100)]),
    psd: Buffer.concat([Buffer.from('8BPS'), Buffer.alloc(100)]),
    mvg: Buffer.from('push graphic-context\nviewbox 0 0 9 9\npop graphic-context\n'),
  };
  for (const [name, file] of Object.entries(files)) {
    await requireCode(file, 'UNSUPPORTED_IMAGE_FORMAT', name);
  }
});

test('no loader but the four can be reached', async () => {
  const gif = await asSharp(paintSlope(9, 9)).gif().toBuffer();
  const tiff = await asSharp(paintSlope(9, 9)).tiff().toBuffer();
  for (const file of [gif, tiff, Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>')]) {
    await assert.rejects(sharp(file).metadata(), /unsupported image format/);
  }
});

test('animations are refused, in every format that has them', async () => {
  const frames = paintSlope(16, 48);
  const animated = () =>
    sharp(frames.data, { raw: { width: 16, height: 48, channels: 3, pageHeight: 16 } });
  const png = await write(paintSlope(16, 16), 'png');
  const acTL = Buffer.alloc(8);
  acTL.writeUInt32BE(3);
  const files = {
    gif: await animated().gif().toBuffer(),
    webp: await animated().webp({ lossless: true }).toBuffer(),
    apng: insertPngChunks(png, createPngChunk('acTL', acTL)),
    jxl: await writeJxl(frames, { pageHeight: 16 }),
    avif: await write(paintSlope(16, 16), 'avif'),
  };
  files.avif.write('avis', 8, 'latin1');
  for (const [name, file] of Object.entries(files)) {
    await requireCode(file, 'UNSUPPORTED_IMAGE_FORMAT', name);
  }
});

test('a header that claims too much is refused before a pixel is read', async () => {
  const png = await write(paintSlope(24, 16), 'png');
  for (const [width, height] of [
    [10_001, 1],
    [1, 10_001],
    [20_000, 20_000],
    [10_000, 10_001],
    [2 ** 31 - 1, 2 ** 31 - 1],
  ] as const) {
    await requireCode(
      claimPngSize(png, width, height),
      'IMAGE_RESOLUTION_TOO_LARGE',
      `${width}x${height}`,
    );
  }
  const jpeg = await write(paintSlope(24, 16), 'jpeg');
  const frame = findJpegMarker(jpeg, 0xc0);
  jpeg.writeUInt16BE(20_000, frame + 5);
  jpeg.writeUInt16BE(20_000, frame + 7);
  await requireCode(jpeg, 'IMAGE_RESOLUTION_TOO_LARGE', 'jpeg');
});

test('10001 pixels on a side are too many in every format', async () => {
  const line = paint(10_001, 1, 3, () => [1, 2, 3]);
  for (const format of FORMATS) {
    if (format === 'avif') continue;
    await requireCode(await write(line, format), 'IMAGE_RESOLUTION_TOO_LARGE', format);
  }
});

test('an image larger than declared is refused, one that lies on its side is not', async () => {
  const file = await write(paintSlope(60, 40), 'png');
  await assert.rejects(decode(file, { width: 60, height: 39 }), { code: 'PROCESSING_FAILED' });
  await assert.rejects(decode(file, { width: 59, height: 59 }), { code: 'PROCESSING_FAILED' });
  await decode(file, { width: 60, height: 40 });
  await decode(file, { width: 40, height: 60 });
  await decode(file, { width: 1000, height: 1000 });
});

test('every format is decoded upright, in sRGB and opaque, and reports its size first', async () => {
  const slope = paintSlope(50, 30);
  for (const format of FORMATS) {
    const sizes: unknown[] = [];
    const file = await write(slope, format);
    const picture = await decodeFile(file, {
      declared: undefined,
      onOpened: size => sizes.push(size),
    });
    assert.deepEqual(sizes, [{ width: 50, height: 30 }]);
    assert.deepEqual(
      [picture.format, picture.width, picture.height, picture.translucent],
      [format, 50, 30, false],
    );
    for (const [x, y] of [
      [2, 2],
      [47, 3],
      [4, 27],
      [25, 15],
    ] as const) {
      const at = (y * 50 + x) * 3;
      const expected = [...slope.data.subarray(at, at + 3), 255];
      requireNear(pixelAt(picture, x, y), expected, 5, format);
    }
  }
});

test('tiny, tall and wide pictures are pictures', async () => {
  for (const [width, height] of [
    [1, 1],
    [3, 2],
    [220, 3800],
    [6000, 26],
  ] as const) {
    for (const format of FORMATS) {
      const picture = await decode(await write(paintSlope(width, height), format));
      assert.deepEqual([picture.width, picture.height], [width, height], format);
    }
  }
});

type StoredAt = (x: number, y: number, w: number, h: number) => readonly [number, number];
/** Where an upright pixel lies in the stored picture of `width` x `height`, by EXIF orientation. */
const STORED_AT: readonly StoredAt[] = [
  (x, y) => [x, y],
  (x, y, w) => [w - 1 - x, y],
  (x, y, w, h) => [w - 1 - x, h - 1 - y],
  (x, y, _w, h) => [x, h - 1 - y],
  (x, y) => [y, x],
  (x, y, _w, h) => [y, h - 1 - x],
  (x, y, w, h) => [w - 1 - y, h - 1 - x],
  (x, y, w) => [w - 1 - y, x],
];

test('all eight orientations are turned upright', async () => {
  const stored = paintSlope(48, 32);
  for (const [index, storedAt] of STORED_AT.entries()) {
    const orientation = index + 1;
    const turned = () => asSharp(stored).withMetadata({ orientation });
    const files = [
      await turned().jpeg({ quality: 97, chromaSubsampling: '4:4:4' }).toBuffer(),
      await turned().png().toBuffer(),
      await turned().webp({ lossless: true }).toBuffer(),
    ];
    for (const file of files) {
      const picture = await decode(file);
      const upright = orientation < 5 ? [48, 32] : [32, 48];
      assert.deepEqual([picture.width, picture.height], upright);
      for (let y = 1; y < picture.height; y += 5) {
        for (let x = 1; x < picture.width; x += 5) {
          const [fromX, fromY] = storedAt(x, y, 48, 32);
          const at = (fromY * 48 + fromX) * 3;
          const expected = [...stored.data.subarray(at, at + 3), 255];
          requireNear(pixelAt(picture, x, y), expected, 5, `orientation ${orientation}`);
        }
      }
    }
  }
});

test('CMYK, with a profile and without, comes out in its colours', async () => {
  const colour = [160, 120, 110];
  const even = () => asSharp(paint(16, 16, 3, () => colour));
  const withProfile = await even().withIccProfile('cmyk').jpeg({ quality: 100 }).toBuffer();
  assert.equal((await sharp(withProfile).metadata()).space, 'cmyk');
  requireNear(pixelAt(await decode(withProfile), 8, 8), [...colour, 255], 16, 'with');
  const without = await even().toColourspace('cmyk').jpeg({ quality: 100 }).toBuffer();
  requireNear(pixelAt(await decode(without), 8, 8), [...colour, 255], 40, 'without');
});
