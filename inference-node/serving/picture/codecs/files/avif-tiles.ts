/**
 * libheif (1.23) silently omits undecodable tiles of an AVIF grid: green and opaque, in alpha
 * transparent. sharp has no access to its strict decoding. So a tile of nothing but zeros, which is
 * rare in an intact picture, is decoded again by itself, where damage is an error. If the tiles'
 * positions are unknown (rotation, crop, grids of grids, premultiplied alpha), every tile is
 * decoded again. Items outside of the picture (Exif, a thumbnail, a gain map) may be damaged.
 */
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { inputsOf, propertiesOf } from '@matting/proto/contract/image-header/heif.ts';
import {
  bytesOf,
  type FileItems,
  itemSize,
  readFileItems,
  readGrid,
} from '@matting/proto/contract/image-header/heif-file.ts';
import { writeCodedItem } from './avif-file.ts';

const CODED = 'av01';
const GRID = 'grid';
const TRANSFORMS = ['irot', 'imir', 'clap'];
/** Upsampling chroma changes pixels this near to another tile. */
const REACH_PX = 2;
const COLOUR_BITS = 0x00ffffff;
const ALPHA_BITS = 0xff000000;

interface TileArea {
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
  readonly isAlpha: boolean;
}

interface AvifTile {
  /** @param rgba the oriented picture */
  mayBeMissing(rgba: Uint32Array, size: Size): boolean;
  write(): Buffer;
}

/**
 * Empty if the picture is not a grid.
 * @throws ContractError PROCESSING_FAILED
 */
export async function readAvifTiles(file: Buffer): Promise<AvifTile[]> {
  const items = await readFileItems(file);
  if (items === undefined) return [];
  const { all, inGrid } = findPicture(items);
  const areas = findAreas(file, items);
  const tiles: AvifTile[] = [];
  for (const id of all) {
    if (!items.extents.has(id)) throw damage();
    if (!inGrid.has(id) || items.types.get(id) === GRID) continue;
    tiles.push({
      mayBeMissing: (rgba, size) => mayBeMissing(rgba, size, areas?.get(id)),
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

function findAreas(file: Buffer, items: FileItems): Map<number, TileArea> | undefined {
  const { primaryId, types, alphas, references } = items;
  const isPremultiplied = references.some(({ type }) => type === 'prem');
  if (primaryId === undefined || isPremultiplied) return undefined;
  const areas = new Map<number, TileArea>();
  let size: Size | undefined;
  for (const id of [primaryId, ...(alphas.get(primaryId) ?? [])]) {
    if (propertiesOf(items, id).some(({ type }) => TRANSFORMS.includes(type))) return undefined;
    if (types.get(id) !== GRID) continue;
    const parts = inputsOf(items, id) ?? [];
    const grid = readGrid(file, items, id);
    const [first] = parts;
    const tileSize = first === undefined ? undefined : itemSize(file, items, first);
    if (tileSize === undefined) return undefined;
    // The decoder scales alpha of another size.
    if (size !== undefined && (grid.width !== size.width || grid.height !== size.height)) {
      return undefined;
    }
    size = grid;
    for (const [i, part] of parts.entries()) {
      const left = (i % grid.columns) * tileSize.width;
      const top = Math.floor(i / grid.columns) * tileSize.height;
      const right = Math.min(left + tileSize.width, grid.width);
      const bottom = Math.min(top + tileSize.height, grid.height);
      areas.set(part, { left, top, right, bottom, isAlpha: id !== primaryId });
    }
  }
  return areas;
}

function mayBeMissing(rgba: Uint32Array, size: Size, area: TileArea | undefined): boolean {
  if (area === undefined) return true;
  const { left, top, right, bottom, isAlpha } = area;
  const { width, height } = size;
  if (right > width || bottom > height) return true;
  if (left >= right || top >= bottom) return false;
  const bits = isAlpha ? ALPHA_BITS : COLOUR_BITS;
  const [fromX, fromY] = [left + REACH_PX, top + REACH_PX];
  // The conversion turns zeros into one colour; alpha stays 0.
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
  return writeCodedItem({ configuration, data: bytesOf(file, items, id) }, size);
}
