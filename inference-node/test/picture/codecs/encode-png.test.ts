/** Our own PNG against another program's reading of it, and the filters against the standard's text. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { crc32, inflateSync } from 'node:zlib';
import test, { type ExecutionContext } from 'ava';
import sharp from 'sharp';
import { encodePng } from '../../../src/picture/codecs/encode-png.ts';
import type { RawPixels } from '../../../src/picture/codecs/raw-pixels.ts';

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

/** The filter of ISO/IEC 15948, 12.8: the least sum of absolute values, the first of several. */
function standardRow({ data, width, channels }: RawPixels, y: number): Buffer {
  const length = width * channels;
  const byte = (x: number, row: number) =>
    x < 0 || row < 0 ? 0 : (data[row * length + x] ?? assert.fail());
  const paeth = (a: number, b: number, c: number) => {
    const [toA, toB, toC] = [a, b, c].map(value => Math.abs(a + b - c - value));
    assert.ok(toA !== undefined && toB !== undefined && toC !== undefined);
    if (toA <= toB && toA <= toC) return a;
    return toB <= toC ? b : c;
  };
  const filters: ((a: number, b: number, c: number) => number)[] = [
    () => 0,
    a => a,
    (_a, b) => b,
    (a, b) => Math.floor((a + b) / 2),
    paeth,
  ];
  const rows = filters.map((expected, number) => {
    const row = Buffer.alloc(1 + length, number);
    for (let x = 0; x < length; x += 1) {
      const left = byte(x - channels, y);
      row[1 + x] = byte(x, y) - expected(left, byte(x, y - 1), byte(x - channels, y - 1));
    }
    return row;
  });
  const size = (row: Buffer) =>
    row.subarray(1).reduce((sum, value) => sum + Math.min(value, 256 - value), 0);
  return rows.reduce((best, row) => (size(row) < size(best) ? row : best));
}

const noise: Draw = () => Math.floor(Math.random() * 256);
/** A soft disc on nothing, coloured: what cut-outs are. */
const cutOut: Draw = (x, y, channel) => {
  const alpha = Math.max(0, Math.min(255, 20 * (60 - Math.hypot(x - 64, y - 64))));
  if (alpha === 0 || channel === 3) return alpha;
  return (90 * channel + x + y + Math.random() * 8) % 256;
};
const stripes: Draw = (x, y) => ((x * 7 + y * 13) % 31) * 8;

async function assertSame(t: ExecutionContext, pixels: RawPixels): Promise<Buffer> {
  const png = await encodePng(pixels);
  const { width, height, channels } = pixels;
  const { data, info } = await sharp(png)
    .toColourspace(channels === 1 ? 'b-w' : 'srgb')
    .raw()
    .toBuffer({ resolveWithObject: true });
  t.deepEqual([info.width, info.height, info.channels], [width, height, channels]);
  t.true(data.equals(pixels.data), `${width}x${height}x${channels}`);
  return png;
}

// One pixel, rows that end within, at and beyond a vector of 16 bytes, and the widest row.
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
  test(`is read as it was written, ${width} x ${height}`, async t => {
    for (const channels of [1, 4] as const) {
      await assertSame(t, drawn(width, height, channels, noise));
      await assertSame(t, drawn(width, height, channels, stripes));
      await assertSame(t, drawn(width, height, channels, cutOut));
    }
  });
}

test('of several strips is read as it was written', async t => {
  const data = randomBytes(700 * 900 * 4);
  await assertSame(t, { data, width: 700, height: 900, channels: 4 });
});

test('has the filters that the standard advises', async t => {
  const seen = new Set<number>();
  for (const draw of [noise, cutOut, stripes, ((x, y) => x + 3 * y) as Draw]) {
    for (const channels of [1, 4] as const) {
      const pixels = drawn(67, 40, channels, draw);
      const filtered = filteredOf(await encodePng(pixels));
      const length = 1 + 67 * channels;
      for (let y = 0; y < 40; y += 1) {
        const row = filtered.subarray(y * length, (y + 1) * length);
        t.true(row.equals(standardRow(pixels, y)), `row ${y}`);
        seen.add(row[0] ?? -1);
      }
    }
  }
  t.deepEqual([...seen].toSorted(), [0, 1, 2, 3, 4]);
});

test('is marked as sRGB where it has colours, and says no resolution', async t => {
  // The data may be in several chunks.
  const types = async (channels: 1 | 4) => {
    const chunks = chunksOf(await encodePng(drawn(8, 8, channels, noise)));
    return [...new Set(chunks.map(({ type }) => type))];
  };
  t.deepEqual(await types(4), ['IHDR', 'sRGB', 'IDAT', 'IEND']);
  t.deepEqual(await types(1), ['IHDR', 'IDAT', 'IEND']);
});

test('is no larger than libvips’ for a cut-out, and for what repeats', async t => {
  for (const draw of [cutOut, stripes]) {
    const pixels = drawn(512, 512, 4, draw);
    const { data, width, height, channels } = pixels;
    const other = await sharp(data, { raw: { width, height, channels } })
      .png({ compressionLevel: 2, adaptiveFiltering: true })
      .toBuffer();
    const ours = await encodePng(pixels);
    t.true(ours.length < 1.1 * other.length, `${ours.length} and ${other.length} bytes`);
  }
});
