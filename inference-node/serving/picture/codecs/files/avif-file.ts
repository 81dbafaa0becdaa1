/** AVIF files: written from coded pictures, and checked tile by tile. */
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Size } from '@matting/proto/contract/finishing.ts';

/*
 * Writes colours and alpha that were encoded apart, in strips where the picture is large. Reads
 * only files of our own encoder.
 * AV1 Image File Format 1.1 over HEIF (ISO/IEC 23008-12): one item for the colours, one for alpha
 * (`auxl`), or for each a `grid` of strips one below the other.
 */

export interface CodedItem {
  readonly configuration: Buffer;
  readonly data: Buffer;
}

export interface CodedStrip {
  readonly colours: CodedItem;
  readonly alpha: CodedItem;
}

interface AvifParts {
  readonly width: number;
  readonly height: number;
  /** From top to bottom, all of the same height; the last may extend below the picture. */
  readonly strips: readonly CodedStrip[];
  readonly stripHeight: number;
}

const COLOURS_ID = 1;
const ALPHA_ID = 2;
const FIRST_STRIP_ID = 3;
const ALPHA_TYPE = 'urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0';
/** H.273: primaries and curve of sRGB, the matrix the encoder uses (BT.601), full range. */
const NCLX_SRGB = Buffer.from([0, 1, 0, 13, 0, 6, 0x80]);
const ESSENTIAL = 0x80;
const HIDDEN = 1;

function u16(...values: number[]): Buffer {
  const bytes = Buffer.alloc(2 * values.length);
  for (const [i, value] of values.entries()) bytes.writeUInt16BE(value, 2 * i);
  return bytes;
}

function u32(...values: number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length);
  for (const [i, value] of values.entries()) bytes.writeUInt32BE(value, 4 * i);
  return bytes;
}

function box(type: string, ...content: Buffer[]): Buffer {
  const length = content.reduce((sum, part) => sum + part.length, 8);
  return Buffer.concat([u32(length), Buffer.from(type, 'latin1'), ...content]);
}

function fullBox(type: string, version: number, flags: number, ...content: Buffer[]): Buffer {
  return box(type, u32((version << 24) | flags), ...content);
}

interface Item {
  readonly id: number;
  readonly type: 'av01' | 'grid';
  readonly isHidden: boolean;
  readonly data: Buffer;
  readonly properties: readonly (readonly [box: Buffer, essential: boolean])[];
}

interface Reference {
  readonly type: 'auxl' | 'dimg';
  readonly from: number;
  readonly to: readonly number[];
}

export function writeAvif(parts: AvifParts): Buffer {
  const [strip, ...others] = parts.strips;
  if (strip === undefined) throw new Error('a picture has at least one strip');
  return writeFile(others.length === 0 ? arrange(parts, strip) : arrangeGrid(parts));
}

function writeCodedItem(coded: CodedItem, { width, height }: Size): Buffer {
  const items = [codedItem(COLOURS_ID, coded, false, sizeBox(width, height))];
  return writeFile({ items, references: [] });
}

function writeFile({ items, references }: Arrangement): Buffer {
  const ftyp = box('ftyp', Buffer.from('avif\0\0\0\0mif1avifmiaf', 'latin1'));
  // Offsets have a fixed length: the length of a first version tells where the data will lie.
  const metaBytes = writeMeta(items, references, 0).length;
  const meta = writeMeta(items, references, ftyp.length + metaBytes + 8);
  return Buffer.concat([ftyp, meta, box('mdat', ...items.map(({ data }) => data))]);
}

function sizeBox(width: number, height: number): Buffer {
  return fullBox('ispe', 0, 0, u32(width, height));
}

function coloursPixi(): Buffer {
  return fullBox('pixi', 0, 0, Buffer.from([3, 8, 8, 8]));
}

function alphaPixi(): Buffer {
  return fullBox('pixi', 0, 0, Buffer.from([1, 8]));
}

