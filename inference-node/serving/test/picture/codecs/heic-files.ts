/** HEIC files of every kind, put together from pictures that heif-enc coded. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { propertiesOf } from '@matting/proto/contract/image-header/heif.ts';
import { readFileItems } from '@matting/proto/contract/image-header/heif-file.ts';
import { box, u16, u32 } from '@matting/proto/contract/test/image-header-samples.ts';
import { at as elementAt } from '@matting/test-support/at.ts';
import sharp from 'sharp';
import type { Pixels } from '../../pictures.ts';
import { assemble, type Item, type Reference } from './avif-grids.ts';

const HEIF_ENC = '/usr/bin/heif-enc';
export const hasHeifEnc = existsSync(HEIF_ENC);

export interface CodedPicture {
  readonly width: number;
  readonly height: number;
  readonly data: Buffer;
  readonly hvcC: Buffer;
  readonly nclx: Buffer | undefined;
}

export interface CodingOptions {
  readonly bits?: 8 | 10;
  readonly chroma?: '420' | '422' | '444';
  readonly quality?: number;
}

/** Runs heif-enc. */
export async function encodeFile(
  pictures: readonly Pixels[],
  { bits = 8, chroma = '444', quality = 95 }: CodingOptions = {},
): Promise<Buffer> {
  const folder = mkdtempSync(path.join(tmpdir(), 'matting-test-heic-'));
  try {
    const names: string[] = [];
    for (const { data, width, height, channels } of pictures) {
      const image = sharp(data, { raw: { width, height, channels } });
      const deep = bits === 8 ? image : image.toColourspace('rgb16');
      const name = path.join(folder, `${names.length}.png`);
      writeFileSync(name, await deep.png().toBuffer());
      names.push(name);
    }
    const out = path.join(folder, 'out.heic');
    const options = [
      '-q',
      String(quality),
      '-b',
      String(bits),
      '-p',
      `chroma=${chroma}`,
      '-p',
      'preset=fast',
    ];
    execFileSync(HEIF_ENC, [...options, ...names, '-o', out], { stdio: 'pipe' });
    return readFileSync(out);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export async function codedIn(file: Buffer): Promise<CodedPicture[]> {
  const pictures: CodedPicture[] = [];
  const items = await readFileItems(file);
  if (items === undefined) throw new Error('heif-enc wrote no items');
  for (const [id, type] of items.types) {
    if (type !== 'hvc1') continue;
    const properties = propertiesOf(items, id);
    const extents = items.extents.get(id) ?? [];
    const find = (name: string) => properties.find(property => property.type === name);
    const cut = (part: { start: number; end: number }) => file.subarray(part.start, part.end);
    const [ispe, hvcC, colr] = [find('ispe'), find('hvcC'), find('colr')];
    if (ispe === undefined || hvcC === undefined) throw new Error('heif-enc wrote something else');
    pictures.push({
      width: file.readUInt32BE(ispe.start + 4),
      height: file.readUInt32BE(ispe.start + 8),
      data: Buffer.concat(extents.map(cut)),
      hvcC: box('hvcC', cut(hvcC)),
      nclx: colr && box('colr', cut(colr)),
    });
  }
  return pictures;
}

export async function encode(
  pictures: readonly Pixels[],
  options?: CodingOptions,
): Promise<CodedPicture[]> {
  return await codedIn(await encodeFile(pictures, options));
}

/** Pieces of a picture, by rows, the last of each row and column filled up. */
export async function cutTiles(pixels: Pixels, tilePx: number): Promise<Pixels[]> {
  const { data, width, height, channels } = pixels;
  const tiles: Pixels[] = [];
  for (let top = 0; top < height; top += tilePx) {
    for (let left = 0; left < width; left += tilePx) {
      const there = {
        width: Math.min(tilePx, width - left),
        height: Math.min(tilePx, height - top),
      };
      const cut = await sharp(data, { raw: { width, height, channels } })
        .extract({ left, top, ...there })
        .extend({ right: tilePx - there.width, bottom: tilePx - there.height, extendWith: 'copy' })
        .raw()
        .toBuffer();
      tiles.push({ data: cut, width: tilePx, height: tilePx, channels });
    }
  }
  return tiles;
}

export const irot = (quarters: number) => box('irot', Buffer.from([quarters]));
/** 0 exchanges top and bottom, 1 left and right. */
export const imir = (axis: number) => box('imir', Buffer.from([axis]));
/** Makes a crop of a size, its centre so far from the picture's; offsets are halves. */
export const clap = (width: number, height: number, right = 0, down = 0) =>
  box('clap', u32(width, 1, height, 1), i32(right), u32(2), i32(down), u32(2));

function i32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
}

export const profileBox = (profile: Buffer) => box('colr', Buffer.from('prof', 'latin1'), profile);
export const nclxBox = (primaries: number, transfer: number, matrix = 6) =>
  box('colr', Buffer.from('nclx', 'latin1'), u16(primaries, transfer, matrix), Buffer.from([0x80]));

function exifOf(orientation: number): Buffer {
  const entry = Buffer.concat([u16(0x0112, 3), u32(1), u16(orientation, 0)]);
  const tiff = Buffer.concat([Buffer.from('MM\0*', 'latin1'), u32(8), u16(1), entry, u32(0)]);
  return Buffer.concat([u32(0), tiff]);
}

const ALPHA = 'urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0';
const GAIN_MAP = 'urn:com:apple:photo:2020:aux:hdrgainmap\0';
const auxC = (name: string) => box('auxC', u32(0), Buffer.from(name, 'latin1'));
const ispe = (width: number, height: number) => box('ispe', u32(0, width, height));

export interface HeicKind {
  readonly width: number;
  readonly height: number;
  /** One: the picture by itself. Others: a grid, by rows. */
  readonly tiles: readonly CodedPicture[];
  readonly columns?: number;
  readonly alpha?: CodedPicture | undefined;
  readonly premultiplied?: boolean;
  /** The properties go in their order: they crop and turn the picture and its alpha. */
  readonly transforms?: readonly Buffer[];
  readonly colours?: readonly Buffer[];
  readonly exif?: number;
  /** The primary item is a picture with a gain map, made of the one that is shown and the map. */
  readonly toneMapped?: boolean;
  readonly brands?: string;
  /** Boxes behind the others. */
  readonly behind?: readonly Buffer[];
}

export const FIRST_TILE_ID = 10;

/**
 * Writes a thumbnail and a gain map that belong to the picture. The data of each tile can be found
 * by id.
 */
export function writeHeic(kind: HeicKind) {
  const { width, height, tiles, columns = 1, alpha, transforms = [], colours = [], exif } = kind;
  const first = elementAt(tiles, 0);
  const own = [ispe(width, height), ...colours, ...transforms];
  const pictureId = kind.toneMapped ? 5 : 1;
  const items: Item[] = [];
  const references: Reference[] = [];
  const add = (id: number, type: string, data: Buffer, ...properties: Buffer[]) =>
    items.push({ id, type, data, properties });
  const refer = (type: string, from: number, ...to: number[]) =>
    references.push({ type, from, to });
  if (tiles.length === 1) add(pictureId, 'hvc1', first.data, first.hvcC, ...own);
  else {
    const rows = tiles.length / columns;
    add(
      pictureId,
      'grid',
      Buffer.concat([Buffer.from([0, 0, rows - 1, columns - 1]), u16(width, height)]),
      ...own,
    );
    refer('dimg', pictureId, ...tiles.map((_, i) => FIRST_TILE_ID + i));
    for (const [i, tile] of tiles.entries()) {
      const numbers = tile.nclx === undefined ? [] : [tile.nclx];
      add(
        FIRST_TILE_ID + i,
        'hvc1',
        tile.data,
        tile.hvcC,
        ispe(tile.width, tile.height),
        ...numbers,
      );
    }
  }
  if (alpha !== undefined) {
    add(
      2,
      'hvc1',
      alpha.data,
      alpha.hvcC,
      ispe(alpha.width, alpha.height),
      auxC(ALPHA),
      ...transforms,
    );
    refer('auxl', 2, pictureId);
    if (kind.premultiplied) refer('prem', pictureId, 2);
  }
  add(90, 'hvc1', first.data, first.hvcC, ispe(first.width, first.height));
  refer('thmb', 90, pictureId);
  add(91, 'hvc1', first.data, first.hvcC, ispe(first.width, first.height), auxC(GAIN_MAP));
  refer('auxl', 91, pictureId);
  if (exif !== undefined) {
    add(92, 'Exif', exifOf(exif));
    refer('cdsc', 92, pictureId);
  }
  if (kind.toneMapped) {
    add(1, 'tmap', Buffer.alloc(62), ispe(width, height));
    refer('dimg', 1, pictureId, 91);
  }
  const { file, dataById } = assemble(kind.brands ?? 'heic\0\0\0\0mif1heic', items, references);
  return { file: Buffer.concat([file, ...(kind.behind ?? [])]), dataById };
}
