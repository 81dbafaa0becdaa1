import { Random } from '@matting/test-support/random.ts';
import test from 'ava';
import { ContractError } from '../errors.ts';
import { type HeifFacts, readFileItems, readHeif } from '../image-header/heif-file.ts';
import { box, fullBox, hvcC, ispe, u16, u32, writeHeif } from './image-header-samples.ts';

type Parts = Parameters<typeof writeHeif>[0];
type Item = Parts['items'][number];

const irot = (quarters: number) => box('irot', Buffer.from([quarters]));
const imir = (axis: number) => box('imir', Buffer.from([axis]));
/** Width, height and the offsets of the centre, as fractions. */
const clap = (width: number, height: number, x = 0, y = 0, over = 1) =>
  box('clap', ...[width, height, x, y].map(value => u32(value >>> 0, over)));
const colr = (kind: string, content: Buffer) => box('colr', Buffer.from(kind), content);
const LUMA = { isNarrow: false, isRgb: false };
const nclx = (primaries: number, transfer: number) =>
  colr('nclx', Buffer.concat([u16(primaries, transfer, 6), Buffer.from([0x80])]));
const auxC = (urn: string) => fullBox('auxC', 0, Buffer.from(`${urn}\0`));
const ALPHA = 'urn:mpeg:mpegB:cicp:systems:auxiliary:alpha';
const PROFILE = Buffer.from('a profile of Display P3');
const P3 = colr('prof', PROFILE);

/** An Exif item: a TIFF with the orientation, after `before` bytes. */
function exifOf(orientation: number, order: 'II' | 'MM' = 'MM', before = 6): Buffer {
  const short = (value: number) => (order === 'MM' ? u16(value) : u16(value).swap16());
  const long = (value: number) => (order === 'MM' ? u32(value) : u32(value).swap32());
  const entry = (tag: number, value: number) =>
    Buffer.concat([short(tag), short(3), long(1), short(value), short(0)]);
  const head = [u32(before), Buffer.alloc(before, 'Exif'), Buffer.from(order), short(42), long(8)];
  return Buffer.concat([...head, short(2), entry(0x0100, 9), entry(0x0112, orientation)]);
}

const picture = (...properties: Buffer[]): Item => ({
  id: 1,
  type: 'hvc1',
  data: Buffer.alloc(50, 1),
  properties: [hvcC(), ispe(40, 30), ...properties],
});
const exif = (...given: Parameters<typeof exifOf>) => ({
  items: [{ id: 9, type: 'Exif', data: exifOf(...given) }],
  references: [['cdsc', 9, [1]]] as const,
});
const gridData = (rows: number, columns: number, width: number, height: number) =>
  Buffer.concat([Buffer.from([0, 0, rows - 1, columns - 1]), u16(width, height)]);

/** As from an iPhone: 48 tiles of 512, 4032 x 3024, turned by the grid. */
function gridOf(...properties: Buffer[]) {
  const ids = Array.from({ length: 48 }, (_, i) => 10 + i);
  const tiles = ids.map(id => ({ ...picture(), id, properties: [hvcC(), ispe(512, 512)] }));
  const data = gridData(6, 8, 4032, 3024);
  const items: Item[] = [{ id: 1, type: 'grid', data, properties }, ...tiles];
  return { items, references: [['dimg', 1, ids]] as const };
}

function heic(...parts: Partial<Parts>[]): Buffer {
  const brands = ['heic', 'mif1'];
  const items = parts.flatMap(part => part.items ?? []);
  const references = parts.flatMap(part => part.references ?? []);
  return writeHeif({ brands, ...Object.assign({}, ...parts), items, references });
}
const one = (...properties: Buffer[]) => ({ items: [picture(...properties)] });

const PLAIN: HeifFacts = {
  width: 40,
  height: 30,
  storedWidth: 40,
  storedHeight: 30,
  crop: { left: 0, top: 0, width: 40, height: 30 },
  orientation: 1,
  cicp: undefined,
  profile: undefined,
  hasAlpha: false,
  premultiplied: false,
};
const turned = (orientation: number) =>
  ({
    orientation,
    ...(orientation >= 5 ? { width: 30, height: 40 } : {}),
  }) as Partial<HeifFacts>;
const cropTo = (left: number, top: number, width: number, height: number) => ({
  crop: { left, top, width, height },
});
const shown = (left: number, top: number, width: number, height: number) => ({
  ...{ width, height },
  ...cropTo(left, top, width, height),
});
const tiled = {
  ...{ ...shown(0, 0, 4032, 3024), storedWidth: 4032, storedHeight: 3024 },
};
const second = { ...picture(), id: 2 };
const auxiliary = (urn: string, type = 'hvc1') => ({
  items: [{ ...second, type, properties: [hvcC(10), ispe(40, 30), auxC(urn)] }],
  references: [['auxl', 2, [1]]] as const,
});