function srgbColr(): Buffer {
  return box('colr', Buffer.from('nclx', 'latin1'), NCLX_SRGB);
}

function alphaMark(): Buffer {
  return fullBox('auxC', 0, 0, Buffer.from(ALPHA_TYPE, 'latin1'));
}

function codedItem(id: number, coded: CodedItem, isHidden: boolean, ...others: Buffer[]): Item {
  const configuration = [box('av1C', coded.configuration), true] as const;
  const properties = [configuration, ...others.map(other => [other, false] as const)];
  return { id, type: 'av01', isHidden, data: coded.data, properties };
}

const ALPHA_OF_COLOURS: Reference = { type: 'auxl', from: ALPHA_ID, to: [COLOURS_ID] };

interface Arrangement {
  readonly items: readonly Item[];
  readonly references: readonly Reference[];
}

function arrange({ width, height }: Size, { colours, alpha }: CodedStrip): Arrangement {
  const size = sizeBox(width, height);
  return {
    items: [
      codedItem(COLOURS_ID, colours, false, size, coloursPixi(), srgbColr()),
      codedItem(ALPHA_ID, alpha, false, size, alphaPixi(), alphaMark()),
    ],
    references: [ALPHA_OF_COLOURS],
  };
}

function arrangeGrid({ width, height, strips, stripHeight }: AvifParts): Arrangement {
  if (strips.length > 256) throw new Error(`${strips.length} strips are too many for a grid`);
  const size = sizeBox(width, height);
  const stripSize = sizeBox(width, stripHeight);
  // Version, flags, rows and columns less one, size.
  const data = Buffer.concat([Buffer.from([0, 0, strips.length - 1, 0]), u16(width, height)]);
  const grid = (id: number, ...boxes: Buffer[]): Item => {
    const properties = boxes.map(property => [property, false] as const);
    return { id, type: 'grid', isHidden: false, data, properties };
  };
  const colourIdOf = (strip: number) => FIRST_STRIP_ID + 2 * strip;
  const alphaIdOf = (strip: number) => colourIdOf(strip) + 1;
  const coded = strips.flatMap(({ colours, alpha }, i) => [
    codedItem(colourIdOf(i), colours, true, stripSize, coloursPixi(), srgbColr()),
    codedItem(alphaIdOf(i), alpha, true, stripSize, alphaPixi(), alphaMark()),
  ]);
  return {
    items: [
      grid(COLOURS_ID, size, coloursPixi(), srgbColr()),
      grid(ALPHA_ID, size, alphaPixi(), alphaMark()),
      ...coded,
    ],
    references: [
      ALPHA_OF_COLOURS,
      { type: 'dimg', from: COLOURS_ID, to: strips.map((_, i) => colourIdOf(i)) },
      { type: 'dimg', from: ALPHA_ID, to: strips.map((_, i) => alphaIdOf(i)) },
    ],
  };
}

function writeMeta(
  items: readonly Item[],
  references: readonly Reference[],
  dataOffset: number,
): Buffer {
  const handler = Buffer.concat([u32(0), Buffer.from('pict', 'latin1'), Buffer.alloc(13)]);
  let offset = dataOffset;
  const locations = items.map(({ id, data }) => {
    // Construction method 0 (this file), one extent.
    const location = Buffer.concat([u16(id, 0, 1), u32(offset, data.length)]);
    offset += data.length;
    return location;
  });
  const infos = items.map(({ id, type, isHidden }) =>
    fullBox('infe', 2, isHidden ? HIDDEN : 0, u16(id, 0), Buffer.from(`${type}\0`, 'latin1')),
  );
  const refs = references.map(({ type, from, to }) => box(type, u16(from, to.length, ...to)));
  return fullBox(
    'meta',
    0,
    0,
    fullBox('hdlr', 0, 0, handler),
    fullBox('pitm', 0, 0, u16(COLOURS_ID)),
    // Offsets and lengths of four bytes, no base offset.
    fullBox('iloc', 0, 0, Buffer.from([0x44, 0x00]), u16(items.length), ...locations),
    fullBox('iinf', 0, 0, u16(items.length), ...infos),
    ...(refs.length === 0 ? [] : [fullBox('iref', 0, 0, ...refs)]),
    writeProperties(items),
  );
}

