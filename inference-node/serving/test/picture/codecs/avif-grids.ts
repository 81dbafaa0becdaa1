/** AVIF grids of every kind, put together from tiles that sharp encoded: it writes none itself. */
import { box, u16, u32 } from '@matting/proto/contract/test/image-header-samples.ts';
import { at as elementAt } from '@matting/test-support/at.ts';
import sharp from 'sharp';
import { readCodedItems } from '../../../picture/codecs/files/avif-file.ts';
import type { Pixels } from '../../pictures.ts';

type CodedItem = Awaited<ReturnType<typeof readCodedItems>>[number];

export const IROT_90 = box('irot', Buffer.from([1]));
/** The middle 60 x 40. */
export const CLAP_60X40 = box('clap', u32(60, 1, 40, 1, 0, 1, 0, 1));
const ALPHA_TYPE = 'urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0';

export interface GridKind {
  readonly columns: number;
  readonly rows: number;
  /** Square; the picture ends within the last ones where it is no multiple of it. */
  readonly tilePx: number;
  readonly bitdepth?: 8 | 10;
  readonly chroma?: '4:4:4' | '4:2:0';
  readonly transforms?: readonly Buffer[];
  readonly isInIdat?: boolean;
  /** Every item in two extents. */
  readonly isSplit?: boolean;
  /** The picture is a grid of one tile, and that tile is the grid. */
  readonly isNested?: boolean;
  readonly profile?: Buffer | undefined;
}

export interface Item {
  readonly id: number;
  readonly type: string;
  readonly data: Buffer;
  readonly properties: readonly Buffer[];
}

export interface Reference {
  readonly type: string;
  readonly from: number;
  readonly to: readonly number[];
}

/** Colours first, alpha second where the pixels have one. */
async function encodeTile(pixels: Pixels, left: number, top: number, kind: GridKind) {
  const { data, width, height, channels } = pixels;
  const { tilePx, bitdepth = 8, chroma = '4:4:4' } = kind;
  const there = { width: Math.min(tilePx, width - left), height: Math.min(tilePx, height - top) };
  const cut = await sharp(data, { raw: { width, height, channels } })
    .extract({ left, top, ...there })
    .extend({ right: tilePx - there.width, bottom: tilePx - there.height, extendWith: 'copy' })
    .avif({ effort: 0, quality: 70, chromaSubsampling: chroma, bitdepth })
    .toBuffer();
  return await readCodedItems(cut);
}

const size = (width: number, height: number) => box('ispe', u32(0, width, height));

/** The file, and the offsets of each item's data in it. */
export interface GridFile {
  readonly file: Buffer;
  readonly dataById: ReadonlyMap<number, { readonly start: number; readonly end: number }>;
}

/** Item 1, its alpha 2, colour tiles from 10 on, alpha tiles from 50, a thumbnail 90. */
export async function writeGrid(pixels: Pixels, kind: GridKind): Promise<GridFile> {
  const { width, height } = pixels;
  const { columns, rows, tilePx } = kind;
  const tiles: CodedItem[][] = [];
  for (let i = 0; i < columns * rows; i++) {
    const left = (i % columns) * tilePx;
    tiles.push(await encodeTile(pixels, left, Math.floor(i / columns) * tilePx, kind));
  }
  const items: Item[] = [];
  const references: Reference[] = [];
  const addGrid = (id: number, firstTile: number, coded: CodedItem[], own: readonly Buffer[]) => {
    const of = (count: number, across: number) =>
      Buffer.concat([Buffer.from([0, 0, count / across - 1, across - 1]), u16(width, height)]);
    const inner = kind.isNested ? id + 4 : id;
    const properties = [size(width, height), ...own];
    if (inner !== id) {
      items.push({ id, type: 'grid', data: of(1, 1), properties });
      references.push({ type: 'dimg', from: id, to: [inner] });
    }
    items.push({
      id: inner,
      type: 'grid',
      data: of(columns * rows, columns),
      properties: inner === id ? properties : [size(width, height)],
    });
    const to = coded.map((_, i) => firstTile + i);
    references.push({ type: 'dimg', from: inner, to });
    for (const [i, { configuration, data }] of coded.entries()) {
      const tileProperties = [box('av1C', configuration), size(tilePx, tilePx)];
      items.push({ id: firstTile + i, type: 'av01', data, properties: tileProperties });
    }
  };
  const { transforms = [], profile } = kind;
  const colr = profile === undefined ? [] : [box('colr', Buffer.from('prof', 'latin1'), profile)];
  const colours = tiles.map(own => elementAt(own, 0));
  const alphas = tiles.flatMap(([, own]) => own ?? []);
  addGrid(1, 10, colours, [...colr, ...transforms]);
  if (alphas.length > 0) {
    const mark = box('auxC', u32(0), Buffer.from(ALPHA_TYPE, 'latin1'));
    addGrid(2, 50, alphas, [mark, ...transforms]);
    references.push({ type: 'auxl', from: 2, to: [1] });
  }
  const { configuration, data } = elementAt(colours, 0);
  const thumbnail = [box('av1C', configuration), size(tilePx, tilePx)];
  items.push({ id: 90, type: 'av01', data, properties: thumbnail });
  references.push({ type: 'thmb', from: 90, to: [1] });
  return assemble('avif\0\0\0\0mif1avif', items, references, kind);
}

