import assert from 'node:assert/strict';
import { test } from 'node:test';
import { box, u16, u32 } from '../../../../proto/contract/test/image-header-samples.ts';
import { pngOfOneFrame, webpOfOneFrame } from '../damage/forms.ts';
import { asSharp, decode, paint, writeJxl } from '../pictures.ts';

const [WIDTH, HEIGHT] = [60, 40];
const PICTURE = paint(WIDTH, HEIGHT, 4, (x, y) => [x * 4, y * 6, (x * y) & 255, 3 * x + y]);
/** The head of a frame: its offset in units of 8, its size and its flags. */
const [FRAME_X_AT, FRAME_FLAGS_AT] = [0, 15];

/** A still picture's file as a sequence's, with tracks of so many pictures; big endian. */
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

/** Written by cjxl 0.7 from an APNG of one frame: 60 x 40 pixels of (200, 50, 20, 128), without loss. */
const JXL_OF_ONE_FRAME = Buffer.from(
  'ff0a09050358505c1208082059000074004b188b1500d413638cf1e3cf05240000a401010024805c' +
    '01a0c6284a58',
  'hex',
);

function frameHead(file: Buffer): number {
  return file.indexOf('ANMF') + 8;
}

test('an animation of one frame is the still picture that it shows', async () => {
  const stills = [
    await asSharp(PICTURE).webp({ lossless: true }).toBuffer(),
    await asSharp(PICTURE).webp({ quality: 80 }).toBuffer(),
  ];
  for (const still of stills) {
    const { rgba } = await decode(still);
    const replaced = webpOfOneFrame(still, WIDTH, HEIGHT);
    assert.deepEqual((await decode(replaced)).rgba, rgba);
    const blended = Buffer.from(replaced);
    blended[frameHead(blended) + FRAME_FLAGS_AT] = 0;
    assert.deepEqual((await decode(blended)).rgba, rgba);
  }
  const avif = await asSharp(PICTURE).avif({ effort: 0 }).toBuffer();
  const { rgba: ofAvif } = await decode(avif);
  assert.deepEqual((await decode(avifSequence(avif, [1]))).rgba, ofAvif);
  assert.deepEqual((await decode(avifSequence(avif, [1, 1]))).rgba, ofAvif);
  const png = await asSharp(PICTURE).png().toBuffer();
  const { rgba } = await decode(png);
  assert.deepEqual((await decode(pngOfOneFrame(png, WIDTH, HEIGHT))).rgba, rgba);
});

test('a JPEG XL animation of one frame is that picture, one of several is refused', async () => {
  const { rgba, width, height } = await decode(JXL_OF_ONE_FRAME);
  assert.deepEqual([width, height], [WIDTH, HEIGHT]);
  const pixel = (200 | (50 << 8) | (20 << 16) | (128 << 24)) >>> 0;
  assert.ok(rgba.every(it => it === pixel));
  const frames = paint(WIDTH, 2 * HEIGHT, 3, (x, y) => [x, y, 99]);
  for (const options of [{}, { distance: 1 }, { sixteenBit: true }]) {
    const several = await writeJxl(frames, { ...options, pageHeight: HEIGHT });
    await assert.rejects(decode(several), { code: 'UNSUPPORTED_IMAGE_FORMAT' });
  }
});

test('a WebP frame that leaves some of the canvas to the viewer is an animation', async () => {
  const still = await asSharp(PICTURE).webp({ lossless: true }).toBuffer();
  const moved = webpOfOneFrame(still, WIDTH, HEIGHT);
  moved[frameHead(moved) + FRAME_X_AT] = 1;
  const large = webpOfOneFrame(still, WIDTH, HEIGHT);
  large.writeUIntLE(2 * WIDTH - 1, large.indexOf('VP8X') + 12, 3);
  for (const file of [moved, large]) {
    await assert.rejects(decode(file), { code: 'UNSUPPORTED_IMAGE_FORMAT' });
  }
});

test('an AVIF sequence of several pictures, or of none that can be counted, is refused', async () => {
  const avif = await asSharp(PICTURE).avif({ effort: 0 }).toBuffer();
  for (const pictures of [[], [0], [2], [1, 2]]) {
    const file = avifSequence(avif, pictures);
    await assert.rejects(decode(file), { code: 'UNSUPPORTED_IMAGE_FORMAT' }, String(pictures));
  }
});
