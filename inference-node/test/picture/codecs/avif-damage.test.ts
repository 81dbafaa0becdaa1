import assert from 'node:assert/strict';
import test from 'ava';
import { at as elementAt } from '../../../../test/support/at.ts';
import { decode, decodeIfWhole, type Pixels, paint } from '../pictures.ts';
import { CLAP_60X40, type GridFile, type GridKind, IROT_90, writeGrid } from './avif-grids.ts';

const TILE_PX = 64;
const [COLOUR_TILE, ALPHA_TILE, THUMBNAIL] = [10, 50, 90];

/** Not a multiple of the tiles. */
function picture(channels: 3 | 4): Pixels {
  return paint(120, 100, channels, (x, y) =>
    [x * 2, y * 2, (x * y) & 255, 40 + x + y].slice(0, channels),
  );
}

/** Where so little is left it is no AVIF. */
const read = (file: Buffer) => decodeIfWhole(file, 'UNSUPPORTED_IMAGE_FORMAT');

function spoil({ file, dataById }: GridFile, id: number): Buffer {
  const spoilt = Buffer.from(file);
  const place = dataById.get(id);
  assert.ok(place);
  const middle = Math.floor((place.start + place.end) / 2);
  spoilt[middle] = elementAt(spoilt, middle) ^ 0x55;
  return spoilt;
}

const GRID = { columns: 2, rows: 2, tilePx: TILE_PX } as const;
const KINDS: Readonly<Record<string, GridKind & { readonly channels?: 4 }>> = {
  plain: GRID,
  '4:2:0': { ...GRID, chroma: '4:2:0' },
  alpha: { ...GRID, channels: 4 },
  '10 bits': { ...GRID, bitdepth: 10, channels: 4 },
  'in idat': { ...GRID, isInIdat: true },
  'a grid in a grid': { ...GRID, isNested: true },
  'in two extents': { ...GRID, isSplit: true, channels: 4 },
  turned: { ...GRID, transforms: [IROT_90] },
  'clapped, with alpha': { ...GRID, transforms: [CLAP_60X40], channels: 4 },
};

test('a whole grid is read as the pixels it was made of', async t => {
  for (const [name, kind] of Object.entries(KINDS)) {
    const source = picture(kind.channels ?? 3);
    const { file } = await writeGrid(source, kind);
    const { rgba, width, height } = await decode(file);
    const expected =
      name === 'turned' ? [100, 120] : name.startsWith('clapped') ? [60, 40] : [120, 100];
    t.deepEqual([width, height], expected, name);
    // Missing tiles would be far off: green, or transparent.
    if (expected[0] !== source.width) continue;
    for (const [x, y] of [
      [10, 10],
      [110, 10],
      [10, 90],
      [110, 90],
    ] as const) {
      const pixel = elementAt(rgba, y * width + x);
      const at = (y * width + x) * source.channels;
      t.true(Math.abs((pixel & 255) - elementAt(source.data, at)) < 30, `${name} at ${x}, ${y}`);
      if (source.channels === 4)
        t.true(Math.abs((pixel >>> 24) - elementAt(source.data, at + 3)) < 30, name);
    }
  }
});

test('a grid that lacks a tile, wherever its data lies, is refused', async t => {
  for (const [name, kind] of Object.entries(KINDS)) {
    const grid = await writeGrid(picture(kind.channels ?? 3), kind);
    const whole = await read(grid.file);
    assert.ok(whole, name);
    const tiles = kind.channels === 4 ? [COLOUR_TILE, ALPHA_TILE] : [COLOUR_TILE];
    for (const first of tiles) {
      for (let tile = first; tile < first + 4; tile++) {
        t.is(await read(spoil(grid, tile)), undefined, `${name}, tile ${tile}`);
      }
    }
    // Items that are not part of the picture may be damaged.
    t.deepEqual(await read(spoil(grid, THUMBNAIL)), whole, `${name}, thumbnail`);
  }
});

test('a grid that is cut short is refused, or has every pixel', async t => {
  for (const [name, kind] of Object.entries(KINDS)) {
    const { file, dataById } = await writeGrid(picture(kind.channels ?? 3), kind);
    const whole = await read(file);
    const thumbnail = dataById.get(THUMBNAIL);
    assert.ok(whole && thumbnail, name);
    for (let i = 1; i < 50; i++) {
      const at = Math.floor((file.length * i) / 50);
      const pixels = await read(file.subarray(0, at));
      // The thumbnail is last; a box that is cut is another thing.
      const isWhole = at >= thumbnail.start && !kind.isInIdat;
      if (pixels !== undefined || isWhole) t.deepEqual(pixels, whole, `${name} at ${i}/50`);
    }
  }
});

test('tiles of one colour are no damage, with alpha and without', async t => {
  const clear = paint(120, 100, 4, () => [0, 0, 0, 0]);
  const { rgba } = await decode((await writeGrid(clear, GRID)).file);
  t.true(rgba.every(pixel => pixel >>> 24 === 0));
  for (const colour of [
    [0, 0, 0],
    [0, 135, 0],
  ]) {
    const { file } = await writeGrid(
      paint(120, 100, 3, () => colour),
      GRID,
    );
    t.truthy(await read(file), String(colour));
  }
});

test('a table of locations with numbers of any length causes no fault of the node', async t => {
  const { file } = await writeGrid(picture(3), GRID);
  const at = file.indexOf('iloc') + 8;
  for (const sizes of [0xff44, 0xf0f0, 0x9999, 0x0000, 0x4440, 0x8888]) {
    const odd = Buffer.from(file);
    odd.writeUInt16BE(sizes, at);
    t.is(await read(odd), undefined, sizes.toString(16));
  }
});