type Layout = Pick<GridKind, 'isInIdat' | 'isSplit'>;

/** The first two items are shown, the others hidden; 1 is the primary. */
export function assemble(
  brands: string,
  items: readonly Item[],
  references: readonly Reference[],
  kind: Layout = {},
): GridFile {
  const ftyp = box('ftyp', Buffer.from(brands, 'latin1'));
  const metaBytes = writeMeta(items, references, kind, 0).length;
  const dataStart = kind.isInIdat ? 0 : ftyp.length + metaBytes + 8;
  const meta = writeMeta(items, references, kind, dataStart);
  const data = items.map(item => item.data);
  const file = Buffer.concat([ftyp, meta, ...(kind.isInIdat ? [] : [box('mdat', ...data)])]);
  // The data lies behind everything else, in the same order.
  let start = file.length - data.reduce((sum, part) => sum + part.length, 0);
  const dataById = new Map<number, { start: number; end: number }>();
  for (const { id, data: own } of items) {
    dataById.set(id, { start, end: start + own.length });
    start += own.length;
  }
  return { file, dataById };
}

function writeMeta(
  items: readonly Item[],
  references: readonly Reference[],
  kind: Layout,
  dataStart: number,
) {
  const every = items.flatMap(item => item.properties);
  const properties = every.filter((one, i) => every.findIndex(other => other.equals(one)) === i);
  let offset = dataStart;
  const locations = items.map(({ id, data }) => {
    const parts = kind.isSplit
      ? [data.length >> 1, data.length - (data.length >> 1)]
      : [data.length];
    const extents = parts.map(length => {
      offset += length;
      return u32(offset - length, length);
    });
    return Buffer.concat([u16(id, kind.isInIdat ? 1 : 0, 0, extents.length), ...extents]);
  });
  const infos = items.map(({ id, type }) => {
    const isShown = id <= 2;
    const name = Buffer.from(`${type}\0`, 'latin1');
    return box('infe', u32(0x02000000 | (isShown ? 0 : 1)), u16(id, 0), name);
  });
  const associations = items.map(item => {
    const indices = item.properties.map(property => {
      const index = 1 + properties.findIndex(other => other.equals(property));
      const isEssential = ['av1C', 'hvcC', 'irot', 'imir', 'clap'].includes(
        property.toString('latin1', 4, 8),
      );
      return index | (isEssential ? 0x80 : 0);
    });
    return Buffer.concat([u16(item.id), Buffer.from([indices.length, ...indices])]);
  });
  const refs = references.map(({ type, from, to }) => box(type, u16(from, to.length, ...to)));
  return box(
    'meta',
    u32(0),
    box('hdlr', u32(0, 0), Buffer.from('pict', 'latin1'), Buffer.alloc(13)),
    box('pitm', u32(0), u16(1)),
    // Version 1: with a construction method.
    box('iloc', u32(0x01000000), Buffer.from([0x44, 0x00]), u16(items.length), ...locations),
    box('iinf', u32(0), u16(items.length), ...infos),
    box('iref', u32(0), ...refs),
    box('iprp', box('ipco', ...properties), box('ipma', u32(0, items.length), ...associations)),
    ...(kind.isInIdat ? [box('idat', ...items.map(({ data }) => data))] : []),
  );
}