function writeProperties(items: readonly Item[]): Buffer {
  const indices = new Map<string, number>();
  const written: Buffer[] = [];
  const indexOf = (property: Buffer): number => {
    const key = property.toString('latin1');
    const known = indices.get(key);
    if (known !== undefined) return known;
    written.push(property);
    indices.set(key, written.length);
    return written.length;
  };
  const associations = items.map(({ id, properties }) => {
    const list = properties.map(
      ([property, isEssential]) => indexOf(property) | (isEssential ? ESSENTIAL : 0),
    );
    return Buffer.concat([u16(id), Buffer.from([list.length, ...list])]);
  });
  if (written.length >= ESSENTIAL) throw new Error('more properties than short indices reach');
  const ipma = fullBox('ipma', 0, 0, u32(items.length), ...associations);
  return box('iprp', box('ipco', ...written), ipma);
}

interface Span {
  readonly type: string;
  readonly start: number;
  readonly end: number;
}

function spansIn(file: Buffer, start: number, end: number): Span[] {
  const spans: Span[] = [];
  for (let at = start; at + 8 <= end; ) {
    const length = file.readUInt32BE(at);
    if (length < 8 || at + length > end) throw new Error('a box of the encoder cannot be read');
    const type = file.toString('latin1', at + 4, at + 8);
    spans.push({ type, start: at + 8, end: at + length });
    at += length;
  }
  return spans;
}

function requireSpan(spans: readonly Span[], type: string): Span {
  const found = spans.find(span => span.type === type);
  if (found === undefined) throw new Error(`the encoder's file has no ${type}`);
  return found;
}

export function readCodedItems(file: Buffer): CodedItem[] {
  const meta = requireSpan(spansIn(file, 0, file.length), 'meta');
  const parts = spansIn(file, meta.start + 4, meta.end);
  const iloc = requireSpan(parts, 'iloc');
  const iprp = requireSpan(parts, 'iprp');
  const ipco = requireSpan(spansIn(file, iprp.start, iprp.end), 'ipco');
  const configurations = spansIn(file, ipco.start, ipco.end).filter(({ type }) => type === 'av1C');
  // Version 0, offsets and lengths of four bytes, base offsets of four: libheif's.
  const layout = file.readUInt32BE(iloc.start) === 0 && file.readUInt16BE(iloc.start + 4);
  const count = file.readUInt16BE(iloc.start + 6);
  if (layout !== 0x4440 || count !== configurations.length) {
    throw new Error("the encoder's items are not laid out as expected");
  }
  return configurations.map((configuration, i) => {
    const at = iloc.start + 8 + 18 * i;
    const offset = file.readUInt32BE(at + 4) + file.readUInt32BE(at + 10);
    const length = file.readUInt32BE(at + 14);
    if (file.readUInt16BE(at + 8) !== 1 || offset + length > file.length) {
      throw new Error("an item of the encoder's file is in several pieces or outside it");
    }
    return {
      configuration: file.subarray(configuration.start, configuration.end),
      data: file.subarray(offset, offset + length),
    };
  });
}

/** Reads which items an AVIF has, and where. Hostile files are expected: loops are bounded. */

/** Boxes and list entries of one file; a grid has at most 65,536 tiles, of three entries each. */
const STEPS_MAX = 400_000;
const ALPHA_TYPES = [
  'urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0',
  'urn:mpeg:hevc:2015:auxid:1\0',
];

