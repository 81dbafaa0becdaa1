/** Colours of an AVIF or HEIC in memory, and the facts that a decoder needs for a HEIC. */
import { ContractError } from '../errors.ts';
import type { Size } from '../finishing.ts';
import { windowOf } from './byte-window.ts';
import {
  CODED,
  codedIn,
  GRID,
  inputsOf,
  pathOf,
  pictureIds,
  printable,
  propertiesOf,
  readIsoFile,
} from './heif.ts';
import { type Extent, type HeifItems, readExtents } from './heif-items.ts';
import { type Box, StepBudget } from './iso-boxes.ts';

/** 8,000 tiles. libheif takes 1000 items. */
const FILE_STEPS_MAX = 40_000;

/** Code points of ITU-T H.273. */
export interface Cicp {
  readonly primaries: number;
  readonly transfer: number;
  /** Video range: in 8 bits, 16 is black and 235 white. */
  readonly isNarrow: boolean;
  /** Green, blue and red (H.273, table 4), not luma and chroma. */
  readonly isRgb: boolean;
}

interface HeifColour {
  /** From a `colr` box of type nclx (ISO/IEC 14496-12, 12.1.5). */
  readonly cicp: Cicp | undefined;
  /** May occur together with code points. */
  readonly profile: Buffer | undefined;
}

const NCLX_BYTES = 11;
/** The highest bit of the last byte. */
const FULL_RANGE = 0x80;

function readColour(file: Buffer, items: HeifItems, ids: readonly number[]): HeifColour {
  let cicp: Cicp | undefined;
  let profile: Buffer | undefined;
  for (const { type, start, end } of ids.flatMap(id => propertiesOf(items, id))) {
    if (type !== 'colr' || end - start < 4) continue;
    const kind = file.toString('latin1', start, start + 4);
    if (kind === 'prof' || kind === 'rICC') profile ??= file.subarray(start + 4, end);
    if (kind !== 'nclx' || end - start < NCLX_BYTES) continue;
    cicp ??= {
      primaries: file.readUInt16BE(start + 4),
      transfer: file.readUInt16BE(start + 6),
      isRgb: file.readUInt16BE(start + 8) === 0,
      isNarrow: file.readUInt8(start + 10) < FULL_RANGE,
    };
  }
  return { cicp, profile };
}

/** ISO/IEC 23000-22, 7.3.5.2. */
function isPremultiplied({ references }: HeifItems, id: number): boolean {
  return references.some(({ type, from }) => type === 'prem' && from === id);
}

interface AvifColour extends HeifColour {
  /** Decoders return such colours unchanged. */
  readonly premultiplied: boolean;
  readonly isGrey: boolean;
}

export interface FileItems extends HeifItems {
  readonly extents: ReadonlyMap<number, readonly Extent[]>;
  /** By the item that they belong to. */
  readonly alphas: ReadonlyMap<number, readonly number[]>;
}

/** undefined: the file has no items. */
export async function readFileItems(file: Buffer): Promise<FileItems | undefined> {
  const window = windowOf(file);
  const budget = new StepBudget(FILE_STEPS_MAX);
  const { items } = await readIsoFile(window, budget);
  if (items === undefined) return undefined;
  const extents = await readExtents(window, items, budget);
  return { ...items, extents, alphas: alphasIn(file, items) };
}

/** The item's coded data: its extents in order. */
export function bytesOf(file: Buffer, { extents }: FileItems, id: number): Buffer {
  return Buffer.concat((extents.get(id) ?? []).map(({ start, end }) => file.subarray(start, end)));
}

/** In the third byte of `av1C` (AV1 in ISO files, 2.3.3). */
const MONOCHROME = 0x10;

/** Of the primary item, or of its first input. */
export async function readAvifColour(file: Buffer): Promise<AvifColour> {
  const { items } = await readIsoFile(windowOf(file), new StepBudget());
  if (items?.primaryId === undefined) {
    return { cicp: undefined, profile: undefined, premultiplied: false, isGrey: false };
  }
  const ids = pathOf(items).map(({ id }) => id);
  const properties = ids.flatMap(id => propertiesOf(items, id));
  const av1C = properties.find(({ type }) => type === 'av1C');
  return {
    ...readColour(file, items, ids),
    premultiplied: isPremultiplied(items, items.primaryId),
    isGrey: av1C !== undefined && ((file[av1C.start + 2] ?? 0) & MONOCHROME) !== 0,
  };
}

