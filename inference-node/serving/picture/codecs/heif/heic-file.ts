/**
 * The picture of a HEIC (ISO/IEC 23008-12) as planes of tiles, and HEIC files with nothing in them
 * but those tiles: decoders see no other item, property or reference of a caller's file.
 */
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Size } from '@matting/proto/contract/finishing.ts';
import {
  type HeifItem,
  type HeifItems,
  readGrid,
  readHeifItems,
  readSize,
} from '../files/heif-items.ts';
import {
  ALPHA_ID,
  ALPHA_OF_COLOURS,
  type Arrangement,
  alphaMark,
  box,
  COLOURS_ID,
  sizeBox,
  u32,
  type HeifItem as WrittenItem,
  writeHeif,
} from '../files/heif-writer.ts';

/** Colours or alpha: one coded picture, or a grid of them. */
export interface HeicPlane extends Size {
  readonly columns: number;
  readonly tileSize: Size;
  /** By rows; those at the right and at the bottom may reach beyond the plane. */
  readonly tiles: readonly HeicTile[];
  /** Of a sample. */
  readonly bits: number;
}

export interface HeicTile {
  readonly data: Buffer;
  /** hvcC, and nclx where the file names the numbers of its colours. */
  readonly properties: readonly Buffer[];
}

export interface HeicPicture {
  readonly colours: HeicPlane;
  readonly alpha: HeicPlane | undefined;
}

/** More than 100 megapixels in tiles of 128 pixels a side. */
const TILES_MAX = 8192;
/** Ways in which the tiles of a picture are coded: real files have one for colours, one for alpha. */
const CODINGS_MAX = 32;
const CODED = ['hvc1', 'hev1'];
/** Where HEVCDecoderConfigurationRecord (ISO/IEC 14496-15, 8.3.3.1) has the depth of luma. */
const LUMA_DEPTH_AT = 17;

export function damage(what: string): ContractError {
  return new ContractError('PROCESSING_FAILED', 'the image is damaged or cannot be decoded', {
    cause: new Error(what),
  });
}

/** @throws ContractError PROCESSING_FAILED */
export function readHeic(file: Buffer): HeicPicture {
  return new PictureReader(file).read();
}

class PictureReader {
  readonly #file: Buffer;
  readonly #items: HeifItems;
  #bytesLeft: number;

  constructor(file: Buffer) {
    this.#file = file;
    this.#items = readHeifItems(file);
    // Items of the same bytes many times over would fill the memory.
    this.#bytesLeft = file.length;
  }

  read(): HeicPicture {
    const path = this.#pathToPicture();
    const picture = path.at(-1) ?? 0;
    const colours = this.#readPlane(picture);
    const [alphaId] = path.flatMap(id => this.#items.alphas.get(id) ?? []);
    const alpha = alphaId === undefined ? undefined : this.#readPlane(alphaId);
    const tiles = [...colours.tiles, ...(alpha?.tiles ?? [])];
    const codings = new Set(tiles.map(tile => Buffer.concat(tile.properties).toString('latin1')));
    if (codings.size > CODINGS_MAX) throw damage('its parts are coded in too many ways');
    return { colours, alpha };
  }

  /** The primary item, and what it is another name of: its base where it has a gain map. */
  #pathToPicture(): number[] {
    const path: number[] = [];
    let id = this.#items.primaryId;
    while (id !== undefined && !path.includes(id)) {
      path.push(id);
      const { type } = this.#require(id);
      id = type === 'iden' || type === 'tmap' ? this.#items.inputs.get(id)?.[0] : undefined;
    }
    return path;
  }

  #require(id: number): HeifItem {
    const item = this.#items.byId.get(id);
    if (item === undefined) throw damage(`item ${id} is missing`);
    return item;
  }

  #readPlane(id: number): HeicPlane {
    const item = this.#require(id);
    if (item.type !== 'grid') {
      const tile = this.#readTile(id, item);
      const size = requireSize(readSize(this.#file, item));
      const bits = bitsOf(tile);
      return { ...size, columns: 1, tileSize: size, tiles: [tile], bits };
    }
    const grid = readGrid(this.#file, item);
    const ids = this.#items.inputs.get(id) ?? [];
    const [first] = ids;
    if (grid === undefined || first === undefined) throw damage('its grid cannot be read');
    const { columns, rows, width, height } = grid;
    const tileSize = requireSize(readSize(this.#file, this.#require(first)));
    const covers = (tiles: number, side: number, whole: number) =>
      tiles * side >= whole && (tiles - 1) * side < whole;
    const isCovered =
      covers(columns, tileSize.width, width) && covers(rows, tileSize.height, height);
    const isFilled = ids.length === columns * rows && new Set(ids).size === ids.length;
    if (!isFilled || !isCovered || ids.length > TILES_MAX)
      throw damage('its tiles do not make its grid');
    const tiles = ids.map(tileId => this.#readTile(tileId, this.#require(tileId), item));
    const bits = Math.max(...tiles.map(bitsOf));
    return { ...requireSize({ width, height }), columns, tileSize, tiles, bits };
  }

  #readTile(id: number, item: HeifItem, grid?: HeifItem): HeicTile {
    const { type, extents, properties } = item;
    if (!CODED.includes(type) || !extents?.length) throw damage(`item ${id} is no HEVC`);
    for (const { start, end } of extents) {
      this.#bytesLeft -= end - start;
      const isInside = start >= 0 && start < end && end <= this.#file.length;
      if (!isInside || this.#bytesLeft < 0) throw damage(`item ${id} is cut or named twice`);
    }
    const cut = ({ start, end }: { start: number; end: number }) => this.#file.subarray(start, end);
    const hvcC = properties.find(property => property.type === 'hvcC');
    if (hvcC === undefined) throw damage(`item ${id} has no configuration`);
    const numbers = [...(grid?.properties ?? []), ...properties].find(
      property => property.type === 'colr' && cut(property).toString('latin1', 0, 4) === 'nclx',
    );
    return {
      data: Buffer.concat(extents.map(cut)),
      properties: [
        box('hvcC', cut(hvcC)),
        ...(numbers === undefined ? [] : [box('colr', cut(numbers))]),
      ],
    };
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

/**
 * Each tile an item by itself, numbered from 1, those of the colours first: for a decoder that is
 * asked for one after the other.
 */
export function writeTiles({ colours, alpha }: HeicPicture): Buffer {
  const items: WrittenItem[] = [];
  for (const { tiles, tileSize } of alpha === undefined ? [colours] : [colours, alpha]) {
    for (const tile of tiles) items.push(writtenTile(COLOURS_ID + items.length, tile, tileSize));
  }
  return writeHeif(BRANDS, { items, references: [] });
}

/** One picture: for a decoder that decodes whole files. */
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
): WrittenItem {
  if (hvcC === undefined) throw damage('it does not say how it is coded');
  const others = [sizeBox(width, height), ...numbers, ...marks];
  const properties = [[hvcC, true] as const, ...others.map(other => [other, false] as const)];
  return { id, type: 'hvc1', isHidden, data, properties };
}
