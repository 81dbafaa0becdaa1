import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { readHeif } from '@matting/proto/contract/image-header/heif-file.ts';
import { box, u32 } from '@matting/proto/contract/test/image-header-samples.ts';
import { at as elementAt } from '@matting/test-support/at.ts';
import { isNotTested } from '@matting/test-support/skip.ts';
import { CACHE_ENV } from '@matting/test-support/started-env.ts';
import ava from 'ava';
import { pino } from 'pino';
import type { Sharp } from 'sharp';
import {
  type CodedPicture,
  clap,
  cutTiles,
  encode,
  encodeFile,
  FIRST_TILE_ID,
  type HeicKind,
  hasHeifEnc,
  imir,
  irot,
  nclxBox,
  profileBox,
  writeHeic,
} from '../../../test/picture/codecs/heic-files.ts';
import {
  createRgbProfile,
  P3_GAMUT,
  SRGB_CURVE,
  toSrgb8,
} from '../../../test/picture/codecs/reference-colours.ts';
import { TESTED_DECODERS } from '../../../test/picture/heif-decoders.ts';
import { asSharp, type Pixels, paint, paintSlope } from '../../../test/pictures.ts';
import type { HeifDecoder } from '../../children/heif-decoder.ts';
import { openPicturePool } from '../../pool/open-picture-pool.ts';
import { viewAsBytes } from '../../rgba-picture.ts';
import { decodeFile } from '../decode.ts';
import { decodeHeic } from './decode-heic.ts';
import { readHeic, writeTiles } from './heic-file.ts';

const test = ava.serial;

// Other programs briefly have files in the machine's own folder.
const temporary = mkdtempSync(path.join(tmpdir(), 'matting-test-heic-'));
process.env.TMPDIR = temporary;
test.after.always(() => rmSync(temporary, { recursive: true }));

const untested = isNotTested(!hasHeifEnc && 'HEIC: heif-enc (libheif-examples) is not installed');

const SIZE = { width: 96, height: 64 };
const slope = paintSlope(SIZE.width, SIZE.height);
/** Most error of lossy colours at the requested quality. */
const STEPS = 5;

async function decode(file: Buffer, heif: HeifDecoder) {
  const { rgba, width, height, translucent } = await decodeFile(file, {
    declared: undefined,
    onOpened: () => undefined,
    heif,
  });
  return { width, height, translucent, data: viewAsBytes(rgba) };
}

function worstOf(actual: { data: Buffer }, { data, channels }: Pixels): number {
  let worst = 0;
  for (let i = 0; i < data.length; i++) {
    const at = Math.floor(i / channels) * 4 + (i % channels);
    worst = Math.max(worst, Math.abs(elementAt(actual.data, at) - elementAt(data, i)));
  }
  return worst;
}

async function toPixels(image: Sharp): Promise<Pixels> {
  const { data, info } = await image.raw().toBuffer({ resolveWithObject: true });
  const { width, height, channels } = info;
  return { data, width, height, channels: channels as Pixels['channels'] };
}

/** heif-enc pads smaller tiles. */
const TILE_PX = 64;
/** 8 by 6 tiles; the last ones extend beyond the picture. */
const GRID = { width: 8 * TILE_PX - 5, height: 6 * TILE_PX - 3 };
const gridSlope = paintSlope(GRID.width, GRID.height);
/** Grey, so that luma equals the colours. */
const greySlope = paint(GRID.width, GRID.height, 3, (x, y) =>
  Array(3).fill(Math.round((100 * x) / GRID.width + (140 * y) / GRID.height)),
);
const CORNERS = [
  [3, 3],
  [GRID.width - 4, 3],
  [3, GRID.height - 4],
  [GRID.width - 4, GRID.height - 4],
] as const;
const withAlpha = paint(SIZE.width, SIZE.height, 4, (x, y) => {
  const at = 3 * (y * SIZE.width + x);
  return [...slope.data.subarray(at, at + 3), (x * 2 + y) & 255];
});
const translucent = paint(SIZE.width, SIZE.height, 4, (x, y) => [80 + x, 100 + y, 120, 255 - x]);
const alphaPlane = paint(SIZE.width, SIZE.height, 1, (x, y) => [(x * 2 + y) & 255]);

/** Within sRGB, where a step of P3 is little more than one. */
const muted = paint(SIZE.width, SIZE.height, 3, (x, y) => [80 + x, 100 + y, 120]);
const mutedInP3 = paint(SIZE.width, SIZE.height, 3, (x, y) =>
  toSrgb8([(80 + x) / 255, (100 + y) / 255, 120 / 255], P3_GAMUT, SRGB_CURVE),
);
const p3 = profileBox(createRgbProfile(P3_GAMUT, SRGB_CURVE));