const FACTS: [name: string, file: Buffer, Partial<HeifFacts>][] = [
  ['one item', heic(one()), {}],
  ['a hev1 item', heic({ items: [{ ...picture(), type: 'hev1' }] }), {}],
  ['a grid of 48 tiles', heic(gridOf()), tiled],
  [
    'a grid that is turned and cropped',
    heic(gridOf(ispe(4032, 3024), clap(4000, 3000), irot(3))),
    {
      ...{ ...tiled, ...cropTo(16, 12, 4000, 3000), width: 3000, height: 4000 },
      orientation: 6,
    },
  ],
  ...[1, 8, 3, 6].map((orientation, quarters): [string, Buffer, Partial<HeifFacts>] => [
    `irot ${quarters}`,
    heic(one(irot(quarters)), exif(6)),
    turned(orientation),
  ]),
  ['imir of top and bottom', heic(one(imir(0)), exif(6)), turned(4)],
  ['imir of left and right', heic(one(imir(1))), turned(2)],
  ['irot, then imir', heic(one(irot(1), imir(1))), turned(7)],
  ['imir, then irot', heic(one(imir(1), irot(1))), turned(5)],
  ['irot, then imir of top and bottom', heic(one(irot(1), imir(0))), turned(5)],
  ...[1, 2, 3, 4, 5, 6, 7, 8].map((orientation): [string, Buffer, Partial<HeifFacts>] => [
    `Exif's ${orientation} alone`,
    heic(one(), exif(orientation, orientation % 2 ? 'II' : 'MM', orientation % 3)),
    orientation === 1 ? {} : turned(orientation),
  ]),
  ['Exif of no orientation', heic(one(), exif(9)), {}],
  ['Exif of another item', heic(one(), { ...exif(6), references: [['cdsc', 9, [7]]] }), {}],
  [
    'Exif that is none',
    heic(one(), { ...exif(6), items: [{ id: 9, type: 'Exif', data: u32(2 ** 32 - 1) }] }),
    {},
  ],
  ['a crop', heic(one(clap(30, 20))), shown(5, 5, 30, 20)],
  ['a crop at a corner', heic(one(clap(31, 20, -9, 10, 2))), shown(7, 15, 16, 10)],
  ['a crop beyond the picture', heic(one(clap(40, 30, 10, -10))), shown(10, 0, 30, 20)],
  [
    'a crop, then a turn',
    heic(one(clap(30, 20, 3, 2), irot(1))),
    { ...turned(8), ...cropTo(8, 7, 30, 20), width: 20, height: 30 },
  ],
  // 12 x 10 stored becomes 10 x 12 if the picture is rotated.
  ...(
    [
      [[irot(1), clap(10, 12, -8, 6)], 8, [8, 2]],
      [[irot(2), clap(12, 10, 6, -8)], 3, [8, 18]],
      [[irot(3), clap(10, 12, -8, 6)], 6, [20, 18]],
      [[imir(1), clap(12, 10, 6, -8)], 2, [8, 2]],
      [[imir(0), clap(12, 10, 6, -8)], 4, [20, 18]],
      [[irot(1), imir(1), clap(10, 12, -8, 6)], 7, [8, 18]],
      [[imir(1), irot(1), clap(10, 12, -8, 6)], 5, [20, 2]],
    ] as const
  ).map(([boxes, orientation, [left, top]]): [string, Buffer, Partial<HeifFacts>] => {
    const size = orientation >= 5 ? { width: 10, height: 12 } : { width: 12, height: 10 };
    const expected = { ...turned(orientation), ...cropTo(left, top, 12, 10), ...size };
    return [`a crop of what is turned to ${orientation}`, heic(one(...boxes)), expected];
  }),
  [
    'a crop and Exif',
    heic(one(clap(30, 20)), exif(6)),
    { ...turned(6), ...cropTo(5, 5, 30, 20), width: 20, height: 30 },
  ],
  ['a profile', heic(one(P3)), { profile: PROFILE }],
  ['code points', heic(one(nclx(12, 13))), { cicp: { primaries: 12, transfer: 13, ...LUMA } }],
  [
    'code points and a profile',
    heic(one(nclx(9, 16), P3)),
    { profile: PROFILE, cicp: { primaries: 9, transfer: 16, ...LUMA } },
  ],
  ['alpha', heic(one(), auxiliary(ALPHA)), { hasAlpha: true }],
  ['alpha of HEVC', heic(one(), auxiliary('urn:mpeg:hevc:2015:auxid:1')), { hasAlpha: true }],
  [
    'multiplied alpha',
    heic(one(), auxiliary(ALPHA), { references: [['prem', 1, [2]]] }),
    { hasAlpha: true, premultiplied: true },
  ],
  ['a gain map', heic(one(), auxiliary('urn:com:apple:photo:2020:aux:hdrgainmap')), {}],
  ['a depth map', heic(one(), auxiliary('urn:mpeg:hevc:2015:auxid:2')), {}],
  [
    'a thumbnail of nothing that can be read',
    heic(one(), { items: [{ id: 3, type: 'jpeg' }], references: [['thmb', 3, [1]]] }),
    {},
  ],
  [
    'iOS 27: a base and its gain map as alternatives',
    heic(one(irot(3)), {
      brands: ['heic', 'mif1', 'MiHE', 'tmap'],
      items: [
        { ...second, properties: [] },
        { id: 3, type: 'tmap', data: Buffer.alloc(62) },
      ],
      references: [['dimg', 3, [1, 2]]],
    }),
    turned(6),
  ],
  [
    'a tmap as the primary item, its gain map missing',
    heic(one(irot(3)), {
      items: [{ id: 3, type: 'tmap', data: Buffer.alloc(62), properties: [ispe(9, 9)] }],
      references: [['dimg', 3, [1, 2]]],
      primaryId: 3,
    }),
    turned(6),
  ],
  [
    'a turned picture, turned on',
    heic(one(irot(1)), {
      items: [{ id: 3, type: 'iden', properties: [imir(1)] }],
      references: [['dimg', 3, [1]]],
      primaryId: 3,
    }),
    turned(7),
  ],
  [
    'a still beside a sequence',
    heic(one(), { brands: ['hevc', 'msf1', 'heic'], others: [box('moov', box('trak'))] }),
    {},
  ],
];
for (const [name, file, expected] of FACTS) {
  test(`facts of a HEIC › ${name}`, async t => {
    t.deepEqual(await readHeif(file), { ...PLAIN, ...expected });
  });
}

