/** Writes AVIF whose container says what no encoder here writes; the coded pictures are sharp's. */
import { box, u16, u32 } from '@matting/proto/contract/test/image-header-samples.ts';
import { at as elementAt } from '@matting/test-support/at.ts';
import sharp from 'sharp';
import type { Samples } from '../../../picture/codecs/colour/samples.ts';
import { readCodedItems } from '../../../picture/codecs/files/avif-file.ts';

type CodedItem = Awaited<ReturnType<typeof readCodedItems>>[number];

export interface AvifFields {
  readonly width: number;
  readonly height: number;
  readonly channels: 1 | 2 | 3 | 4;
  readonly bits: 8 | 10 | 12;
  /** The samples have 8 bits if `bits` is 8, else 16. */
  readonly samples: Samples;
  readonly colour: Buffer;
  readonly numbers?: Buffer;
  readonly premultiplied: boolean;
}

/** BT.601, by which the encoder makes luma and chroma. */
const ENCODED_BY = 6;

/** Content of a `colr` box: code points of ITU-T H.273. */
export function nclx(
  primaries: number,
  transfer: number,
  { isNarrow = false, matrix = ENCODED_BY } = {},
): Buffer {
  const range = isNarrow ? 0 : 0x80;
  return Buffer.from([...Buffer.from('nclx'), 0, primaries, 0, transfer, 0, matrix, range]);
}

export function profileColour(profile: Buffer): Buffer {
  return Buffer.concat([Buffer.from('prof'), profile]);
}

const COLOURS_ID = 1;
const ALPHA_ID = 2;

function fullBox(type: string, ...content: Buffer[]): Buffer {
  return box(type, Buffer.alloc(4), ...content);
}

export async function writeAvifFields(fields: AvifFields): Promise<Buffer> {
  const { width, height, channels, bits, colour, premultiplied } = fields;
  const isGrey = channels < 3;
  const hasAlpha = channels % 2 === 0;
  // The encoder's alpha is a picture of one channel, which it writes no grey as.
  const colours = isGrey
    ? elementAt(await encode(fields, [0, 0, 0, 0]), 1)
    : elementAt(await encode(fields, [0, 1, 2, 2]), 0);
  const items = [colours];
  if (hasAlpha) items.push(elementAt(await encode(fields, Array(4).fill(channels - 1)), 1));
  const pixi = (count: number) => fullBox('pixi', Buffer.from([count, ...Array(count).fill(bits)]));
  const auxiliary = Buffer.from('urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0');
  // The indices begin at 1: first come the properties that both have, then the colours', then
  // alpha's.
  const properties = [
    fullBox('ispe', u32(width, height)),
    box('av1C', colours.configuration),
    pixi(isGrey ? 1 : 3),
    box('colr', colour),
    ...(hasAlpha
      ? [box('av1C', elementAt(items, 1).configuration), pixi(1), fullBox('auxC', auxiliary)]
      : []),
    ...(fields.numbers ? [box('colr', fields.numbers)] : []),
  ];
  const ofColours = [1, 0x82, 3, 4, ...(fields.numbers ? [properties.length] : [])];
  const associations = [
    Buffer.concat([u16(COLOURS_ID), Buffer.from([ofColours.length, ...ofColours])]),
  ];
  if (hasAlpha) associations.push(Buffer.concat([u16(ALPHA_ID), Buffer.from([4, 1, 0x85, 6, 7])]));
  const references = [
    ...(hasAlpha ? [box('auxl', u16(ALPHA_ID, 1, COLOURS_ID))] : []),
    ...(premultiplied ? [box('prem', u16(COLOURS_ID, 1, ALPHA_ID))] : []),
  ];
  const infos = items.map((_, i) =>
    box('infe', Buffer.from([2, 0, 0, 0]), u16(i + 1, 0), Buffer.from('av01\0')),
  );
  const count = Buffer.from([0, 0, 0, items.length]);
  const others = [
    fullBox('hdlr', Buffer.alloc(4), Buffer.from('pict'), Buffer.alloc(13)),
    fullBox('pitm', u16(COLOURS_ID)),
    fullBox('iinf', u16(items.length), ...infos),
    ...(references.length > 0 ? [fullBox('iref', ...references)] : []),
    box('iprp', box('ipco', ...properties), fullBox('ipma', count, ...associations)),
  ];
  const ftyp = box('ftyp', Buffer.from('avif\0\0\0\0mif1avif'));
  const meta = (offset: number) => fullBox('meta', ...others, locations(items, offset));
  const dataAt = ftyp.length + meta(0).length + 8;
  return Buffer.concat([ftyp, meta(dataAt), box('mdat', ...items.map(({ data }) => data))]);
}

function locations(items: readonly CodedItem[], offset: number): Buffer {
  let at = offset;
  const entries = items.map(({ data }, i) => {
    at += data.length;
    return Buffer.concat([u16(i + 1, 0, 1), u32(at - data.length, data.length)]);
  });
  return fullBox('iloc', Buffer.from([0x44, 0]), u16(items.length), ...entries);
}

/** The coded colours and alpha of a picture made of the samples' channels of these numbers. */
async function encode(
  { width, height, channels, bits, samples }: AvifFields,
  order: readonly number[],
): Promise<CodedItem[]> {
  const rgba = new (bits === 8 ? Uint8Array : Uint16Array)(width * height * 4);
  for (let at = 0; at < rgba.length; at++) {
    rgba[at] = elementAt(samples, (at >>> 2) * channels + elementAt(order, at & 3));
  }
  // An opaque picture gets no alpha; no test notices the loss of one pixel's lowest bit.
  for (let at = 3; at < 8; at += 4)
    rgba[at] = Math.min(elementAt(rgba, at), elementAt(rgba, at) - (bits === 8 ? 1 : 64));
  const picture = sharp(rgba, { raw: { width, height, channels: 4 } });
  const deep = bits === 8 ? picture : picture.toColourspace('rgb16');
  const file = await deep
    .avif({ quality: 100, chromaSubsampling: '4:4:4', effort: 0, bitdepth: bits })
    .toBuffer();
  const items = await readCodedItems(file);
  if (items.length !== 2) throw new Error(`${items.length} coded pictures for colours and alpha`);
  return items;
}