type Name = 'slope' | 'muted' | 'alpha' | 'deep' | 'deepMuted';
let coded: Readonly<Record<Name, CodedPicture>>;
let tiles: CodedPicture[];

test.before(async () => {
  if (untested) return;
  const grey = paint(SIZE.width, SIZE.height, 3, (x, y) => Array(3).fill((x * 2 + y) & 255));
  const shallow = await encode([slope, muted, grey]);
  const deep = await encode([slope, muted], { bits: 10 });
  const names: Name[] = ['slope', 'muted', 'alpha', 'deep', 'deepMuted'];
  const pictures = [...shallow, ...deep].map((picture, i) => [names[i], picture]);
  coded = Object.fromEntries(pictures) as typeof coded;
  tiles = await encode(await cutTiles(gridSlope, TILE_PX));
});
const one = (more: Partial<HeicKind> = {}): HeicKind => ({
  ...{ ...SIZE, tiles: [coded.slope] },
  ...more,
});
const grid = (more: Partial<HeicKind> = {}): HeicKind => ({ ...GRID, tiles, columns: 8, ...more });

/** A track with three pictures, as far as it is read. */
const SEQUENCE = ['stbl', 'minf', 'mdia', 'trak', 'moov'].reduce(
  (inner, type) => box(type, inner),
  box('stsz', u32(0, 0, 3)),
);

interface Case {
  readonly name: string;
  readonly kind: () => HeicKind | Buffer | Promise<Buffer>;
  readonly expected: () => Promise<Pixels> | Pixels;
}

const shown = (change: (image: Sharp) => Sharp) => () => toPixels(change(asSharp(slope)));

const TURNS: readonly [number, (image: Sharp) => Sharp][] = [
  [1, image => image.rotate(270)],
  [2, image => image.rotate(180)],
  [3, image => image.rotate(90)],
];

const CASES: readonly Case[] = [
  {
    name: 'as heif-enc writes it, in 4:2:0',
    kind: () => encodeFile([slope], { chroma: '420' }),
    expected: () => slope,
  },
  ...TURNS.map(([quarters, change]) => ({
    name: `turned ${quarters} quarters`,
    kind: () => one({ transforms: [irot(quarters)] }),
    expected: shown(change),
  })),
  {
    name: 'mirrored top to bottom',
    kind: () => one({ transforms: [imir(0)] }),
    expected: shown(image => image.flip()),
  },
  {
    name: 'mirrored left to right',
    kind: () => one({ transforms: [imir(1)] }),
    expected: shown(image => image.flop()),
  },
  {
    name: 'mirrored and turned',
    kind: async () => writeHeic(one({ transforms: [irot(1), imir(1)] })).file,
    expected: async () => toPixels(asSharp(await toPixels(asSharp(slope).rotate(270))).flop()),
  },
  {
    name: 'cropped and turned',
    kind: () => one({ transforms: [clap(60, 40, 10, -6), irot(3)] }),
    expected: shown(image => image.extract({ left: 23, top: 9, width: 60, height: 40 }).rotate(90)),
  },
  {
    name: 'turned by Exif alone',
    kind: () => one({ exif: 6 }),
    expected: shown(image => image.rotate(90)),
  },
  {
    name: 'turned by irot, and once more by Exif',
    kind: () => one({ transforms: [irot(3)], exif: 6 }),
    expected: shown(image => image.rotate(90)),
  },
  {
    name: 'not turned by irot, but by Exif',
    kind: () => one({ transforms: [irot(0)], exif: 6 }),
    expected: () => slope,
  },
  {
    name: '48 tiles, turned, as phones write it',
    kind: () => grid({ transforms: [irot(3)], exif: 6 }),
    expected: () => toPixels(asSharp(gridSlope).rotate(90)),
  },
  { name: '10 bits', kind: () => one({ tiles: [coded.deep] }), expected: () => slope },
  {
    name: 'Display P3 by its numbers',
    kind: () => one({ tiles: [coded.muted], colours: [nclxBox(12, 13)] }),
    expected: () => mutedInP3,
  },
  {
    name: 'Display P3 by a profile',
    kind: () => one({ tiles: [coded.muted], colours: [p3, nclxBox(1, 13)] }),
    expected: () => mutedInP3,
  },
  {
    name: '10 bits in Display P3',
    kind: () => one({ tiles: [coded.deepMuted], colours: [p3] }),
    expected: () => mutedInP3,
  },
  { name: 'without a word on its colours', kind: () => one(), expected: () => slope },
  {
    name: 'alpha, turned',
    kind: () => one({ alpha: coded.alpha, transforms: [irot(1)] }),
    expected: () => toPixels(asSharp(withAlpha).rotate(270)),
  },
  {
    name: 'alpha as heif-enc writes it',
    kind: () => encodeFile([translucent]),
    expected: () => translucent,
  },
  {
    name: 'with a gain map as its primary item',
    kind: () => one({ toneMapped: true, brands: 'heic\0\0\0\0mif1MiHEtmap' }),
    expected: () => slope,
  },
  {
    name: 'a still beside a sequence',
    kind: () => one({ brands: 'msf1\0\0\0\0heichevcmif1', behind: [SEQUENCE] }),
    expected: () => slope,
  },
];

