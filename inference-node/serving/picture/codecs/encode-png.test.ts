import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { crc32, inflateRawSync, inflateSync } from 'node:zlib';
import { at, at as elementAt } from '@matting/test-support/at.ts';
import { Random } from '@matting/test-support/random.ts';
import test, { type ExecutionContext } from 'ava';
import sharp from 'sharp';
import { openZip, paint } from '../../test/pictures.ts';
import { borrowCopy, withMemory } from '../kernels/kernels.ts';
import { type RawPixels, viewAsPixels } from '../rgba-picture.ts';
import { encodePixels, encodeWebp } from './encode.ts';
import { encodePng } from './encode-png.ts';
import { deflateRuns } from './huffman.ts';

type Draw = (x: number, y: number, channel: number) => number;

function drawn(width: number, height: number, channels: 1 | 4, draw: Draw): RawPixels {
  const data = Buffer.alloc(width * height * channels);
  for (let i = 0; i < data.length; i += 1) {
    const pixel = Math.floor(i / channels);
    data[i] = draw(pixel % width, Math.floor(pixel / width), i % channels);
  }
  return { data, width, height, channels };
}

interface Chunk {
  readonly type: string;
  readonly data: Buffer;
}

function chunksOf(png: Buffer): Chunk[] {
  const chunks: Chunk[] = [];
  for (let at = 8; at < png.length; ) {
    const end = at + 8 + png.readUInt32BE(at);
    assert.equal(png.readUInt32BE(end), crc32(png.subarray(at + 4, end)));
    chunks.push({ type: png.toString('latin1', at + 4, at + 8), data: png.subarray(at + 8, end) });
    at = end + 4;
  }
  return chunks;
}

function filteredOf(png: Buffer): Buffer {
  const parts = chunksOf(png).filter(({ type }) => type === 'IDAT');
  return inflateSync(Buffer.concat(parts.map(({ data }) => data)));
}

const noise: Draw = () => Math.floor(Math.random() * 256);
/** A soft coloured disc on transparency. */
const cutOut: Draw = (x, y, channel) => {
  const alpha = Math.max(0, Math.min(255, 20 * (60 - Math.hypot(x - 64, y - 64))));
  if (alpha === 0 || channel === 3) return alpha;
  return (90 * channel + x + y + Math.random() * 8) % 256;
};
const stripes: Draw = (x, y) => ((x * 7 + y * 13) % 31) * 8;

async function assertSame(t: ExecutionContext, pixels: RawPixels): Promise<Buffer> {
  const png = encodePng(pixels);
  const { width, height, channels } = pixels;
  const { data, info } = await sharp(png)
    .toColourspace(channels === 1 ? 'b-w' : 'srgb')
    .raw()
    .toBuffer({ resolveWithObject: true });
  t.deepEqual([info.width, info.height, info.channels], [width, height, channels]);
  t.true(data.equals(pixels.data), `${width}x${height}x${channels}`);
  t.is(filteredOf(png).length, height * (1 + width * channels), 'with its checksum');
  return png;
}

// One pixel, rows that end before, at and after a vector of 16 bytes, and the widest row.
for (const [width, height] of [
  [1, 1],
  [1, 33],
  [3, 2],
  [4, 5],
  [5, 4],
  [16, 16],
  [17, 31],
  [10_000, 2],
  [2, 10_000],
] as const) {
  test(`PNG › is read as it was written, ${width} x ${height}`, async t => {
    for (const channels of [1, 4] as const) {
      await assertSame(t, drawn(width, height, channels, noise));
      await assertSame(t, drawn(width, height, channels, stripes));
      await assertSame(t, drawn(width, height, channels, cutOut));
    }
  });
}

test('PNG › of several strips is read as it was written', async t => {
  const data = randomBytes(700 * 900 * 4);
  await assertSame(t, { data, width: 700, height: 900, channels: 4 });
});

test('PNG › bytes as runs and codes come back: even, so uneven that codes are cut short, in runs, few', t => {
  const random = new Random(5);
  const draws = [
    () => random.below(256),
    () => Math.clz32(random.below(2 ** 31)),
    () => (random.below(400) === 0 ? 7 : 0),
    () => 0,
  ];
  for (const draw of draws) {
    for (const length of [1, 2, 9, 300, 200_000]) {
      const bytes = Buffer.from(Array.from({ length }, draw));
      const block = withMemory(borrow => {
        // The byte before differs from the first.
        const before = borrowCopy(borrow, Buffer.concat([Buffer.of(~at(bytes, 0)), bytes]));
        return Buffer.from(deflateRuns(before + 1, length));
      });
      t.true(
        inflateRawSync(Buffer.concat([block, Buffer.of(3, 0)])).equals(bytes),
        `${length} bytes`,
      );
    }
  }
});

test('PNG › a drawing that repeats itself takes few bytes', async t => {
  const { length } = await assertSame(t, drawn(600, 400, 4, stripes));
  t.true(length < 30_000, `${length} bytes`);
});

test('PNG › is marked as sRGB where it has colours, and says no resolution', async t => {
  const types = async (channels: 1 | 4) => {
    const chunks = chunksOf(encodePng(drawn(8, 8, channels, noise)));
    return [...new Set(chunks.map(({ type }) => type))];
  };
  t.deepEqual(await types(4), ['IHDR', 'sRGB', 'IDAT', 'IEND']);
  t.deepEqual(await types(1), ['IHDR', 'IDAT', 'IEND']);
});

type Alpha = (x: number, y: number) => number;

const random = new Random(7);
const alphaNoise = () => random.below(256);