test('facts of a HEIC › colours are those of a tile where its grid has none', async t => {
  const { items, references } = gridOf();
  const properties = [hvcC(10), ispe(512, 512), P3];
  const coloured = items.map(item => (item.id === 10 ? { ...item, properties } : item));
  t.deepEqual((await readHeif(heic({ items: coloured, references }))).profile, PROFILE);
});

const grid = gridOf();
const withGrid = (data: Buffer) => ({
  ...grid,
  items: grid.items.map(item => (item.type === 'grid' ? { ...item, data } : item)),
});
const withTile = (changes: Partial<Item>) => ({
  ...grid,
  items: grid.items.map(item => (item.id === 57 ? { ...item, ...changes } : item)),
});
const UNSUPPORTED = 'UNSUPPORTED_IMAGE_FORMAT';
const DAMAGED = 'PROCESSING_FAILED';
const REFUSED: [name: string, file: Buffer, code?: string][] = [
  ['no items', heic({ items: [] })],
  ['no primary item', heic(one(), { primaryId: null })],
  ['a primary item that is not there', heic(one(), { primaryId: 7 })],
  ['no size', heic({ items: [{ ...picture(), properties: [hvcC()] }] })],
  ['a size of 0', heic({ items: [{ ...picture(), properties: [hvcC(), ispe(40, 0)] }] })],
  ['a rotation of no bytes', heic(one(box('irot')))],
  ['a crop of no bytes', heic(one(box('clap')))],
  ['a crop to nothing', heic(one(clap(0, 20)))],
  ['a crop outside', heic(one(clap(10, 10, 100)))],
  ['a crop over 0', heic(one(clap(30, 20, 0, 0, 0)))],
  ['a grid of no bytes', heic(withGrid(Buffer.alloc(7)))],
  ['a grid of no size', heic(withGrid(gridData(6, 8, 0, 9)))],
  ['a grid of more tiles than it names', heic(withGrid(gridData(7, 8, 4032, 3024)))],
  ['a grid of long numbers, cut', heic(withGrid(Buffer.from([0, 1, 5, 7, 0, 0, 0, 9])))],
  ['a grid without tiles', heic({ items: grid.items })],
  ['a grid in itself', heic({ ...grid, references: [['dimg', 1, Array(48).fill(1)]] })],
  ['a grid of grids', heic(withTile({ type: 'grid' })), UNSUPPORTED],
  [
    'an overlay',
    heic({
      ...grid,
      items: grid.items.map(item => (item.type === 'grid' ? { ...item, type: 'iovl' } : item)),
    }),
    UNSUPPORTED,
  ],
  ['a tile that is not there', heic({ ...grid, items: grid.items.slice(0, -1) })],
  ['a tile of JPEG', heic(withTile({ type: 'jpeg' })), UNSUPPORTED],
  ['a tile of AV1', heic(withTile({ type: 'av01' })), UNSUPPORTED],
  ['a picture of JPEG', heic({ items: [{ ...picture(), type: 'jpeg' }] }), UNSUPPORTED],
  ['alpha of AVC', heic(one(), auxiliary(ALPHA, 'avc1')), UNSUPPORTED],
];
for (const [name, file, code = DAMAGED] of REFUSED) {
  test(`facts of a HEIC › refuses ${name}`, async t => {
    await t.throwsAsync(readHeif(file), { instanceOf: ContractError, code });
  });
}

