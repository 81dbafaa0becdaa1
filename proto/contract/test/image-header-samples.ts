import sharp, { type Sharp } from 'sharp';
import type { ImageHeader } from '../image-header.ts';

export function u16(...values: number[]): Buffer {
  return Buffer.from(values.flatMap(value => [value >>> 8, value & 0xff]));
}

export function u32(...values: number[]): Buffer {
  return Buffer.concat(values.map(value => u16(value >>> 16, value & 0xffff)));
}

export function box(type: string, ...content: Buffer[]): Buffer {
  const body = Buffer.concat(content);
  return Buffer.concat([u32(8 + body.length), Buffer.from(type, 'latin1'), body]);
}

export function fullBox(type: string, version: number, ...content: Buffer[]): Buffer {
  return box(type, u32(version << 24), ...content);
}

export function ftyp(...brands: string[]): Buffer {
  const [major = Buffer.alloc(0), ...compatible] = brands.map(brand =>
    Buffer.from(brand, 'latin1'),
  );
  return box('ftyp', major, u32(0), ...compatible);
}

export function segment(marker: number, content: Buffer): Buffer {
  return Buffer.concat([Buffer.from([0xff, marker]), u16(content.length + 2), content]);
}

export function frameHeader(marker: number, width: number, height: number): Buffer {
  const components = Buffer.from([1, 1, 0x11, 0]);
  return segment(marker, Buffer.concat([Buffer.from([8]), u16(height), u16(width), components]));
}

export const SOI = Buffer.from([0xff, 0xd8]);

export function pngChunk(type: string, content: Buffer): Buffer {
  return Buffer.concat([u32(content.length), Buffer.from(type, 'latin1'), content, u32(0)]);
}

export function pngOf(width: number, height: number, ...chunks: Buffer[]): Buffer {
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  const rest = Buffer.from([8, 6, 0, 0, 0]);
  const ihdr = pngChunk('IHDR', Buffer.concat([u32(width), u32(height), rest]));
  return Buffer.concat([signature, ihdr, ...chunks, pngChunk('IDAT', Buffer.alloc(1))]);
}

interface HeifItem {
  readonly id: number;
  readonly type: string;
  readonly data?: Buffer;
  /** In the order in which they apply. */
  readonly properties?: readonly Buffer[];
}

interface HeifParts {
  readonly brands: readonly string[];
  readonly items: readonly HeifItem[];
  readonly references?: readonly (readonly [type: string, from: number, to: readonly number[]])[];
  /** Default: 1. null: none. */
  readonly primaryId?: number | null;
  /** Between `meta` and the data. */
  readonly others?: readonly Buffer[];
}

/** Each item is one extent at the end of the file. */
export function writeHeif({ brands, items, references, primaryId, others }: HeifParts): Buffer {
  const infos = items.map(({ id, type }) =>
    fullBox('infe', 2, u16(id, 0), Buffer.from(`${type}\0`, 'latin1')),
  );
  const refs = (references ?? []).map(([type, from, to]) => box(type, u16(from, to.length, ...to)));
  let index = 0;
  const associations = items.map(({ id, properties = [] }) => {
    const indices = properties.map(() => {
      index += 1;
      return 0x8000 | index;
    });
    return Buffer.concat([u16(id), Buffer.from([indices.length]), u16(...indices)]);
  });
  const ipco = box('ipco', ...items.flatMap(({ properties = [] }) => properties));
  const meta = (dataAt: number) => {
    let at = dataAt;
    const locations = items.map(({ id, data = Buffer.alloc(0) }) => {
      at += data.length;
      return Buffer.concat([u16(id, 0, 0, 1), u32(at - data.length, data.length)]);
    });
    return fullBox(
      'meta',
      0,
      fullBox('hdlr', 0, Buffer.alloc(20)),
      ...(primaryId === null ? [] : [fullBox('pitm', 0, u16(primaryId ?? 1))]),
      fullBox('iloc', 1, Buffer.from([0x44, 0]), u16(items.length), ...locations),
      fullBox('iinf', 0, u16(items.length), ...infos),
      ...(refs.length === 0 ? [] : [fullBox('iref', 0, ...refs)]),
      box('iprp', ipco, box('ipma', u32(1, items.length), ...associations)),
    );
  };
  const start = [ftyp(...brands), ...(others ?? [])];
  const startBytes = Buffer.concat(start).length;
  const dataAt = startBytes + meta(0).length + 8;
  const data = items.map(item => item.data ?? Buffer.alloc(0));
  const [first = Buffer.alloc(0), ...rest] = start;
  return Buffer.concat([first, meta(dataAt), ...rest, box('mdat', ...data)]);
}

export function ispe(width: number, height: number): Buffer {
  return fullBox('ispe', 0, u32(width, height));
}

export function hvcC(lumaBits = 8, chromaBits = lumaBits): Buffer {
  const head = Buffer.alloc(17);
  head[0] = 1;
  return box('hvcC', head, Buffer.from([0xf8 | (lumaBits - 8), 0xf8 | (chromaBits - 8)]));
}