const PLANES: Readonly<Record<string, Alpha>> = {
  opaque: () => 255,
  'nothing at all': () => 0,
  'one value': () => 77,
  'two values': x => (x < 40 ? 0 : 255),
  'a soft disc': (x, y) => Math.max(0, Math.min(255, (60 - Math.hypot(x - 80, y - 50)) * 9)),
  'a slope': (x, y) => (x + y) & 255,
  checks: (x, y) => ((x ^ y) & 1) * 255,
  noise: () => alphaNoise(),
  'noise in few places': x => (x % 31 === 0 ? alphaNoise() : 0),
  'very uneven values': (x, y) => Math.min(19, Math.clz32(((y * 331 + x) * 2654435761) >>> 0)),
};

test('WebP › alpha of any kind and size comes back at most 1 off, and 0 and 255 exactly', async t => {
  for (const [name, at] of Object.entries(PLANES)) {
    for (const [width, height] of [
      [160, 100],
      [1, 1],
      [1, 300],
      [5000, 3],
    ] as const) {
      const picture = paint(width, height, 4, (x, y) => [90, 120, 150, at(x, y)]);
      const { data } = picture;
      const expected = Buffer.from(data.filter((_, i) => i % 4 === 3));
      const file = await encodeWebp({ data, width, height, channels: 4 });
      const metadata = await sharp(file).metadata();
      t.deepEqual([metadata.width, metadata.height, metadata.hasAlpha], [width, height, true]);
      const read = await sharp(file, { failOn: 'warning' }).extractChannel(3).raw().toBuffer();
      const isRight = (alpha: number, i: number) =>
        alpha % 255 === 0 ? read[i] === alpha : Math.abs(elementAt(read, i) - alpha) <= 1;
      t.true(expected.every(isRight), `${name} of ${width}x${height}`);
    }
  }
});

test('WebP › a cut-out has its alpha, at most 1 off, and its colours at the edge', async t => {
  const [width, height] = [600, 410];
  const data = Buffer.alloc(width * height * 4);
  const pixels = viewAsPixels(data);
  for (let i = 0; i < pixels.length; i++) {
    const alpha = Math.max(0, Math.min(255, ((i % width) - 301) * 4));
    if (alpha > 0) pixels[i] = ((alpha << 24) | 0x3264c8) >>> 0;
  }
  const expected = Uint8Array.from(pixels, pixel => pixel >>> 24);
  const file = await encodeWebp({ data, width, height, channels: 4 });
  const read = await sharp(file).raw().toBuffer();
  let worst = 0;
  for (let i = 0; i < expected.length; i++) {
    if (Math.abs(elementAt(read, 4 * i + 3) - elementAt(expected, i)) > 1) t.fail(`alpha of ${i}`);
    // Less of a faint pixel shows, so chroma of two by two pixels may be further off.
    const off = Math.abs(elementAt(read, 4 * i) - 200) * (elementAt(expected, i) / 255);
    worst = Math.max(worst, off);
  }
  t.true(worst <= 12, `red off by ${worst}`);
});

const SIZE = { width: 40, height: 24 };

function subject(): RawPixels {
  const { data } = paint(SIZE.width, SIZE.height, 4, x => {
    if (x < 20) return [200, 40, 30, 255];
    return x < 24 ? [200, 40, 30, 250 - 60 * (x - 20)] : [0, 0, 0, 0];
  });
  return { data, ...SIZE, channels: 4 };
}

test('opaque › JPEG: three channels of full resolution, no resolution in print, no profile', async t => {
  const { data } = paint(SIZE.width, SIZE.height, 4, x => [(x % 2) * 255, 0, 200, 255]);
  const file = await encodePixels({ data, ...SIZE, channels: 4 }, 'jpeg');
  const metadata = await sharp(file).metadata();
  const { format, channels, chromaSubsampling, density, icc } = metadata;
  t.deepEqual(
    { format, channels, chromaSubsampling },
    {
      format: 'jpeg',
      channels: 3,
      chromaSubsampling: '4:4:4',
    },
  );
  t.is(icc, undefined);
  t.is(file.includes('JFIF'), false, `a density of ${density}`);
  const pixels = await sharp(file).raw().toBuffer();
  for (const [i, value] of pixels.entries()) {
    t.true(Math.abs(value - at(data, 4 * Math.floor(i / 3) + (i % 3))) < 16, `sample ${i}`);
  }
});

test('opaque › ZIP: alpha is exact, colours reach beyond the edge', async t => {
  const { colours, alpha } = openZip(await encodePixels(subject(), 'zip'));
  const metadata = await sharp(alpha).metadata();
  t.deepEqual([metadata.channels, metadata.depth, metadata.space], [1, 'uchar', 'b-w']);
  const plane = await sharp(alpha).toColourspace('b-w').raw().toBuffer();
  t.deepEqual(
    [...plane],
    [...subject().data].filter((_, i) => i % 4 === 3),
  );
  const seen = await sharp(colours).raw().toBuffer();
  for (let x = 0; x < SIZE.width; x++) {
    t.true(Math.abs(at(seen, 3 * x) - 200) < 12, `red at column ${x}: ${at(seen, 3 * x)}`);
  }
});

test('opaque › ZIP: the same picture has the same bytes, stored', async t => {
  const archive = await encodePixels(subject(), 'zip');
  t.deepEqual(await encodePixels(subject(), 'zip'), archive);
  const { colours, alpha } = openZip(archive);
  t.true(archive.includes(colours) && archive.includes(alpha), 'stored, not deflated');
});
