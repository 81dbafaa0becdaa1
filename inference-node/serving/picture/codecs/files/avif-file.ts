/**
 * Writes separately encoded colours and alpha as AVIF (AV1 Image File Format 1.1 over HEIF, ISO/IEC
 * 23008-12): an item each, alpha as `auxl`, or for a large picture a `grid` of strips each.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { propertiesOf } from '@matting/proto/contract/image-header/heif.ts';
import { bytesOf, readFileItems } from '@matting/proto/contract/image-header/heif-file.ts';
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

interface CodedItem {
  readonly configuration: Buffer;
  readonly data: Buffer;
}

export interface CodedStrip {
  readonly colours: CodedItem;
  readonly alpha: CodedItem;
}

interface AvifParts extends Size {
  /** From top to bottom; the last may extend below the picture. */
  readonly strips: readonly CodedStrip[];
  readonly stripHeight: number;
}

const FIRST_STRIP_ID = 3;
/** H.273: sRGB's primaries and curve, the encoder's matrix (BT.601), full range. */
const NCLX_SRGB = Buffer.from([0, 1, 0, 13, 0, 6, 0x80]);

export function writeAvif(parts: AvifParts): Buffer {
  const [strip, ...others] = parts.strips;
  if (strip === undefined) throw new Error('a picture has at least one strip');
  return writeHeif(BRANDS, others.length === 0 ? arrange(parts, strip) : arrangeGrid(parts));
}

const BRANDS = 'avif\0\0\0\0mif1avifmiaf';

export function writeCodedItem(coded: CodedItem, { width, height }: Size): Buffer {
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

/** @param file from our own encoder. Returns the colours, then alpha */
export async function readCodedItems(file: Buffer): Promise<CodedItem[]> {
  const items = await readFileItems(file);
  if (items === undefined) throw new Error('the file of the encoder has no items');
  return [...items.types.keys()].map(id => {
    const av1C = propertiesOf(items, id).find(({ type }) => type === 'av1C');
    if (av1C === undefined || !items.extents.has(id)) {
      throw new Error('an item of the encoder is not coded in AV1, or is outside of its file');
    }
    const configuration = file.subarray(av1C.start, av1C.end);
    return { configuration, data: bytesOf(file, items, id) };
  });
}