/** In pixels of the stored picture. */
interface Crop extends Size {
  readonly left: number;
  readonly top: number;
}

/** Exif's numbers: 1 is upright, 6 a quarter clockwise. */
export type Orientation = 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8;

/**
 * Needed by a decoder, and compared with its output. Only the primary item counts; gain maps, depth
 * maps, thumbnails and sequences do not.
 */
export interface HeifFacts {
  /** As shown: cropped (`clap`) and turned (`irot`, `imir`). */
  readonly width: number;
  readonly height: number;
  /** Of the decoded picture, with its grid assembled. */
  readonly storedWidth: number;
  readonly storedHeight: number;
  /** The shown part of the stored picture, before turning. */
  readonly crop: Crop;
  /** From the stored picture to the shown one. */
  readonly orientation: Orientation;
  /** Decoders do not convert the colours. */
  readonly cicp: Cicp | undefined;
  /** Takes precedence over the code points. */
  readonly profile: Buffer | undefined;
  readonly hasAlpha: boolean;
  readonly premultiplied: boolean;
}

const ORIENTATIONS: Readonly<Record<'straight' | 'mirrored', readonly Orientation[]>> = {
  // Indexed by quarters clockwise. `mirrored`: left to right, before turning.
  straight: [1, 6, 3, 8],
  mirrored: [2, 7, 4, 5],
};

/**
 * Exif's orientation counts only if the container has none. Every item of the picture must be HEVC
 * and lie within the file, so that no other decoder is reached.
 * @throws ContractError UNSUPPORTED_IMAGE_FORMAT (another coding), PROCESSING_FAILED (damaged)
 */
export async function readHeif(file: Buffer): Promise<HeifFacts> {
  const items = await readFileItems(file);
  const coded = items && codedIn(pathOf(items));
  const ids = items === undefined ? [] : pictureIds(items);
  const picture = ids.at(-1);
  if (items?.primaryId === undefined || picture === undefined || coded === undefined) {
    throw damage('its primary item cannot be read');
  }
  const alphas = ids.flatMap(id => items.alphas.get(id) ?? []);
  requireParts(items, [picture, ...alphas]);
  const grid = items.types.get(picture) === GRID ? readGrid(file, items, picture) : undefined;
  const stored = grid ?? itemSize(file, items, picture);
  if (!stored?.width || !stored.height) throw damage('its size cannot be read');
  // The picture's own properties apply first, then those of derived items.
  const shown = readTransforms(file, items, ids.toReversed(), stored);
  const exif = shown.isTurned ? 1 : readExifOrientation(file, items, ids);
  const isSwapped = exif >= 5;
  return {
    width: isSwapped ? shown.height : shown.width,
    height: isSwapped ? shown.width : shown.height,
    storedWidth: stored.width,
    storedHeight: stored.height,
    crop: shown.crop,
    orientation: shown.isTurned ? shown.orientation : exif,
    ...readColour(file, items, [...ids, coded.id]),
    hasAlpha: alphas.length > 0,
    premultiplied: ids.some(id => isPremultiplied(items, id)),
  };
}

function damage(what: string): ContractError {
  return new ContractError('PROCESSING_FAILED', `The image is damaged: ${what}.`);
}

const ALPHA_TYPES = [
  'urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0',
  'urn:mpeg:hevc:2015:auxid:1\0',
];
const NAME_BYTES_MAX = 64;