test('facts of a HEIC › reads a grid of long numbers', async t => {
  const long = Buffer.concat([Buffer.from([0, 1, 5, 7]), u32(4032, 3024)]);
  const { width, height } = await readHeif(heic(withGrid(long)));
  t.deepEqual([width, height], [4032, 3024]);
});

test('facts of a HEIC › a file that is cut anywhere is damaged', async t => {
  const file = heic(gridOf(clap(4000, 3000), irot(3), P3));
  t.is((await readHeif(file)).width, 3000);
  for (let length = 0; length < file.length; length += 23) {
    const error = await t.throwsAsync(readHeif(file.subarray(0, length)), {
      instanceOf: ContractError,
    });
    if (error?.code !== DAMAGED) t.fail(`cut at ${length}: ${error?.code}`);
  }
});

test('facts of a HEIC › 1500 seeded mutants have facts that make sense, or are refused', async t => {
  const random = new Random(20_261_123);
  const seeds = FACTS.map(([, file]) => file);
  const ends = new Map<string, number>();
  for (let round = 0; round < 1500; round += 1) {
    const file = Buffer.from(random.pick(seeds));
    for (let edits = 1 + random.below(4); edits > 0; edits -= 1) {
      const edge = random.pick([0, 1, 0x7f, 0x80, 0xff, random.below(256)]);
      file[random.below(Math.min(file.length, 2000))] = edge;
    }
    try {
      const { width, height, orientation } = await readHeif(file);
      const isWhole = [width, height].every(side => Number.isSafeInteger(side) && side > 0);
      t.true(isWhole && orientation >= 1 && orientation <= 8);
      ends.set('facts', (ends.get('facts') ?? 0) + 1);
    } catch (error) {
      if (!(error instanceof ContractError)) throw error;
      ends.set(error.code, (ends.get(error.code) ?? 0) + 1);
    }
  }
  t.deepEqual([...ends.keys()].toSorted(), [DAMAGED, UNSUPPORTED, 'facts']);
});

test('an item of many properties is looked through once, whatever refers to it', async t => {
  const own = Buffer.concat([u16(7), Buffer.from([255]), Buffer.alloc(255, 1)]);
  const associations = Array(1000).fill(own);
  const ipma = box('ipma', u32(0, associations.length), ...associations);
  const iprp = box('iprp', box('ipco', ispe(4, 4)), ipma);
  const iref = box('iref', u32(0), ...Array(7000).fill(box('auxl', u16(7, 0))));
  const meta = box('meta', u32(0), box('pitm', u32(0), u16(1)), iprp, iref);
  const items = await readFileItems(Buffer.concat([box('ftyp', Buffer.from('heic')), meta]));
  t.is(items?.references.length, 7000);
  t.is(items?.properties.get(7)?.length, 255 * associations.length);
  t.is(items?.alphas.size, 0);
});

test('properties are counted, so that a small file holds up nobody who reads its header', async t => {
  const own = Buffer.concat([u16(7), Buffer.from([255]), Buffer.alloc(255, 1)]);
  const ipma = box('ipma', u32(0, 20_000), ...Array(20_000).fill(own));
  const iprp = box('iprp', box('ipco', ispe(4, 4)), ipma);
  const meta = box('meta', u32(0), box('pitm', u32(0), u16(1)), iprp);
  const items = await readFileItems(Buffer.concat([box('ftyp', Buffer.from('heic')), meta]));
  const properties = items?.properties.get(7)?.length ?? 0;
  t.true(properties > 200_000 && properties < 400_000, `${properties}`);
});

test('an item is no longer than its file, however often it names the same bytes', async t => {
  const itemsOf = async (count: number) => {
    // Each extent is the whole file.
    const extents = u32(...Array(2 * count).fill(0));
    const item = Buffer.concat([u16(1, 0, count), extents]);
    const iloc = fullBox('iloc', 0, Buffer.from([0x44, 0]), u16(1), item);
    const meta = box('meta', u32(0), iloc, fullBox('pitm', 0, u16(1)));
    const file = Buffer.concat([box('ftyp', Buffer.from('heic')), meta]);
    return await readFileItems(file);
  };
  t.is((await itemsOf(1))?.extents.get(1)?.length, 1);
  t.is((await itemsOf(2))?.extents.has(1), false);
});