export function heifOf(
  brands: readonly string[],
  items: readonly {
    readonly id: number;
    readonly type: string;
    readonly size: readonly [width: number, height: number];
  }[],
  primaryId: number,
  references?: HeifParts['references'],
): Buffer {
  const properties = (size: readonly [number, number]) => [
    box('pixi', Buffer.alloc(8)),
    ispe(size[0], size[1]),
  ];
  const parts = items.map(({ id, type, size }) => ({ id, type, properties: properties(size) }));
  return writeHeif({ brands, items: parts, primaryId, ...(references && { references }) });
}

export class BitWriter {
  readonly #bits: number[] = [];

  put(value: number, count: number): this {
    for (let i = 0; i < count; i += 1) this.#bits.push(Math.floor(value / 2 ** i) & 1);
    return this;
  }

  bytes(): Buffer {
    const bytes = Buffer.alloc(Math.ceil(this.#bits.length / 8));
    this.#bits.forEach((bit, i) => {
      bytes.writeUInt8(bytes.readUInt8(i >>> 3) | (bit << (i & 7)), i >>> 3);
    });
    return bytes;
  }
}

/** The ranges of a JPEG XL side, by selector. */
const JXL_RANGE_BITS = [9, 13, 18, 30] as const;

export function putJxlSide(bits: BitWriter, side: number): BitWriter {
  const selector = JXL_RANGE_BITS.findIndex(count => side - 1 < 2 ** count);
  return bits.put(selector, 2).put(side - 1, JXL_RANGE_BITS[selector as 0 | 1 | 2 | 3]);
}

export function jxlOf(
  width: number,
  height: number,
  putMetadata: (bits: BitWriter) => BitWriter = bits => bits.put(1, 1),
): Buffer {
  const bits = putJxlSide(putJxlSide(new BitWriter().put(0, 1), height).put(0, 3), width);
  const head = putMetadata(bits).bytes();
  return Buffer.concat([Buffer.from([0xff, 0x0a]), head, Buffer.alloc(40)]);
}

export const JXL_SIGNATURE = box('JXL ', Buffer.from([0x0d, 0x0a, 0x87, 0x0a]));

export function jxlContainerOf(...boxes: Buffer[]): Buffer {
  return Buffer.concat([JXL_SIGNATURE, ftyp('jxl '), ...boxes]);
}

/** By wasm-vips 0.0.19, 37x21: the first jxlp box has five bytes of the codestream. */
const ENCODED_JXL_37X21 = Buffer.from(
  '0000000c4a584c200d0a870a00000014667479706a786c20000000006a786c20000000116a786c7000000000' +
    'ff0aa0d00100000010786d6c203c783e3c2f783e0000002c6a786c7080000001',
  'hex',
);

function pixels(width: number, height: number, channels: 3 | 4): Sharp {
  const data = Buffer.alloc(width * height * channels);
  data.forEach((_, i) => {
    data[i] = (i * 37) & 0xff;
  });
  return sharp(data, { raw: { width, height, channels } });
}

export interface Sample {
  readonly name: string;
  readonly file: Buffer;
  readonly format: ImageHeader['format'];
  readonly width: number;
  readonly height: number;
  readonly animated: boolean;
}

/** A file of each kind, by sharp where it can encode it. */
export async function encodedSamples(): Promise<Sample[]> {
  const plain = () => pixels(37, 21, 3);
  const clear = () => pixels(37, 21, 4);
  const turned = plain().withMetadata({ orientation: 6 });
  const stills: readonly [format: ImageHeader['format'], name: string, file: Sharp | Buffer][] = [
    ['jpeg', 'jpeg', plain().jpeg()],
    ['jpeg', 'progressive jpeg with EXIF', turned.jpeg({ progressive: true })],
    ['png', 'png', clear().png()],
    ['png', 'palette png', plain().png({ palette: true })],
    ['webp', 'webp', plain().webp()],
    ['webp', 'lossless webp', plain().webp({ lossless: true })],
    ['webp', 'webp with alpha', clear().webp({ quality: 50 })],
    ['avif', 'avif', plain().avif({ effort: 0 })],
    ['avif', 'avif with alpha', clear().avif({ effort: 0 })],
    ['heic', 'heic', heifOf(['heic', 'mif1'], [{ id: 1, type: 'hvc1', size: [37, 21] }], 1)],
    ['jxl', 'jxl', jxlOf(37, 21)],
    ['jxl', 'jxl in a container', jxlContainerOf(box('jxlc', jxlOf(37, 21)))],
    ['jxl', 'jxl in parts', ENCODED_JXL_37X21],
  ];
  const samples: Sample[] = [];
  for (const [format, name, made] of stills) {
    const file = Buffer.isBuffer(made) ? made : await made.toBuffer();
    samples.push({ format, name, file, width: 37, height: 21, animated: false });
  }
  const moving = { name: 'animated webp', file: await animatedWebp(), format: 'webp' } as const;
  return [...samples, { ...moving, width: 16, height: 12, animated: true }];
}

async function animatedWebp(): Promise<Buffer> {
  const one = await pixels(16, 12, 4).png().toBuffer();
  const other = await sharp(one).negate({ alpha: false }).png().toBuffer();
  return sharp([one, other], { join: { animated: true } })
    .webp({ loop: 0 })
    .toBuffer();
}
