import assert from 'node:assert/strict';
import { readAvifColour } from '@matting/proto/contract/image-header/heif-file.ts';
import { at as elementAt } from '@matting/test-support/at.ts';
import test from 'ava';
import {
  CLAP_60X40,
  type GridFile,
  type GridKind,
  IROT_90,
  writeGrid,
} from '../../test/picture/codecs/avif-grids.ts';
import { asSharp, decode, decodeIfWhole, type Pixels, paint } from '../../test/pictures.ts';
import { readCodedItems, writeAvif } from './files/avif-file.ts';

const TILE_PX = 64;
const [COLOUR_TILE, ALPHA_TILE, THUMBNAIL] = [10, 50, 90];

/** Not a multiple of the tiles' size. */
function picture(channels: 3 | 4): Pixels {
  return paint(120, 100, channels, (x, y) =>
    [x * 2, y * 2, (x * y) & 255, 40 + x + y].slice(0, channels),
  );
}

/** A file with so little left is not AVIF. */
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

test('damage › a whole grid is read as the pixels it was made of', async t => {
  for (const [name, kind] of Object.entries(KINDS)) {
    const source = picture(kind.channels ?? 3);
    const { file } = await writeGrid(source, kind);
    const { rgba, width, height } = await decode(file);
    const expected =
      name === 'turned' ? [100, 120] : name.startsWith('clapped') ? [60, 40] : [120, 100];
    t.deepEqual([width, height], expected, name);
    // Missing tiles would be green or transparent.
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

test('damage › a grid that lacks a tile, wherever its data lies, is refused', async t => {
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
    t.deepEqual(await read(spoil(grid, THUMBNAIL)), whole, `${name}, thumbnail`);
  }
});

test('damage › tiles of one colour are no damage, with alpha and without', async t => {
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

test('damage › a table of locations with numbers of any length causes no fault of the node', async t => {
  const { file } = await writeGrid(picture(3), GRID);
  const at = file.indexOf('iloc') + 8;
  for (const sizes of [0xff44, 0xf0f0, 0x9999, 0x0000, 0x4440, 0x8888]) {
    const odd = Buffer.from(file);
    odd.writeUInt16BE(sizes, at);
    t.is(await read(odd), undefined, sizes.toString(16));
  }
});

const WIDTH = 80;
const STRIP_HEIGHT = 64;

async function codeStrip(top: number, bitdepth: 8 | 10 | 12 = 8) {
  const strip = paint(WIDTH, STRIP_HEIGHT, 4, (x, y) => [
    (x * 3) & 255,
    top + y,
    120,
    (x ^ (top + y)) & 255,
  ]);
  const file = await asSharp(strip)
    .avif({ quality: 100, effort: 0, chromaSubsampling: '4:4:4', bitdepth })
    .toBuffer();
  const items = await readCodedItems(file);
  return { colours: elementAt(items, 0), alpha: elementAt(items, 1) };
}

function claimCicp(file: Buffer, primaries: number, transfer: number): Buffer {
  const claimed = Buffer.from(file);
  for (let at = claimed.indexOf('nclx'); at !== -1; at = claimed.indexOf('nclx', at + 4)) {
    claimed.writeUInt16BE(primaries, at + 4);
    claimed.writeUInt16BE(transfer, at + 6);
  }
  return claimed;
}

test('files › files that the encoder did not write are refused', async t => {
  const { colours } = await codeStrip(0);
  await t.throwsAsync(readCodedItems(Buffer.from('no AVIF')), { message: /no items/ });
  const file = await asSharp(paint(16, 16, 3, () => [1, 2, 3]))
    .avif()
    .toBuffer();
  t.is((await readCodedItems(file)).length, 1);
  const cut = file.subarray(0, file.length - 9);
  await t.throwsAsync(readCodedItems(cut), { message: /outside of its file/ });
  const strips = Array(257).fill({ colours, alpha: colours });
  t.throws(() => writeAvif({ width: 80, height: 16_448, strips, stripHeight: 64 }), {
    message: /grid/,
  });
});

test('files › strips make one picture, of which the last is cut to size', async t => {
  const tops = [0, STRIP_HEIGHT, 2 * STRIP_HEIGHT];
  const strips = await Promise.all(tops.map(top => codeStrip(top)));
  for (const count of [1, 2, 3]) {
    const height = (count - 1) * STRIP_HEIGHT + 50;
    const size = { width: WIDTH, height: count === 1 ? STRIP_HEIGHT : height };
    const used = strips.slice(0, count);
    const file = writeAvif({ ...size, strips: used, stripHeight: STRIP_HEIGHT });
    const picture = await decode(file);
    t.deepEqual([picture.width, picture.height], [size.width, size.height]);
    for (let i = 0; i < picture.rgba.length; i++) {
      const [x, y] = [i % WIDTH, Math.floor(i / WIDTH)];
      t.is(elementAt(picture.rgba, i) >>> 24, (x ^ y) & 255, `alpha at ${x},${y}`);
      t.true(Math.abs(((elementAt(picture.rgba, i) >>> 8) & 255) - y) <= 3, `green at ${x},${y}`);
    }
  }
});

test('files › the colours are as the code points say, in 8, 10 and 12 bits', async t => {
  for (const bitdepth of [8, 10, 12] as const) {
    const strips = [await codeStrip(100, bitdepth)];
    const parts = { width: WIDTH, height: STRIP_HEIGHT, strips, stripHeight: STRIP_HEIGHT };
    const file = writeAvif(parts);
    const plain = await readColour(file);
    for (const [primaries, transfer] of [
      [2, 2],
      [1, 1],
    ] as const) {
      t.deepEqual(await readColour(claimCicp(file, primaries, transfer)), plain);
    }
    const wide = claimCicp(file, 12, 13);
    const { cicp: named } = await readAvifColour(wide);
    t.like(named, { primaries: 12, transfer: 13 });
    const [, pqGreen] = await readColour(claimCicp(file, 9, 16));
    t.true(pqGreen > plain[1] + 30 && pqGreen < 255, `${pqGreen}`);
    const hlgGreen = (await readColour(claimCicp(file, 9, 18)))[1];
    t.true(hlgGreen > plain[1] && hlgGreen < pqGreen, `${hlgGreen}`);
  }
});

/** Reads a pixel whose colour in the picture is 120, 131, 120. */
async function readColour(file: Buffer) {
  const { rgba } = await decode(file);
  const pixel = elementAt(rgba, 31 * WIDTH + 40);
  return [pixel & 255, (pixel >>> 8) & 255, (pixel >>> 16) & 255, pixel >>> 24] as const;
}