const fileOf = async (kind: HeicKind | Buffer | Promise<Buffer>) => {
  const given = await kind;
  return Buffer.isBuffer(given) ? given : writeHeic(given).file;
};

for (const { kind: name, untested: isMissing, find } of TESTED_DECODERS) {
  const skipped = untested || isMissing;

  test.skipIf(skipped)(`${name} › every kind comes out as it is to be seen`, async t => {
    const heif = await find();
    for (const { name, kind, expected } of CASES) {
      const file = await fileOf(kind());
      const picture = await expected();
      const actual = await decode(file, heif).catch(error => {
        throw new Error(`${name}: ${error} ${error.cause}`);
      });
      t.deepEqual([actual.width, actual.height], [picture.width, picture.height], name);
      t.is(actual.translucent, picture.channels === 4, name);
      const worst = worstOf(actual, picture);
      t.true(worst <= STEPS, `${name}: off by ${worst}`);
    }
    t.deepEqual(readdirSync(temporary), []);
  });

  test.skipIf(skipped)(`${name} › colours multiplied by alpha are divided`, async t => {
    const heif = await find();
    const multiplied = paint(SIZE.width, SIZE.height, 3, (x, y) => {
      const at = 3 * (y * SIZE.width + x);
      const own = elementAt(alphaPlane.data, at / 3);
      return [...slope.data.subarray(at, at + 3)].map(value => Math.round((value * own) / 255));
    });
    const [colours] = await encode([multiplied]);
    assert.ok(colours);
    const { file } = writeHeic(one({ tiles: [colours], alpha: coded.alpha, premultiplied: true }));
    const actual = await decode(file, heif);
    for (let i = 0; i < slope.data.length; i++) {
      const pixel = Math.floor(i / 3);
      const own = elementAt(alphaPlane.data, pixel);
      if (own < 128) continue;
      const off = Math.abs(elementAt(actual.data, 4 * pixel + (i % 3)) - elementAt(slope.data, i));
      t.true(off <= 3 * STEPS, `sample ${i}: off by ${off}`);
    }
  });

  test.skipIf(skipped)(`${name} › alpha may be in tiles, and is of the picture’s size`, async t => {
    const heif = await find();
    const { colours } = await readHeic(writeHeic(grid()).file);
    const coded = await encode(await cutTiles(greySlope, TILE_PX), { chroma: '420' });
    const { colours: inTiles } = await readHeic(writeHeic(grid({ tiles: coded })).file);
    const samples = await decodeHeic({ colours, alpha: inTiles }, heif);
    for (const [x, y] of CORNERS) {
      const at = y * GRID.width + x;
      const off = Math.abs(elementAt(samples, 4 * at + 3) - elementAt(greySlope.data, 3 * at));
      t.true(off <= STEPS, `at ${x}, ${y}: off by ${off}`);
    }
    const { file } = writeHeic(grid({ alpha: elementAt(coded, 0) }));
    await t.throwsAsync(decode(file, heif), { code: 'PROCESSING_FAILED' });
  });

  test.skipIf(skipped)(
    `${name} › damaged files are refused, each tile of a grid looked at`,
    async t => {
      const heif = await find();
      const { file, dataById } = writeHeic(grid());
      const refused = { instanceOf: ContractError, code: 'PROCESSING_FAILED' };
      for (const tile of [0, 20, 47]) {
        const place = dataById.get(FIRST_TILE_ID + tile);
        assert.ok(place);
        for (const fill of [0, 0xff]) {
          const spoilt = Buffer.from(file);
          spoilt.fill(fill, place.start, place.end);
          await t.throwsAsync(decode(spoilt, heif), refused, `tile ${tile} is ${fill}`);
        }
      }
      await t.throwsAsync(decode(file.subarray(0, file.length - 5_000), heif), refused);
      const single = await encodeFile([slope], { chroma: '420' });
      for (const length of [single.length - 1, Math.floor(0.7 * single.length)]) {
        await t.throwsAsync(decode(single.subarray(0, length), heif), refused, `${length} bytes`);
      }
      const halfWritten = Buffer.from(single).fill(0, Math.floor(0.7 * single.length));
      await t.throwsAsync(decode(halfWritten, heif), refused, 'zeros to the end');
      const wrong = writeHeic(one({ ...SIZE, width: SIZE.width + 2 })).file;
      await t.throwsAsync(decode(wrong, heif), refused);
    },
  );
}

