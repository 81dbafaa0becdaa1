/**
 * Reads the picture of a HEIC (ISO/IEC 23008-12) as planes of tiles, and writes HEIC files of only
 * those: decoders see nothing else of a caller's file.
 */
import { createHash } from 'node:crypto';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Size } from '@matting/proto/contract/finishing.ts';
import {
  type Box,
  inputsOf,
  pictureIds,
  propertiesOf,
} from '@matting/proto/contract/image-header/heif.ts';
import {
  bytesOf,
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
  type HeifItem,
  sizeBox,
  u32,
  writeHeif,
} from '../files/heif-writer.ts';

export interface HeicPlane extends Size {
  readonly columns: number;
  readonly tileSize: Size;
  /** Rows follow each other; the last ones may extend beyond the plane. */
  readonly tiles: readonly HeicTile[];
  readonly bits: number;
}

interface HeicTile {
  readonly data: Buffer;
  /** hvcC, and nclx if the file has one. Tiles with the same coding share the array. */
  readonly properties: readonly Buffer[];
}

export interface HeicPicture {
  readonly colours: HeicPlane;
  readonly alpha: HeicPlane | undefined;
}

/** More than 100 megapixels in tiles of 128 pixels a side. */
const TILES_MAX = 8192;
/** Real files code all colours alike, and all alpha. */
const CODINGS_MAX = 32;
/** An encoder's own notes take 2 KB. */
const PROPERTY_BYTES_MAX = 16 * 1024;
const CODED = ['hvc1', 'hev1'];
/** Coded pictures never have three zero bytes in a row (H.265, 7.4.2). */
const UNWRITTEN = Buffer.alloc(64);
/** In HEVCDecoderConfigurationRecord (ISO/IEC 14496-15, 8.3.3.1). */
const LUMA_DEPTH_AT = 17;

export function damage(what: string): ContractError {
  return new ContractError('PROCESSING_FAILED', 'The image is damaged or cannot be decoded.', {
    cause: new Error(what),
  });
}

/** @throws ContractError PROCESSING_FAILED */
export async function readHeic(file: Buffer): Promise<HeicPicture> {
  const items = await readFileItems(file);
  if (items === undefined) throw damage('it has no items');
  return new PictureReader(file, items).read();
}

class PictureReader {
  readonly #file: Buffer;
  readonly #items: FileItems;
  readonly #codings: Codings;
  #bytesLeft: number;

  constructor(file: Buffer, items: FileItems) {
    this.#file = file;
    this.#items = items;
    this.#codings = new Codings(file);
    // A bound: items that repeat the same bytes would fill the memory.
    this.#bytesLeft = file.length;
  }