interface AvifItem {
  readonly type: string;
  /** Offsets in the file; undefined where they cannot be read or lie in another file. */
  readonly extents: readonly { readonly start: number; readonly end: number }[] | undefined;
  readonly properties: readonly Span[];
}

interface AvifItems {
  readonly primaryId: number | undefined;
  readonly byId: ReadonlyMap<number, AvifItem>;
  /** What a derived item is made of, in order, by the derived item. */
  readonly inputs: ReadonlyMap<number, readonly number[]>;
  /** Alpha planes, by the item that they belong to. */
  readonly alphas: ReadonlyMap<number, readonly number[]>;
  /** Some item stores its colours multiplied by its alpha. */
  readonly isPremultiplied: boolean;
}

/** Reads numbers one after the other; behind the end they are 0, and `overrun` is true. */
class Cursor {
  readonly #file: Buffer;
  readonly #end: number;
  at: number;

  constructor(file: Buffer, { start, end }: Span) {
    this.#file = file;
    this.at = start;
    this.#end = Math.min(end, file.length);
  }

  get overrun(): boolean {
    return this.at > this.#end;
  }

  /** Big endian, 0 to 8 bytes; more bytes are an overrun. */
  number(bytes: number): number {
    const from = this.at;
    this.at = bytes > 8 ? Number.POSITIVE_INFINITY : from + bytes;
    if (this.overrun || bytes === 0) return 0;
    if (bytes <= 6) return this.#file.readUIntBE(from, bytes);
    return (
      this.#file.readUIntBE(from, bytes - 4) * 2 ** 32 + this.#file.readUInt32BE(from + bytes - 4)
    );
  }
}

class ItemReader {
  readonly #file: Buffer;
  #stepsLeft = STEPS_MAX;

  constructor(file: Buffer) {
    this.#file = file;
  }

