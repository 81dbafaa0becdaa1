import assert from 'node:assert/strict';
import { deflateSync } from 'node:zlib';
import type { ErrorCode } from '@matting/proto/contract/errors.ts';
import { box, u16, u32 } from '@matting/proto/contract/test/image-header-samples.ts';
import { at as elementAt } from '@matting/test-support/at.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import test, { type ExecutionContext } from 'ava';
import type { Sharp } from 'sharp';
import sharp from 'sharp';
import { DEPTH_ALPHA_JXL } from '../../test/picture/codecs/extra-channels.ts';
import { codestreamOf } from '../../test/picture/codecs/jxl-files.ts';
import { pngOfOneFrame, webpOfOneFrame } from '../../test/picture/damage/forms.ts';
import {
  asSharp,
  claimPngSize,
  createPng,
  createPngChunk,
  decode,
  findJpegMarker,
  insertPngChunks,
  type Pixels,
  paint,
  paintSlope,
  writeJxl,
} from '../../test/pictures.ts';
import { hasJxlTools } from '../makeable.ts';
import { decodeBackground } from '../worker/decode-background.ts';
import { withoutMetadata } from './codec-jxl.ts';
import { type DecodedFile, decodeFile } from './decode.ts';

const slope = asSharp(paintSlope(60, 40));
/** Longer than the damaged part of each file. */
const stored = paint(60, 40, 4, (x, y) => [4 * x, 6 * y, 128, 255 - x]);
const codestream = codestreamOf(await writeJxl(stored));
const jxl = await decode(codestream);

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

async function requireCode(
  t: ExecutionContext,
  file: Buffer,
  code: ErrorCode,
  label: string,
): Promise<void> {
  await rejectsWith(t, decode(file), { code, retryable: code === 'NODE_INCAPABLE' }, label);
}

