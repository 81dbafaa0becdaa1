import assert from 'node:assert/strict';
import { test } from 'node:test';
import { at } from '../../../../test/support/at.ts';
import { createPng, createPngChunk, decode } from '../pictures.ts';

async function firstPixel(file: Buffer): Promise<readonly [number, number, number, number]> {
  const { rgba } = await decode(file);
  const pixel = at(rgba, 0);
  return [pixel & 255, (pixel >>> 8) & 255, (pixel >>> 16) & 255, pixel >>> 24];
}

const SIZE = { width: 8, height: 4 };
const deep = (values: readonly number[]) => values.flatMap(value => [value, value]);
const times = (count: number, values: readonly number[]) => Array(count).fill(values).flat();
test('grey of every depth, with a transparent value and without', async () => {
  for (const [depth, sample, level, key] of [
    [1, 0xff, 255, 1],
    [2, 0x55, 85, 1],
    [4, 0x55, 85, 5],
    [8, 77, 77, 77],
    [16, 77, 77, 77 * 257],
  ] as const) {
    const fields = { ...SIZE, colourType: 0, depth, row: times(depth, [sample]) };
    assert.deepEqual(await firstPixel(createPng(fields)), [level, level, level, 255]);
    const chunks = [createPngChunk('tRNS', Buffer.from([key >>> 8, key & 255]))];
    const keyed = await firstPixel(createPng({ ...fields, chunks }));
    assert.deepEqual(keyed, [level, level, level, 0], `depth ${depth}`);
  }
});

test('palettes of every depth, with alpha for some entries', async () => {
  const palette = createPngChunk('PLTE', Buffer.from([10, 20, 30, 200, 100, 50]));
  const chunks = [palette, createPngChunk('tRNS', Buffer.from([255, 128]))];
  for (const [depth, sample] of [
    [1, 0xff],
    [2, 0x55],
    [4, 0x11],
    [8, 1],
  ] as const) {
    const fields = { ...SIZE, colourType: 3, depth, row: times(depth, [sample]) };
    const opaque = await firstPixel(createPng({ ...fields, chunks: [palette] }));
    assert.deepEqual(opaque, [200, 100, 50, 255]);
    assert.deepEqual(await firstPixel(createPng({ ...fields, chunks })), [200, 100, 50, 128]);
  }
});

test('a transparent colour of 8 and 16 bits', async () => {
  const colour = [200, 100, 50];
  for (const depth of [8, 16]) {
    const row = times(SIZE.width, depth === 8 ? colour : deep(colour));
    const key = depth === 8 ? colour.flatMap(value => [0, value]) : deep(colour);
    const chunks = [createPngChunk('tRNS', Buffer.from(key))];
    const file = createPng({ ...SIZE, colourType: 2, depth, row, chunks });
    assert.deepEqual(await firstPixel(file), [...colour, 0]);
  }
});

test('a high dynamic range is tone-mapped by one curve for all pictures', async () => {
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
    [await at(pq, 0), 0],
    [await at(pq, 1), 63],
    [await at(pq, 2), 229],
    [await at(pq, 3), 255],
    [await at(pq, 4), 255],
    [await at(hlg, 0), 0],
    [await at(hlg, 2), 229],
    [await at(hlg, 3), 255],
  ] as const) {
    assert.ok(Math.abs(r - expected) <= 3, `${r} for ${expected}`);
    // Grey stays grey.
    assert.ok(Math.abs(r - g) <= 1 && Math.abs(g - b) <= 1);
  }
  const grey = (await at(hlg, 1))[0];
  assert.ok(grey > 90 && grey < 130, `${grey}`);
});