  #step(): boolean {
    this.#stepsLeft -= 1;
    return this.#stepsLeft >= 0;
  }

  spans(start: number, end: number): Span[] {
    const spans: Span[] = [];
    for (let at = start; at + 8 <= end && this.#step(); ) {
      const cursor = new Cursor(this.#file, { type: '', start: at, end });
      const short = cursor.number(4);
      cursor.at += 4;
      const length = short === 1 ? cursor.number(8) : short === 0 ? end - at : short;
      if (at + length < cursor.at || cursor.overrun) break;
      const type = this.#file.toString('latin1', at + 4, at + 8);
      spans.push({ type, start: cursor.at, end: Math.min(end, at + length) });
      at += length;
    }
    return spans;
  }

  read(): AvifItems {
    const meta = this.spans(0, this.#file.length).find(({ type }) => type === 'meta');
    const boxes = meta === undefined ? [] : this.spans(meta.start + 4, meta.end);
    const find = (name: string) => boxes.find(({ type }) => type === name);
    const types = this.#readTypes(find('iinf'));
    const extents = this.#readLocations(find('iloc'), find('idat'));
    const properties = this.#readProperties(find('iprp'));
    const byId = new Map<number, AvifItem>();
    for (const [id, type] of types) {
      byId.set(id, { type, extents: extents.get(id), properties: properties.get(id) ?? [] });
    }
    const references = this.#readReferences(find('iref'));
    const inputs = new Map<number, readonly number[]>();
    const alphas = new Map<number, number[]>();
    for (const { type, from, to } of references) {
      if (type === 'dimg') inputs.set(from, to);
      if (type !== 'auxl' || !this.#isAlpha(byId.get(from))) continue;
      for (const id of to) {
        const planes = alphas.get(id);
        if (planes === undefined) alphas.set(id, [from]);
        else planes.push(from);
      }
    }
    const isPremultiplied = references.some(({ type }) => type === 'prem');
    const primaryId = this.#readPrimaryId(find('pitm'));
    return { primaryId, byId, inputs, alphas, isPremultiplied };
  }

  #readPrimaryId(pitm: Span | undefined): number | undefined {
    if (pitm === undefined) return undefined;
    const cursor = new Cursor(this.#file, pitm);
    const version = cursor.number(4) >>> 24;
    const id = cursor.number(version === 0 ? 2 : 4);
    return cursor.overrun ? undefined : id;
  }

  #readTypes(iinf: Span | undefined): Map<number, string> {
    const types = new Map<number, string>();
    if (iinf === undefined) return types;
    const isLong = this.#file[iinf.start] !== 0;
    for (const infe of this.spans(iinf.start + (isLong ? 8 : 6), iinf.end)) {
      const cursor = new Cursor(this.#file, infe);
      const version = cursor.number(4) >>> 24;
      const id = cursor.number(version >= 3 ? 4 : 2);
      cursor.at += 2;
      const type = this.#file.toString('latin1', cursor.at, cursor.at + 4);
      if (infe.type === 'infe' && version >= 2) types.set(id, type);
    }
    return types;
  }

  #readLocations(iloc: Span | undefined, idat: Span | undefined): Map<number, AvifItem['extents']> {
    const locations = new Map<number, AvifItem['extents']>();
    if (iloc === undefined) return locations;
    const cursor = new Cursor(this.#file, iloc);
    const version = cursor.number(4) >>> 24;
    const sizes = cursor.number(2);
    const [offsetBytes, lengthBytes, baseBytes] = [
      sizes >> 12,
      (sizes >> 8) & 15,
      (sizes >> 4) & 15,
    ];
    const indexBytes = version === 0 ? 0 : sizes & 15;
    const count = cursor.number(version < 2 ? 2 : 4);
    for (let i = 0; i < count && this.#step() && !cursor.overrun; i++) {
      const id = cursor.number(version < 2 ? 2 : 4);
      const method = version === 0 ? 0 : cursor.number(2) & 15;
      const isElsewhere = cursor.number(2) !== 0;
      const base = cursor.number(baseBytes);
      // In the file, or in the box `idat`; a third method refers to other items.
      const source = method === 0 ? { start: 0, end: Number.POSITIVE_INFINITY } : idat;
      const extents: { start: number; end: number }[] = [];
      const extentCount = cursor.number(2);
      for (let j = 0; j < extentCount && this.#step() && !cursor.overrun; j++) {
        cursor.at += indexBytes;
        const start = (source?.start ?? 0) + base + cursor.number(offsetBytes);
        const length = cursor.number(lengthBytes);
        // A length of 0 means up to the end.
        const all = method === 0 ? this.#file.length : (idat?.end ?? 0);
        extents.push({ start, end: length === 0 ? all : start + length });
      }
      const isKnown = !isElsewhere && method <= 1 && source !== undefined && !cursor.overrun;
      const isInside = extents.every(({ end }) => end <= (source?.end ?? 0));
      locations.set(id, isKnown && isInside ? extents : undefined);
    }
    return locations;
  }

  #readReferences(iref: Span | undefined) {
    const references: { type: string; from: number; to: number[] }[] = [];
    if (iref === undefined) return references;
    const idBytes = this.#file[iref.start] === 0 ? 2 : 4;
    for (const span of this.spans(iref.start + 4, iref.end)) {
      const cursor = new Cursor(this.#file, span);
      const from = cursor.number(idBytes);
      const count = cursor.number(2);
      const to: number[] = [];
      for (let i = 0; i < count && this.#step() && !cursor.overrun; i++) {
        to.push(cursor.number(idBytes));
      }
      references.push({ type: span.type, from, to });
    }
    return references;
  }

  #readProperties(iprp: Span | undefined): Map<number, Span[]> {
    const byId = new Map<number, Span[]>();
    if (iprp === undefined) return byId;
    const children = this.spans(iprp.start, iprp.end);
    const ipco = children.find(({ type }) => type === 'ipco');
    const properties = ipco === undefined ? [] : this.spans(ipco.start, ipco.end);
    for (const ipma of children.filter(({ type }) => type === 'ipma')) {
      const cursor = new Cursor(this.#file, ipma);
      const head = cursor.number(4);
      const count = cursor.number(4);
      const indexBytes = (head & 1) === 0 ? 1 : 2;
      const indexMask = indexBytes === 1 ? 0x7f : 0x7fff;
      for (let i = 0; i < count && this.#step() && !cursor.overrun; i++) {
        const id = cursor.number(head >>> 24 === 0 ? 2 : 4);
        const own = byId.get(id) ?? [];
        for (let left = cursor.number(1); left > 0; left--) {
          const property = properties[(cursor.number(indexBytes) & indexMask) - 1];
          if (property !== undefined) own.push(property);
        }
        byId.set(id, own);
      }
    }
    return byId;
  }

  #isAlpha(item: AvifItem | undefined): boolean {
    const auxC = item?.properties.find(({ type }) => type === 'auxC');
    if (auxC === undefined) return false;
    const name = this.#file.toString('latin1', auxC.start + 4, auxC.end);
    return ALPHA_TYPES.some(type => name.startsWith(type));
  }
}

function readAvifItems(file: Buffer): AvifItems {
  return new ItemReader(file).read();
}

/*
 * libheif (1.23) silently leaves out the tiles of a grid that it cannot decode: green and opaque,
 * alpha transparent. sharp has no access to its strict decoding, so a tile of nothing but zeros is
 * decoded again by itself, where failure is an error; it is seldom in an intact picture. Where its
 * place is unknown (rotation, crop, grids of grids, premultiplied alpha) every tile is. Items that
 * are not of the picture (Exif, a thumbnail, a gain map) may be damaged or missing.
 */

const CODED = 'av01';
const GRID = 'grid';
const TRANSFORMS = ['irot', 'imir', 'clap'];
/** How far the colours of neighbouring tiles reach into a tile when chroma is upsampled. */
const REACH_PX = 2;
const COLOUR_BITS = 0x00ffffff;
const ALPHA_BITS = 0xff000000;

interface Place {
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
  readonly isAlpha: boolean;
}

interface AvifTile {
  /** The decoder may have left it out of `rgba`, the oriented picture. */
  mayBeMissing(rgba: Uint32Array, size: Size): boolean;
  write(): Buffer;
}

/** None where the picture is no grid. @throws ContractError PROCESSING_FAILED */
export function readAvifTiles(file: Buffer): AvifTile[] {
  const items = readAvifItems(file);
  const { all, inGrid } = findPicture(items);
  const places = findPlaces(file, items);
  const tiles: AvifTile[] = [];
  for (const id of all) {
    const item = items.byId.get(id);
    const extents = item?.extents;
    if (item === undefined || extents === undefined) throw damage();
    if (extents.some(({ start, end }) => end < start || end > file.length)) throw damage();
    if (!inGrid.has(id) || item.type === GRID) continue;
    tiles.push({
      mayBeMissing: (rgba, size) => mayBeMissing(rgba, size, places?.get(id)),
      write: () => writeTile(file, item),
    });
  }
  return tiles;
}

function damage(): ContractError {
  return new ContractError('PROCESSING_FAILED', 'the image is damaged or parts of it are missing');
}

function findPicture({ primaryId, inputs, alphas, byId }: AvifItems) {
  const all = new Set<number>();
  const inGrid = new Set<number>();
  const queue = primaryId === undefined ? [] : [primaryId];
  for (let id = queue.pop(); id !== undefined; id = queue.pop()) {
    if (all.has(id)) continue;
    all.add(id);
    const parts = inputs.get(id) ?? [];
    if (byId.get(id)?.type === GRID) for (const part of parts) inGrid.add(part);
    for (const part of [...parts, ...(alphas.get(id) ?? [])]) queue.push(part);
  }
  return { all, inGrid };
}

function findPlaces(file: Buffer, items: AvifItems): Map<number, Place> | undefined {
  const { primaryId, inputs, alphas, byId, isPremultiplied } = items;
  if (primaryId === undefined || isPremultiplied) return undefined;
  const places = new Map<number, Place>();
  let size: Size | undefined;
  for (const id of [primaryId, ...(alphas.get(primaryId) ?? [])]) {
    const item = byId.get(id);
    if (item === undefined || item.properties.some(({ type }) => TRANSFORMS.includes(type))) {
      return undefined;
    }
    if (item.type !== GRID) continue;
    const parts = inputs.get(id) ?? [];
    const grid = readGrid(file, item);
    const [first] = parts;
    const tileSize = first === undefined ? undefined : readSize(file, byId.get(first));
    if (grid === undefined || tileSize === undefined) return undefined;
    // Alpha of another size is scaled to that of the colours.
    if (size !== undefined && (grid.width !== size.width || grid.height !== size.height)) {
      return undefined;
    }
    size = grid;
    for (const [i, part] of parts.entries()) {
      const left = (i % grid.columns) * tileSize.width;
      const top = Math.floor(i / grid.columns) * tileSize.height;
      const right = Math.min(left + tileSize.width, grid.width);
      const bottom = Math.min(top + tileSize.height, grid.height);
      places.set(part, { left, top, right, bottom, isAlpha: id !== primaryId });
    }
  }
  return places;
}

function readGrid(file: Buffer, { extents }: AvifItem) {
  const extent = extents?.length === 1 ? extents[0] : undefined;
  if (extent === undefined || extent.end > file.length || extent.end - extent.start < 8) {
    return undefined;
  }
  const data = file.subarray(extent.start, extent.end);
  const isLong = (data.readUInt8(1) & 1) === 1;
  if (isLong && data.length < 12) return undefined;
  return {
    columns: data.readUInt8(3) + 1,
    width: isLong ? data.readUInt32BE(4) : data.readUInt16BE(4),
    height: isLong ? data.readUInt32BE(8) : data.readUInt16BE(6),
  };
}

function readSize(file: Buffer, item: AvifItem | undefined): Size | undefined {
  const ispe = item?.properties.find(({ type }) => type === 'ispe');
  if (ispe === undefined || ispe.end - ispe.start < 12) return undefined;
  const [width, height] = [file.readUInt32BE(ispe.start + 4), file.readUInt32BE(ispe.start + 8)];
  return { width, height };
}

function mayBeMissing(rgba: Uint32Array, size: Size, place: Place | undefined): boolean {
  if (place === undefined) return true;
  const { left, top, right, bottom, isAlpha } = place;
  const { width, height } = size;
  if (right > width || bottom > height) return true;
  if (left >= right || top >= bottom) return false;
  const bits = isAlpha ? ALPHA_BITS : COLOUR_BITS;
  const [fromX, fromY] = [left + REACH_PX, top + REACH_PX];
  // Zeros are one colour, whatever that is in the file's colours; in alpha they are 0.
  const zero = isAlpha ? 0 : (rgba[fromY * width + fromX] ?? 0) & bits;
  for (let y = fromY; y < bottom - REACH_PX; y++) {
    for (let x = fromX; x < right - REACH_PX; x++) {
      if ((rgba[y * width + x]! & bits) !== zero) return false;
    }
  }
  return true;
}

function writeTile(file: Buffer, item: AvifItem): Buffer {
  const { type, extents = [], properties } = item;
  const av1C = properties.find(property => property.type === 'av1C');
  const size = readSize(file, item);
  if (type !== CODED || av1C === undefined || size === undefined) throw damage();
  const configuration = file.subarray(av1C.start, av1C.end);
  const data = Buffer.concat(extents.map(({ start, end }) => file.subarray(start, end)));
  return writeCodedItem({ configuration, data }, size);
}