function pixelAt({ rgba, width }: DecodedFile, x: number, y: number) {
  const pixel = elementAt(rgba, y * width + x);
  return [pixel & 255, (pixel >>> 8) & 255, (pixel >>> 16) & 255, pixel >>> 24] as const;
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

async function jpegOf(change: (file: Buffer) => void): Promise<Buffer> {
  const file = await asSharp(paintSlope(24, 16)).jpeg().toBuffer();
  change(file);
  return file;
}

function insertPngFirst(png: Buffer, chunk: Buffer): Buffer {
  return Buffer.concat([png.subarray(0, 8), chunk, png.subarray(8)]);
}

test('bytes that are no supported image are refused, whatever they call themselves', async t => {
  const slope = asSharp(paintSlope(24, 16));
  const avif = await write(paintSlope(24, 16), 'avif');
  const jpeg = Buffer.from(avif);
  jpeg.write('jpeg', jpeg.indexOf('av01'), 'latin1');
  const files: Record<string, Buffer> = {
    empty: Buffer.alloc(0),
    svg: Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'),
    gif: await slope.clone().gif().toBuffer(),
    tiff: await slope.clone().tiff().toBuffer(),
    'HEIF of JPEG': jpeg,
    'JPEG of 12 bits': await jpegOf(file => file.writeUInt8(12, findJpegMarker(file, 0xc0) + 4)),
    'lossless JPEG': await jpegOf(file => file.writeUInt8(0xc3, findJpegMarker(file, 0xc0) + 1)),
    CgBI: insertPngFirst(
      await write(paintSlope(24, 16), 'png'),
      createPngChunk('CgBI', Buffer.alloc(4)),
    ),
  };
  for (const [name, file] of Object.entries(files)) {
    await requireCode(t, file, 'UNSUPPORTED_IMAGE_FORMAT', name);
  }
});

test('a file that was read as text on the way is refused with what to do', async t => {
  for (const format of FORMATS) {
    const file = await write(
      paint(64, 64, 4, (x, y) => [x * y, 7 * x + y, x ^ (5 * y), 255]),
      format,
    );
    for (const encoding of ['utf8', 'latin1'] as const) {
      const error = await t.throwsAsync(decode(Buffer.from(file.toString(encoding), 'utf8')));
      t.regex(error.message, /read as text on the way.*as bytes/, format);
    }
  }
});

test('no loader but the four can be reached', async t => {
  const gif = await asSharp(paintSlope(9, 9)).gif().toBuffer();
  const tiff = await asSharp(paintSlope(9, 9)).tiff().toBuffer();
  for (const file of [gif, tiff, Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>')]) {
    await t.throwsAsync(sharp(file).metadata(), { message: /unsupported image format/ });
  }
});

test('animations are refused, in every format that has them', async t => {
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
    await requireCode(t, file, 'UNSUPPORTED_IMAGE_FORMAT', name);
  }
});

test('a header that claims too much is refused before a pixel is read', async t => {
  const png = await write(paintSlope(24, 16), 'png');
  for (const [width, height] of [
    [1, 10_001],
    [10_000, 10_001],
    [2 ** 31 - 1, 2 ** 31 - 1],
  ] as const) {
    await requireCode(
      t,
      claimPngSize(png, width, height),
      'IMAGE_RESOLUTION_TOO_LARGE',
      `${width}x${height}`,
    );
  }
  const jpeg = await write(paintSlope(24, 16), 'jpeg');
  const frame = findJpegMarker(jpeg, 0xc0);
  jpeg.writeUInt16BE(20_000, frame + 5);
  jpeg.writeUInt16BE(20_000, frame + 7);
  await requireCode(t, jpeg, 'IMAGE_RESOLUTION_TOO_LARGE', 'jpeg');
});

test('10001 pixels on a side are too many in every format', async t => {
  const line = paint(10_001, 1, 3, () => [1, 2, 3]);
  for (const format of FORMATS) {
    if (format === 'avif') continue;
    await requireCode(t, await write(line, format), 'IMAGE_RESOLUTION_TOO_LARGE', format);
  }
});

test('an image larger than declared is refused, one that lies on its side is not', async t => {
  const file = await write(paintSlope(60, 40), 'png');
  await t.throwsAsync(decode(file, { width: 60, height: 39 }), { code: 'PROCESSING_FAILED' });
  await t.throwsAsync(decode(file, { width: 59, height: 59 }), { code: 'PROCESSING_FAILED' });
  await decode(file, { width: 60, height: 40 });
  await decode(file, { width: 40, height: 60 });
  await decode(file, { width: 1000, height: 1000 });
});

test('every format is decoded upright, in sRGB and opaque, and reports its size first', async t => {
  const slope = paintSlope(50, 30);
  for (const format of FORMATS) {
    const sizes: unknown[] = [];
    const file = await write(slope, format);
    const picture = await decodeFile(file, {
      declared: undefined,
      onOpened: size => sizes.push(size),
    });
    t.deepEqual(sizes, [{ width: 50, height: 30 }]);
    t.deepEqual(
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

type StoredAt = (x: number, y: number, w: number, h: number) => readonly [number, number];
/** Maps an upright pixel to the stored picture of `width` x `height`, by EXIF orientation. */
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

test('all eight orientations are turned upright', async t => {
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
      t.deepEqual([picture.width, picture.height], upright);
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

test('CMYK, with a profile and without, comes out in its colours', async t => {
  const colour = [160, 120, 110];
  const even = () => asSharp(paint(16, 16, 3, () => colour));
  const withProfile = await even().withIccProfile('cmyk').jpeg({ quality: 100 }).toBuffer();
  t.is((await sharp(withProfile).metadata()).space, 'cmyk');
  requireNear(pixelAt(await decode(withProfile), 8, 8), [...colour, 255], 16, 'with');
  const without = await even().toColourspace('cmyk').jpeg({ quality: 100 }).toBuffer();
  requireNear(pixelAt(await decode(without), 8, 8), [...colour, 255], 40, 'without');
});

// PNGs that no encoder here writes.

const firstPixel = async (file: Buffer) => pixelAt(await decode(file), 0, 0);

const SIZE = { width: 8, height: 4 };
const times = (count: number, values: readonly number[]) => Array(count).fill(values).flat();

test('a high dynamic range is tone-mapped by one curve for all pictures', async t => {
  const read = (transfer: number, value: number) => {
    const chunks = [createPngChunk('cICP', Buffer.from([9, transfer, 0, 1]))];
    const row = times(
      SIZE.width,
      Array(3)
        .fill([value >>> 8, value & 255])
        .flat(),
    );
    return firstPixel(createPng({ ...SIZE, colourType: 2, depth: 16, row, chunks }));
  };
  // PQ: black, 10 and 203 cd/m2 (diffuse white of ITU-R BT.2408), 1000 and beyond.
  const pq = [0, 0.3017, 0.5807, 0.7518, 1].map(sample => read(16, Math.round(sample * 65_535)));
  // HLG: black, grey of 18 %, diffuse white, peak.
  const hlg = [0, 0.38, 0.75, 1].map(sample => read(18, Math.round(sample * 65_535)));
  for (const [[r, g, b], expected] of [
    [await elementAt(pq, 0), 0],
    [await elementAt(pq, 1), 63],
    [await elementAt(pq, 2), 229],
    [await elementAt(pq, 3), 255],
    [await elementAt(pq, 4), 255],
    [await elementAt(hlg, 0), 0],
    [await elementAt(hlg, 2), 229],
    [await elementAt(hlg, 3), 255],
  ] as const) {
    t.true(Math.abs(r - expected) <= 3, `${r} for ${expected}`);
    t.true(Math.abs(r - g) <= 1 && Math.abs(g - b) <= 1);
  }
  const grey = (await elementAt(hlg, 1))[0];
  t.true(grey > 90 && grey < 130, `${grey}`);
});

const [WIDTH, HEIGHT] = [60, 40];
const PICTURE = paint(WIDTH, HEIGHT, 4, (x, y) => [x * 4, y * 6, (x * y) & 255, 3 * x + y]);
/** Offset (in units of 8), size and flags of a frame. */
const [FRAME_X_AT, FRAME_FLAGS_AT] = [0, 15];

/** Turns a still picture's file into a sequence's, with tracks of these lengths; big endian. */
function avifSequence(still: Buffer, pictures: readonly number[]): Buffer {
  const matrix = u32(0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000);
  const data = {
    start: still.indexOf('mdat') + 4,
    length: still.length - still.indexOf('mdat') - 4,
  };
  const track = (count: number, i: number) => {
    const entry = [Buffer.alloc(6), u16(1), Buffer.alloc(16), u16(WIDTH, HEIGHT)];
    const rest = [u32(0x480000, 0x480000, 0), u16(1), Buffer.alloc(32), u16(24, 0xffff)];
    const av1C = still.subarray(still.indexOf('av1C') + 4, still.indexOf('av1C') + 8);
    const stsd = box('stsd', u32(0, 1), box('av01', ...entry, ...rest, box('av1C', av1C)));
    const stbl = box(
      'stbl',
      stsd,
      box('stts', u32(0, 1, count, 1)),
      box('stsc', u32(0, 1, 1, count, 1)),
      box('stsz', u32(0, data.length, count)),
      box('stco', u32(0, 1, data.start)),
    );
    const dinf = box('dinf', box('dref', u32(0, 1), box('url ', u32(1))));
    const minf = box('minf', box('vmhd', u32(1, 0, 0)), dinf, stbl);
    const mdhd = box('mdhd', u32(0, 0, 0, 30, count, 0));
    const hdlr = box('hdlr', u32(0, 0), Buffer.from('pict', 'latin1'), Buffer.alloc(13));
    const size = u32(WIDTH << 16, HEIGHT << 16);
    const tkhd = box('tkhd', u32(3, 0, 0, i + 1, 0, count, 0, 0, 0, 0), matrix, size);
    return box('trak', tkhd, box('mdia', mdhd, hdlr, minf));
  };
  const mvhd = box(
    'mvhd',
    u32(0, 0, 0, 30, 1, 0x10000, 0x01000000, 0, 0),
    matrix,
    Buffer.alloc(28),
  );
  const sequence = Buffer.concat([still, box('moov', mvhd, ...pictures.map(track))]);
  sequence.write('avis', 8, 'latin1');
  return sequence;
}

/**
 * Written by cjxl 0.7 from an APNG of one frame: 60 x 40 pixels of (200, 50, 20, 128), lossless.
 */
const JXL_OF_ONE_FRAME = Buffer.from(
  'ff0a09050358505c1208082059000074004b188b1500d413638cf1e3cf05240000a401010024805c' +
    '01a0c6284a58',
  'hex',
);

function frameHead(file: Buffer): number {
  return file.indexOf('ANMF') + 8;
}

test('an animation of one frame is the still picture that it shows', async t => {
  const stills = [
    await asSharp(PICTURE).webp({ lossless: true }).toBuffer(),
    await asSharp(PICTURE).webp({ quality: 80 }).toBuffer(),
  ];
  for (const still of stills) {
    const { rgba } = await decode(still);
    const replaced = webpOfOneFrame(still, WIDTH, HEIGHT);
    t.deepEqual((await decode(replaced)).rgba, rgba);
    const blended = Buffer.from(replaced);
    blended[frameHead(blended) + FRAME_FLAGS_AT] = 0;
    t.deepEqual((await decode(blended)).rgba, rgba);
  }
  const avif = await asSharp(PICTURE).avif({ effort: 0 }).toBuffer();
  const { rgba: ofAvif } = await decode(avif);
  t.deepEqual((await decode(avifSequence(avif, [1]))).rgba, ofAvif);
  t.deepEqual((await decode(avifSequence(avif, [1, 1]))).rgba, ofAvif);
  const png = await asSharp(PICTURE).png().toBuffer();
  const { rgba } = await decode(png);
  t.deepEqual((await decode(pngOfOneFrame(png, WIDTH, HEIGHT))).rgba, rgba);
});

test('a JPEG XL animation of one frame is that picture, one of several is refused', async t => {
  const { rgba, width, height } = await decode(JXL_OF_ONE_FRAME);
  t.deepEqual([width, height], [WIDTH, HEIGHT]);
  const pixel = (200 | (50 << 8) | (20 << 16) | (128 << 24)) >>> 0;
  t.true(rgba.every(it => it === pixel));
  const frames = paint(WIDTH, 2 * HEIGHT, 3, (x, y) => [x, y, 99]);
  for (const options of [{}, { distance: 1 }, { sixteenBit: true }]) {
    const several = await writeJxl(frames, { ...options, pageHeight: HEIGHT });
    await t.throwsAsync(decode(several), { code: 'UNSUPPORTED_IMAGE_FORMAT' });
  }
});

test('a WebP frame that leaves some of the canvas to the viewer is an animation', async t => {
  const still = await asSharp(PICTURE).webp({ lossless: true }).toBuffer();
  const moved = webpOfOneFrame(still, WIDTH, HEIGHT);
  moved[frameHead(moved) + FRAME_X_AT] = 1;
  const large = webpOfOneFrame(still, WIDTH, HEIGHT);
  large.writeUIntLE(2 * WIDTH - 1, large.indexOf('VP8X') + 12, 3);
  for (const file of [moved, large]) {
    await t.throwsAsync(decode(file), { code: 'UNSUPPORTED_IMAGE_FORMAT' });
  }
});

test('an AVIF sequence of several pictures, or of none that can be counted, is refused', async t => {
  const avif = await asSharp(PICTURE).avif({ effort: 0 }).toBuffer();
  for (const pictures of [[], [0], [2], [1, 2]]) {
    const file = avifSequence(avif, pictures);
    await t.throwsAsync(decode(file), { code: 'UNSUPPORTED_IMAGE_FORMAT' }, String(pictures));
  }
});

test('an AVIF is one whatever its brands', async t => {
  const avif = await asSharp(PICTURE).avif({ effort: 0 }).toBuffer();
  const { rgba } = await decode(avif);
  for (const brand of ['mif1', 'heic']) {
    const file = Buffer.from(avif);
    for (let at = 8; at < avif.readUInt32BE(0); at += 4) file.write(brand, at, 'latin1');
    t.deepEqual((await decode(file)).rgba, rgba, brand);
  }
});

const NOTE = 'N'.repeat(200);
const TIFF_BEGINS = [Buffer.from('II*\0'), Buffer.from('MM\0*')];
/** 36 bytes after a profile's start. */
const PROFILE_SIGNATURE = Buffer.from('acsp');

type Write = (picture: Sharp) => Sharp;
const WRITERS: Readonly<Record<string, Write>> = {
  jpeg: picture => picture.jpeg({ quality: 95 }),
  webp: picture => picture.webp({ lossless: true }),
  avif: picture => picture.avif({ quality: 95, effort: 0 }),
};

function spoil(t: ExecutionContext, file: Buffer, at: number, bytes: number): Buffer {
  t.true(at > 0);
  const spoilt = Buffer.from(file);
  for (let i = 0; i < bytes; i++) spoilt[at + i] = (i * 73 + 129) & 255;
  return spoilt;
}

async function requireSame(t: ExecutionContext, odd: Buffer, expected: DecodedFile): Promise<void> {
  t.deepEqual(await decode(odd), expected);
  const asIs = { declared: undefined, onOpened: () => undefined };
  t.deepEqual(await decodeBackground(odd, asIs), expected);
}

for (const [format, write] of Object.entries(WRITERS)) {
  test(`metadata › ${format} with Exif that is none`, async t => {
    const plain = await decode(await write(slope.clone()).toBuffer());
    const file = await write(slope.clone().withExif({ IFD0: { Copyright: NOTE } })).toBuffer();
    const at = Math.max(...TIFF_BEGINS.map(begin => file.indexOf(begin)));
    for (const bytes of [4, 12, 120]) await requireSame(t, spoil(t, file, at, bytes), plain);
    // Beyond the end of the file.
    await requireSame(t, spoil(t, file, at + 4, 4), plain);
  });

  test(`metadata › ${format} with a profile that is none, as if it had none`, async t => {
    const file = await write(slope.clone().withIccProfile('p3', { attach: true })).toBuffer();
    const at = file.indexOf(PROFILE_SIGNATURE);
    const untagged = await write(slope.clone().withIccProfile('p3', { attach: false })).toBuffer();
    await requireSame(t, spoil(t, file, at - 32, 60), await decode(untagged));
  });
}

test('metadata › PNG with chunks beside the picture that hold nothing of use', async t => {
  const plain = await slope.clone().png().toBuffer();
  const junk = spoil(t, Buffer.alloc(80, 1), 1, 79);
  const ODD = {
    eXIf: junk,
    iCCP: Buffer.concat([Buffer.from('name\0\0'), deflateSync(junk)]),
    iTXt: junk,
    zTXt: Buffer.concat([Buffer.from('Raw profile type exif\0\0'), junk]),
    tIME: junk.subarray(0, 7),
    gAMA: Buffer.alloc(4),
    cICP: Buffer.alloc(4, 255),
    abCd: junk,
  };
  for (const [type, body] of Object.entries(ODD)) {
    await requireSame(t, insertPngChunks(plain, createPngChunk(type, body)), await decode(plain));
  }
});

/** Its length differs from the declared one. */
function boxOf(type: string, content: Buffer, size: number): Buffer {
  const made = box(type, content);
  made.writeUInt32BE(size);
  return made;
}

function largeBox(type: string, content: Buffer): Buffer {
  const length = Buffer.alloc(8);
  length.writeBigUInt64BE(BigInt(16 + content.length));
  return boxOf(type, Buffer.concat([length, content]), 1);
}

const HEAD = Buffer.concat([
  box('JXL ', Buffer.from('0d0a870a', 'hex')),
  box('ftyp', Buffer.from('jxl \0\0\0\0jxl ')),
]);
const whole = box('jxlc', codestream);
const part = (number: number, content: Buffer) =>
  box('jxlp', Buffer.concat([Buffer.from([number >>> 24, 0, 0, number & 255]), content]));
const LAST = 0x80000000;
const halves = [codestream.subarray(0, 100), codestream.subarray(100)] as const;

/** Orientation 6 would show the picture on its side. */
const TIFF = Buffer.from('4d4d002a00000008000101120003000000010006000000000000', 'hex');
const OFFSET = Buffer.alloc(4);
const noXml = Buffer.from('<x:xmpmeta \xff\0\xfe', 'latin1');

const ODD_JXL: Readonly<Record<string, readonly Buffer[]>> = {
  'Exif without its offset, between parts as pillow-jxl-plugin has it': [
    part(0, halves[0]),
    box('Exif', TIFF),
    part(LAST + 1, halves[1]),
  ],
  'Exif without its offset, before': [box('Exif', TIFF), whole],
  'Exif that says an orientation': [box('Exif', Buffer.concat([OFFSET, TIFF])), whole],
  'Exif whose offset is beyond it': [box('Exif', Buffer.alloc(8, 255)), whole],
  'Exif of nothing': [box('Exif', Buffer.alloc(0)), whole],
  'Exif in 64 bits': [largeBox('Exif', TIFF), largeBox('jxlc', codestream)],
  'Exif to the end of the file': [whole, boxOf('Exif', TIFF, 0)],
  'Exif that is cut short': [whole, boxOf('Exif', TIFF, 5000)],
  'XMP that is no XML': [box('xml ', noXml), whole],
  'jumb that is none': [box('jumb', noXml), whole],
  'compressed Exif that is none': [box('brob', Buffer.from('Exifgarbage')), whole],
  'compressed XMP that is none': [box('brob', Buffer.from('xml garbage')), whole],
  'compressed jumb that is none': [box('brob', Buffer.from('jumbgarbage')), whole],
  'compressed of no type': [box('brob', Buffer.alloc(0)), whole],
  'parts of a JPEG that are none': [box('jbrd', noXml), whole],
  'a box of no known type': [box('abcd', noXml), whole],
  'bytes behind its boxes': [whole, noXml],
};

for (const [name, boxes] of Object.entries(ODD_JXL)) {
  test(`metadata › JPEG XL, ${name}: the same picture, and the same background`, async t => {
    const file = Buffer.concat([HEAD, ...boxes]);
    await requireSame(t, file, jxl);
  });
}

test.skipIf(!hasJxlTools())('metadata › what djxl reads has no such boxes either', async t => {
  const odd = Buffer.concat([HEAD, ...(ODD_JXL['compressed Exif that is none'] ?? []).slice(0, 1)]);
  const file = Buffer.concat([odd, box('jxlc', codestreamOf(DEPTH_ALPHA_JXL))]);
  t.deepEqual(await decode(file), await decode(DEPTH_ALPHA_JXL));
});

test('metadata › a JPEG XL that is cut short or out of order is still refused', async t => {
  const exif = box('Exif', TIFF);
  for (const boxes of [
    [exif, whole.subarray(0, -20)],
    [exif, box('jxlc', codestream.subarray(0, -20))],
    [part(0, halves[0]), exif],
    [part(1, halves[1]), exif, part(LAST, halves[0])],
  ]) {
    const file = Buffer.concat([HEAD, ...boxes]);
    await t.throwsAsync(decode(file), { code: 'PROCESSING_FAILED' });
  }
});

test('metadata › nothing is copied where nothing is to go, nor behind more boxes than a picture has', t => {
  for (const file of [codestream, Buffer.concat([HEAD, whole])]) {
    t.is(withoutMetadata(file), file);
  }
  const many = Buffer.concat([HEAD, ...Array.from({ length: 9000 }, () => box('free', OFFSET))]);
  const left = withoutMetadata(many);
  t.is(left.length, HEAD.length + (9000 + 2 - 8192) * (8 + OFFSET.length));
});
