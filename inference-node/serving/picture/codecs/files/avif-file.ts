/** AVIF files: written from coded pictures, and checked tile by tile. */
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { type Box, inputsOf, propertiesOf } from '@matting/proto/contract/image-header/heif.ts';
import {
  type FileItems,
  itemSize,
  readFileItems,
  readGrid,
} from '@matting/proto/contract/image-header/heif-file.ts';
import {
  ALPHA_ID,
  ALPHA_OF_COLOURS,
  type Arrangement,
  alphaMark,
  box,
  COLOURS_ID,
  fullBox,
  type HeifItem,
  sizeBox,
  u16,
  writeHeif,
} from './heif-writer.ts';

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
  /**
   * The strips go from top to bottom, all of the same height; the last may extend below the
   * picture.
   */
  readonly strips: readonly CodedStrip[];
  readonly stripHeight: number;
}

const FIRST_STRIP_ID = 3;
/** H.273: primaries and curve of sRGB, the matrix the encoder uses (BT.601), full range. */
const NCLX_SRGB = Buffer.from([0, 1, 0, 13, 0, 6, 0x80]);

export function writeAvif(parts: AvifParts): Buffer {
  const [strip, ...others] = parts.strips;
  if (strip === undefined) throw new Error('a picture has at least one strip');
  return writeHeif(BRANDS, others.length === 0 ? arrange(parts, strip) : arrangeGrid(parts));
}

const BRANDS = 'avif\0\0\0\0mif1avifmiaf';

function writeCodedItem(coded: CodedItem, { width, height }: Size): Buffer {
  const items = [codedItem(COLOURS_ID, coded, false, sizeBox(width, height))];
  return writeHeif(BRANDS, { items, references: [] });
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

function codedItem(id: number, coded: CodedItem, isHidden: boolean, ...others: Buffer[]): HeifItem {
  const configuration = [box('av1C', coded.configuration), true] as const;
  const properties = [configuration, ...others.map(other => [other, false] as const)];
  return { id, type: 'av01', isHidden, data: coded.data, properties };
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
  const grid = (id: number, ...boxes: Buffer[]): HeifItem => {
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

function spansIn(file: Buffer, start: number, end: number): Box[] {
  const spans: Box[] = [];
  for (let at = start; at + 8 <= end; ) {
    const length = file.readUInt32BE(at);
    if (length < 8 || at + length > end) throw new Error('a box of the encoder cannot be read');
    const type = file.toString('latin1', at + 4, at + 8);
    spans.push({ type, start: at + 8, end: at + length });
    at += length;
  }
  return spans;
}

function requireSpan(spans: readonly Box[], type: string): Box {
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
/** The colours of neighbouring tiles reach so far into a tile when chroma is upsampled. */
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

/**
 * Returns no tiles if the picture is not a grid.
 * @throws ContractError PROCESSING_FAILED
 */
export async function readAvifTiles(file: Buffer): Promise<AvifTile[]> {
  const items = await readFileItems(file);
  if (items === undefined) return [];
  const { all, inGrid } = findPicture(items);
  const places = findPlaces(file, items);
  const tiles: AvifTile[] = [];
  for (const id of all) {
    if (!items.extents.has(id)) throw damage();
    if (!inGrid.has(id) || items.types.get(id) === GRID) continue;
    tiles.push({
      mayBeMissing: (rgba, size) => mayBeMissing(rgba, size, places?.get(id)),
      write: () => writeTile(file, items, id),
    });
  }
  return tiles;
}

function damage(): ContractError {
  return new ContractError('PROCESSING_FAILED', 'The image is damaged or incomplete.');
}

function findPicture(items: FileItems) {
  const { primaryId, types, alphas } = items;
  const all = new Set<number>();
  const inGrid = new Set<number>();
  const queue = primaryId === undefined ? [] : [primaryId];
  for (let id = queue.pop(); id !== undefined; id = queue.pop()) {
    if (all.has(id)) continue;
    all.add(id);
    const parts = inputsOf(items, id) ?? [];
    if (types.get(id) === GRID) for (const part of parts) inGrid.add(part);
    for (const part of [...parts, ...(alphas.get(id) ?? [])]) queue.push(part);
  }
  return { all, inGrid };
}

function findPlaces(file: Buffer, items: FileItems): Map<number, Place> | undefined {
  const { primaryId, types, alphas, references } = items;
  const isPremultiplied = references.some(({ type }) => type === 'prem');
  if (primaryId === undefined || isPremultiplied) return undefined;
  const places = new Map<number, Place>();
  let size: Size | undefined;
  for (const id of [primaryId, ...(alphas.get(primaryId) ?? [])]) {
    if (propertiesOf(items, id).some(({ type }) => TRANSFORMS.includes(type))) return undefined;
    if (types.get(id) !== GRID) continue;
    const parts = inputsOf(items, id) ?? [];
    const grid = readGrid(file, items, id);
    const [first] = parts;
    const tileSize = first === undefined ? undefined : itemSize(file, items, first);
    if (tileSize === undefined) return undefined;
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

function writeTile(file: Buffer, items: FileItems, id: number): Buffer {
  const av1C = propertiesOf(items, id).find(({ type }) => type === 'av1C');
  const size = itemSize(file, items, id);
  if (items.types.get(id) !== CODED || av1C === undefined || size === undefined) throw damage();
  const configuration = file.subarray(av1C.start, av1C.end);
  const extents = items.extents.get(id) ?? [];
  const data = Buffer.concat(extents.map(({ start, end }) => file.subarray(start, end)));
  return writeCodedItem({ configuration, data }, size);
}