  read(): HeicPicture {
    const path = pictureIds(this.#items);
    const picture = path.at(-1);
    if (picture === undefined) throw damage('it names no picture');
    const colours = this.#readPlane(picture);
    const [alphaId] = path.flatMap(id => this.#items.alphas.get(id) ?? []);
    const alpha = alphaId === undefined ? undefined : this.#readPlane(alphaId);
    const isOther = (of: Size) => of.width !== colours.width || of.height !== colours.height;
    // Decoders disagree about such alpha: old ones leave most of the picture transparent.
    if (alpha !== undefined && isOther(alpha)) throw damage('its alpha is of another size');
    return { colours, alpha };
  }

  #sizeOf(id: number): Size {
    return requireSize(itemSize(this.#file, this.#items, id));
  }

  #readPlane(id: number): HeicPlane {
    if (this.#items.types.get(id) !== 'grid') {
      const tile = this.#readTile(id);
      const size = this.#sizeOf(id);
      const bits = bitsOf(tile);
      return { ...size, columns: 1, tileSize: size, tiles: [tile], bits };
    }
    const { columns, rows, width, height } = readGrid(this.#file, this.#items, id);
    const ids = inputsOf(this.#items, id) ?? [];
    const [first] = ids;
    if (first === undefined) throw damage('its grid cannot be read');
    const tileSize = this.#sizeOf(first);
    const covers = (tiles: number, side: number, whole: number) =>
      tiles * side >= whole && (tiles - 1) * side < whole;
    const isCovered =
      covers(columns, tileSize.width, width) && covers(rows, tileSize.height, height);
    const isFilled = new Set(ids).size === columns * rows;
    if (!isFilled || !isCovered || ids.length > TILES_MAX)
      throw damage('its tiles do not make its grid');
    const numbers = this.#numbersOf(id);
    const tiles = ids.map(tileId => this.#readTile(tileId, numbers));
    const bits = Math.max(...tiles.map(bitsOf));
    return { ...requireSize({ width, height }), columns, tileSize, tiles, bits };
  }

  #numbersOf(id: number): Box | undefined {
    return propertiesOf(this.#items, id).find(
      ({ type, start }) =>
        type === 'colr' && this.#file.toString('latin1', start, start + 4) === 'nclx',
    );
  }

  /** @param numbers the colour code points of its grid; default: the tile's own */
  #readTile(id: number, numbers = this.#numbersOf(id)): HeicTile {
    const extents = this.#items.extents.get(id);
    const isCoded = CODED.includes(this.#items.types.get(id) ?? '');
    if (!isCoded || !extents?.length) throw damage(`item ${id} is cut or no HEVC`);
    for (const { start, end } of extents) this.#bytesLeft -= end - start;
    if (this.#bytesLeft < 0) throw damage(`item ${id} is named twice`);
    const properties = propertiesOf(this.#items, id);
    const hvcC = properties.find(property => property.type === 'hvcC');
    if (hvcC === undefined) throw damage(`item ${id} has no configuration`);
    const data = bytesOf(this.#file, this.#items, id);
    if (data.includes(UNWRITTEN)) throw damage(`item ${id} has a part of zeros`);
    return {
      data,
      properties: this.#codings.of(numbers === undefined ? [hvcC] : [hvcC, numbers]),
    };
  }
}

class Codings {
  readonly #file: Buffer;
  /** Keys: the properties' offsets in the file. */
  readonly #byOffsets = new Map<string, readonly Buffer[]>();
  /** Keys: the properties' content, which an encoder may repeat for every tile. */
  readonly #byContent = new Map<string, readonly Buffer[]>();

  constructor(file: Buffer) {
    this.#file = file;
  }

  /** @throws ContractError PROCESSING_FAILED if they are too many or too long */
  of(properties: readonly Box[]): readonly Buffer[] {
    const offsets = properties.map(({ start }) => start).join();
    const known = this.#byOffsets.get(offsets);
    if (known !== undefined) return known;
    const copies = properties.map(property => this.#copyOf(property));
    const content = copies.map(copy => createHash('sha256').update(copy).digest('hex')).join();
    const coding = this.#byContent.get(content) ?? copies;
    this.#byOffsets.set(offsets, coding);
    this.#byContent.set(content, coding);
    if (this.#byContent.size > CODINGS_MAX) throw damage('its parts are coded in too many ways');
    return coding;
  }

  #copyOf({ type, start, end }: Box): Buffer {
    if (end - start > PROPERTY_BYTES_MAX) throw damage(`a ${type} has ${end - start} bytes`);
    return box(type, this.#file.subarray(start, end));
  }
}

function requireSize(size: Size | undefined): Size {
  if (size === undefined || size.width === 0 || size.height === 0) throw damage('it has no size');
  return size;
}

function bitsOf({ properties: [hvcC] }: HeicTile): number {
  const record = hvcC?.[8 + LUMA_DEPTH_AT];
  if (record === undefined) throw damage('it does not say how it is coded');
  return 8 + (record & 7);
}

const BRANDS = 'heic\0\0\0\0mif1heic';
const FIRST_TILE_ID = 3;

/** Each tile is an item of its own, numbered from 1, colours first. */
export function writeTiles({ colours, alpha }: HeicPicture): Buffer {
  const items: HeifItem[] = [];
  for (const { tiles, tileSize } of alpha === undefined ? [colours] : [colours, alpha]) {
    for (const tile of tiles) items.push(writtenTile(COLOURS_ID + items.length, tile, tileSize));
  }
  return writeHeif(BRANDS, { items, references: [] });
}

export function writePicture({ colours, alpha }: HeicPicture): Buffer {
  const ofColours = arrangePlane(COLOURS_ID, colours, FIRST_TILE_ID, []);
  if (alpha === undefined) return writeHeif(BRANDS, ofColours);
  const firstId = FIRST_TILE_ID + colours.tiles.length;
  const ofAlpha = arrangePlane(ALPHA_ID, alpha, firstId, [alphaMark()]);
  return writeHeif(BRANDS, {
    items: [...ofColours.items, ...ofAlpha.items],
    references: [...ofColours.references, ALPHA_OF_COLOURS, ...ofAlpha.references],
  });
}

function arrangePlane(
  id: number,
  { width, height, columns, tileSize, tiles }: HeicPlane,
  firstId: number,
  marks: readonly Buffer[],
): Arrangement {
  const [only, ...others] = tiles;
  if (only !== undefined && others.length === 0 && columns === 1 && width === tileSize.width) {
    if (height === tileSize.height)
      return { items: [writtenTile(id, only, tileSize, { marks })], references: [] };
  }
  const rows = tiles.length / columns;
  // Version, sides of four bytes, rows and columns less one, size.
  const data = Buffer.concat([Buffer.from([0, 1, rows - 1, columns - 1]), u32(width, height)]);
  const numbers = tiles[0]?.properties.slice(1) ?? [];
  const properties = [sizeBox(width, height), ...numbers, ...marks].map(
    property => [property, false] as const,
  );
  const parts = tiles.map((tile, i) =>
    writtenTile(firstId + i, tile, tileSize, { isHidden: true }),
  );
  return {
    items: [{ id, type: 'grid', isHidden: false, data, properties }, ...parts],
    references: [{ type: 'dimg', from: id, to: parts.map(part => part.id) }],
  };
}

function writtenTile(
  id: number,
  { data, properties: [hvcC, ...numbers] }: HeicTile,
  { width, height }: Size,
  { marks = [], isHidden = false }: { marks?: readonly Buffer[]; isHidden?: boolean } = {},
): HeifItem {
  if (hvcC === undefined) throw damage('it does not say how it is coded');
  const others = [sizeBox(width, height), ...numbers, ...marks];
  const properties = [[hvcC, true] as const, ...others.map(other => [other, false] as const)];
  return { id, type: 'hvc1', isHidden, data, properties };
}
