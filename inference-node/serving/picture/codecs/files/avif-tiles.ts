/**
 * Checks that every part of an AVIF's picture is there and can be decoded. libheif (1.23) silently
 * leaves out the tiles of a grid that it cannot decode: they come out green and opaque, alpha tiles
 * transparent. sharp has no access to its strict decoding. So a tile that shows nothing but zeros
 * is decoded again by itself, where failure is an error. An intact picture seldom has such a tile,
 * so this costs next to nothing. Where a tile's place in the picture is unknown (a rotation, a
 * crop, grids of grids, premultiplied alpha), every tile is decoded again.
 *
 * Items that are not part of the picture (Exif, a thumbnail, a gain map) may be damaged or missing.
 */
import { ContractError } from '#contract/errors.ts';
import type { Size } from '#contract/finishing.ts';
import { writeCodedItem } from './avif-file.ts';
import { type AvifItem, type AvifItems, readAvifItems } from './avif-items.ts';

const CODED = 'av01';
const GRID = 'grid';
const TRANSFORMS = ['irot', 'imir', 'clap'];
/** How far the colours of neighbouring tiles reach into a tile when chroma is upsampled. */
const REACH_PX = 2;
const COLOUR_BITS = 0x00ffffff;
const ALPHA_BITS = 0xff000000;

/** Where in the picture a tile lies. */
interface Place {
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
  readonly isAlpha: boolean;
}

export interface AvifTile {
  /**
   * The decoder may have left the tile out.
   * @param rgba the oriented picture as the decoder returned it
   */
  mayBeMissing(rgba: Uint32Array, size: Size): boolean;
  /** The tile as a file of its own. */
  write(): Buffer;
}

/**
 * The tiles of the picture and of its alpha; none where the picture is no grid.
 * @throws ContractError PROCESSING_FAILED where an item of the picture is not fully in the file
 */
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

/** The items that the picture and its alpha are made of. */
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

/** The place of each tile; undefined: unknown. */
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
  // Outside the picture.
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
