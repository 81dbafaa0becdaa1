/**
 * Writes an AVIF from coded pictures: colours and alpha that were encoded apart with settings of
 * their own, in strips where the picture is large. Pure; it reads only files of our own encoder,
 * and anything unexpected in them is an error.
 *
 * AV1 Image File Format 1.1 over HEIF (ISO/IEC 23008-12): one item for the colours, one for alpha
 * (auxiliary, `auxl`), or for each a `grid` of strips one below the other.
 */

import type { Size } from '#contract/finishing.ts';

/** A coded picture as its file holds it. */
export interface CodedItem {
  /** Content of its av1C box. */
  readonly configuration: Buffer;
  readonly data: Buffer;
}

/** One strip, or the whole picture. */
export interface CodedStrip {
  readonly colours: CodedItem;
  readonly alpha: CodedItem;
}

export interface AvifParts {
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
  /** Boxes, and whether a reader must understand them. */
  readonly properties: readonly (readonly [box: Buffer, essential: boolean])[];
}

interface Reference {
  readonly type: 'auxl' | 'dimg';
  readonly from: number;
  readonly to: readonly number[];
}

/** @throws Error where there are more strips than a grid has rows. */
export function writeAvif(parts: AvifParts): Buffer {
  const [strip, ...others] = parts.strips;
  if (strip === undefined) throw new Error('a picture has at least one strip');
  return writeFile(others.length === 0 ? arrange(parts, strip) : arrangeGrid(parts));
}

/** Writes a file of one coded picture; its colours are what its data says. */
export function writeCodedItem(coded: CodedItem, { width, height }: Size): Buffer {
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

/** Writes a property that several items share once. */
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

/** The coded pictures of a file of our own encoder: the colours, then alpha if there is one. */
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