test.skipIf(untested || TESTED_DECODERS.every(one => one.untested))(
  'a worker decodes by what its pool was given, and the pool says so',
  async t => {
    const heif = await TESTED_DECODERS.find(({ untested }) => !untested)?.find();
    const log = pino({ level: 'silent' });
    const pool = await openPicturePool({ workers: 1, childEnv: CACHE_ENV, log, heif });
    t.teardown(() => pool.close(0));
    t.true(pool.capabilities.inputFormats.includes('heic'));
    const never = new AbortController().signal;
    const lease = await pool.acquire('sync', never);
    const { file } = writeHeic(one({ transforms: [irot(1)] }));
    const request = { file, declared: undefined, modelInputs: [] };
    const background = { file, declared: undefined };
    const decoded = await lease.decode({ ...request, background }, never);
    t.deepEqual([decoded.format, decoded.width, decoded.height], ['heic', SIZE.height, SIZE.width]);
    lease.release();
  },
);

test.skipIf(untested)('a node without a decoder refuses HEIC with NODE_INCAPABLE', async t => {
  const { file } = writeHeic(one());
  const options = { declared: undefined, onOpened: () => undefined };
  await t.throwsAsync(decodeFile(file, options), { code: 'NODE_INCAPABLE' });
  t.is((await readHeif(file)).width, SIZE.width);
});

test('the decoded size is bounded and declared, even if little of it is shown', async t => {
  const tile = { width: 40_000, height: 50_000, data: Buffer.alloc(9), nclx: undefined };
  const hvcC = box('hvcC', Buffer.alloc(23));
  const bomb = { ...{ width: 64, height: 64, columns: 2 }, transforms: [clap(64, 64)] };
  const { file, dataById } = writeHeic({
    ...bomb,
    tiles: [tile, tile].map(one => ({ ...one, hvcC })),
  });
  // Decoders go by the grid's own size.
  const place = dataById.get(1);
  assert.ok(place);
  const sized = (width: number, height: number) => {
    const changed = Buffer.from(file);
    changed.writeUInt16BE(width, place.start + 4);
    changed.writeUInt16BE(height, place.start + 6);
    return changed;
  };
  const heif = { kind: 'system', file: '/bin/false', version: '1.23.3' } as const;
  const decoding = (width: number, height: number) =>
    decodeFile(sized(width, height), {
      declared: { width: 64, height: 64 },
      onOpened: ({ width, height }) => t.fail(`${width}x${height} is begun`),
      heif: { ...heif, within: [], options: [] },
    });
  await t.throwsAsync(decoding(60_000, 50_000), { code: 'IMAGE_RESOLUTION_TOO_LARGE' });
  await t.throwsAsync(decoding(9000, 9000), { code: 'PROCESSING_FAILED', message: /declared/ });
});

test('a tile has a configuration, which is bounded', async t => {
  const tile = { ...SIZE, data: Buffer.alloc(9), nclx: undefined };
  const fileOf = (bytes: number, type = 'hvcC') => {
    const hvcC = box(type, Buffer.alloc(bytes));
    return writeHeic({ ...SIZE, tiles: [{ ...tile, hvcC }] }).file;
  };
  t.is((await readHeic(fileOf(4000))).colours.tiles.length, 1);
  for (const wrong of [fileOf(20_000), fileOf(17), fileOf(23, 'free')]) {
    await t.throwsAsync(readHeic(wrong), { code: 'PROCESSING_FAILED' });
  }
});

test('tiles that are coded alike share what says how, however many and however long it is', async t => {
  const fileOf = (columns: number, rows: number, kinds: number) => {
    const tiles = Array.from({ length: columns * rows }, (_, i) => ({
      ...{ width: 8, height: 8, data: Buffer.alloc(9), nclx: undefined },
      hvcC: box('hvcC', Buffer.alloc(16_000, i % kinds)),
    }));
    return writeHeic({ width: 8 * columns, height: 8 * rows, columns, tiles }).file;
  };
  const { colours } = await readHeic(fileOf(8, 8, 2));
  t.is(new Set(colours.tiles.flatMap(({ properties }) => properties)).size, 2);
  t.true(writeTiles({ colours, alpha: undefined }).length < 3 * 16_000 + 64 * 200);
  t.is((await readHeic(fileOf(8, 8, 32))).colours.tiles.length, 64);
  await t.throwsAsync(readHeic(fileOf(8, 8, 33)), { code: 'PROCESSING_FAILED' });
});