/** By the item that they belong to. Other auxiliary items are depths, gain maps and mattes. */
function alphasIn(file: Buffer, items: HeifItems): ReadonlyMap<number, readonly number[]> {
  const known = new Map<number, boolean>();
  // Judges each item once, since many may refer to it.
  const isAlpha = (id: number) => {
    const is = known.get(id) ?? saysAlpha(id);
    known.set(id, is);
    return is;
  };
  const saysAlpha = (id: number) => {
    const auxC = propertiesOf(items, id).find(({ type }) => type === 'auxC');
    if (auxC === undefined) return false;
    const nameAt = auxC.start + 4;
    const name = file.toString('latin1', nameAt, Math.min(auxC.end, nameAt + NAME_BYTES_MAX));
    return ALPHA_TYPES.some(type => name.startsWith(type));
  };
  const alphas = new Map<number, number[]>();
  for (const { type, from, to } of items.references) {
    if (type !== 'auxl' || !isAlpha(from)) continue;
    for (const id of to) {
      const others = alphas.get(id);
      if (others === undefined) alphas.set(id, [from]);
      else others.push(from);
    }
  }
  return alphas;
}

/** Other items (Exif, a thumbnail, a gain map) may be damaged or missing. */
function requireParts(items: FileItems, planes: readonly number[]): void {
  for (const plane of planes) {
    const isGrid = items.types.get(plane) === GRID;
    for (const id of isGrid ? [plane, ...(inputsOf(items, plane) ?? [])] : [plane]) {
      const type = items.types.get(id);
      if (type === undefined || !items.extents.has(id)) throw damage('parts of it are missing');
      if (CODED[type] === 'heic' || (id === plane && isGrid)) continue;
      const detail = `This is HEIF with a picture coded as ${printable(type)}. Send an image as JPEG or PNG.`;
      throw new ContractError('UNSUPPORTED_IMAGE_FORMAT', detail);
    }
  }
}

/** Row by row. */
interface Grid extends Size {
  readonly columns: number;
  readonly rows: number;
}

const GRID_BYTES_MAX = 12;

/** undefined: not stated. */
export function itemSize(file: Buffer, items: HeifItems, id: number): Size | undefined {
  const ispe = propertiesOf(items, id).find(({ type }) => type === 'ispe');
  if (ispe === undefined || ispe.end - ispe.start < 12) return undefined;
  return { width: file.readUInt32BE(ispe.start + 4), height: file.readUInt32BE(ispe.start + 8) };
}

/** @throws ContractError PROCESSING_FAILED */
export function readGrid(file: Buffer, items: FileItems, id: number): Grid {
  const starts = (items.extents.get(id) ?? []).map(({ start, end }) =>
    file.subarray(start, Math.min(end, start + GRID_BYTES_MAX)),
  );
  const data = Buffer.concat(starts).subarray(0, GRID_BYTES_MAX);
  const isWide = ((data[1] ?? 0) & 1) === 1;
  if (data.length < (isWide ? GRID_BYTES_MAX : 8)) throw damage('its grid cannot be read');
  const [rows, columns] = [data.readUInt8(2) + 1, data.readUInt8(3) + 1];
  if (rows * columns !== inputsOf(items, id)?.length) throw damage('its grid has other tiles');
  return {
    columns,
    rows,
    width: isWide ? data.readUInt32BE(4) : data.readUInt16BE(4),
    height: isWide ? data.readUInt32BE(8) : data.readUInt16BE(6),
  };
}

interface Shown extends Size {
  readonly crop: Crop;
  readonly orientation: Orientation;
  /** The orientation is stated, even if it is upright. */
  readonly isTurned: boolean;
}

/** First mirrored left to right, then turned clockwise. */
interface Turn {
  readonly isMirrored: boolean;
  readonly quarters: number;
}

/** @param ids in the order in which their properties apply */
function readTransforms(
  file: Buffer,
  items: HeifItems,
  ids: readonly number[],
  stored: Size,
): Shown {
  let shown: Crop = { left: 0, top: 0, width: stored.width, height: stored.height };
  let turn: Turn = { isMirrored: false, quarters: 0 };
  let isTurned = false;
  for (const box of ids.flatMap(id => propertiesOf(items, id))) {
    if (box.type === 'clap') shown = crop(file, box, shown, turn);
    if (box.type !== 'irot' && box.type !== 'imir') continue;
    if (box.end <= box.start) throw damage('its rotation cannot be read');
    turn = turnOn(turn, box.type, file.readUInt8(box.start));
    isTurned = true;
  }
  const isSwapped = turn.quarters % 2 === 1;
  return {
    width: isSwapped ? shown.height : shown.width,
    height: isSwapped ? shown.width : shown.height,
    crop: shown,
    orientation: ORIENTATIONS[turn.isMirrored ? 'mirrored' : 'straight'][turn.quarters] ?? 1,
    isTurned,
  };
}

function turnOn({ isMirrored, quarters }: Turn, type: 'irot' | 'imir', value: number): Turn {
  // Counts quarters anticlockwise.
  if (type === 'irot') return { isMirrored, quarters: (quarters + 4 - (value & 3)) % 4 };
  // 1 exchanges left and right, 0 top and bottom, which is the same plus half a turn.
  const half = (value & 1) === 1 ? 0 : 2;
  return { isMirrored: !isMirrored, quarters: (4 - quarters + half) % 4 };
}

const CLAP_BYTES = 32;

interface Span {
  readonly from: number;
  readonly length: number;
}

/** Clean aperture (ISO/IEC 14496-12, 12.1.4), in whole pixels within the picture. */
function crop(
  file: Buffer,
  { start, end }: Box,
  { left, top, width, height }: Crop,
  { isMirrored, quarters }: Turn,
): Crop {
  if (end - start < CLAP_BYTES) throw damage('its crop cannot be read');
  const side = (size: number, at: number): Span => {
    const aperture = file.readUInt32BE(at) / file.readUInt32BE(at + 4);
    const offset = file.readInt32BE(at + 16) / file.readUInt32BE(at + 20);
    const first = Math.floor(offset + (size - 1) / 2 - (aperture - 1) / 2);
    const last = Math.round(first + aperture - 1);
    const from = Math.max(first, 0);
    const length = Math.min(last, size - 1) - from + 1;
    // Refuses NaN, too, from a denominator of 0.
    if (!(length > 0)) throw damage('its crop leaves nothing');
    return { from, length };
  };
  const fromEnd = ({ from, length }: Span, size: number, isFromEnd: boolean): Span =>
    isFromEnd ? { from: size - from - length, length } : { from, length };
  // Maps the sides of the turned picture to those of the stored one.
  const isSwapped = quarters % 2 === 1;
  const [across, down] = [
    side(isSwapped ? height : width, start),
    side(isSwapped ? width : height, start + 8),
  ];
  const x = isSwapped ? down : across;
  const y = isSwapped ? across : down;
  const isFlippedX = (quarters === 2 || quarters === 3) !== isMirrored;
  const isFlippedY = quarters === 1 || quarters === 2;
  const [columns, rows] = [fromEnd(x, width, isFlippedX), fromEnd(y, height, isFlippedY)];
  return {
    left: left + columns.from,
    top: top + rows.from,
    width: columns.length,
    height: rows.length,
  };
}

const ORIENTATION_TAG = 0x0112;
const IFD_ENTRY_BYTES = 12;

/** Exif 3.0, 4.6.2 (a TIFF file); ISO/IEC 23008-12, annex A.2.1. 1: unreadable. */
function readExifOrientation(file: Buffer, items: FileItems, ids: readonly number[]): Orientation {
  const exif = items.references.find(
    ({ type, from, to }) =>
      type === 'cdsc' && items.types.get(from) === 'Exif' && to.some(id => ids.includes(id)),
  );
  const [extent] = (exif && items.extents.get(exif.from)) ?? [];
  if (extent === undefined || extent.end - extent.start < 4) return 1;
  const tiff = file.subarray(extent.start + 4 + file.readUInt32BE(extent.start), extent.end);
  if (tiff.length < 8) return 1;
  const isLittle = tiff.toString('latin1', 0, 2) === 'II';
  const u16 = (at: number) => (isLittle ? tiff.readUInt16LE(at) : tiff.readUInt16BE(at));
  const first = isLittle ? tiff.readUInt32LE(4) : tiff.readUInt32BE(4);
  if (first + 2 > tiff.length) return 1;
  const count = Math.min(u16(first), Math.floor((tiff.length - first - 2) / IFD_ENTRY_BYTES));
  for (let entry = 0; entry < count; entry += 1) {
    const at = first + 2 + entry * IFD_ENTRY_BYTES;
    if (u16(at) !== ORIENTATION_TAG) continue;
    const value = u16(at + 8);
    return value >= 1 && value <= 8 ? (value as Orientation) : 1;
  }
  return 1;
}
