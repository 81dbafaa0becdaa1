/** Pictures made in code, and readers of results. */
import assert from 'node:assert/strict';
import { crc32, deflateSync } from 'node:zlib';
import { ContractError, type ErrorCode } from '@matting/proto/contract/errors.ts';
import { at as elementAt } from '@matting/test-support/at.ts';
import { unzipSync } from 'fflate';
import sharp, { type Sharp } from 'sharp';
import type Vips from 'wasm-vips';
import { type DecodedFile, decodeFile } from '../picture/codecs/decode.ts';
import { type RgbaPicture, viewAsPixels } from '../picture/rgba-picture.ts';

export interface Pixels {
  readonly data: Buffer;
  readonly width: number;
  readonly height: number;
  readonly channels: 1 | 2 | 3 | 4;
}

export type Colour = (x: number, y: number) => readonly number[];

export function paint(
  width: number,
  height: number,
  channels: Pixels['channels'],
  at: Colour,
): Pixels {
  const data = Buffer.alloc(width * height * channels);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) data.set(at(x, y), (y * width + x) * channels);
  }
  return { data, width, height, channels };
}

/** Smooth, and different in each corner, to distinguish codecs and flips. */
export function paintSlope(width: number, height: number): Pixels {
  return paint(width, height, 3, (x, y) => [
    Math.round(40 + (170 * x) / Math.max(1, width - 1)),
    Math.round(40 + (170 * y) / Math.max(1, height - 1)),
    Math.round(60 + (60 * (x + y)) / (width + height)),
  ]);
}

export function asSharp({ data, width, height, channels }: Pixels): Sharp {
  return sharp(data, { raw: { width, height, channels } });
}

export function decode(
  file: Buffer,
  declared?: { readonly width: number; readonly height: number },
): Promise<DecodedFile> {
  return decodeFile(file, { declared, onOpened: () => undefined });
}

/** Undefined if the picture itself is at fault. */
export async function decodeIfWhole(file: Buffer, ...refusals: readonly ErrorCode[]) {
  try {
    return (await decode(file)).rgba;
  } catch (error) {
    assert.ok(error instanceof ContractError, String(error));
    assert.ok(['PROCESSING_FAILED', ...refusals].includes(error.code), error.code);
    assert.equal(error.retryable, false);
    return undefined;
  }
}

export async function toPicture(pixels: Pixels): Promise<DecodedFile> {
  return await decode(await asSharp(pixels).png().toBuffer());
}

export function asRgba({ data, width, height }: Pixels, translucent = false): RgbaPicture {
  return { rgba: viewAsPixels(data), width, height, translucent };
}

let vips: Promise<typeof Vips> | undefined;

export function loadVips(): Promise<typeof Vips> {
  vips ??= import('wasm-vips').then(({ default: createVips }) =>
    createVips({ dynamicLibraries: ['vips-jxl.wasm'], printErr: () => undefined }),
  );
  return vips;
}

export interface JxlOptions {
  readonly sixteenBit?: boolean;
  /** Height of one frame of an animation. */
  readonly pageHeight?: number;
  /** Loss in the measure of the format. Absent: lossless. */
  readonly distance?: number;
}

export async function writeJxl(pixels: Pixels, options: JxlOptions = {}): Promise<Buffer> {
  const { Image, BandFormat } = await loadVips();
  const { data, width, height, channels } = pixels;
  let image = Image.newFromMemory(data, width, height, channels, BandFormat.uchar).copy({
    interpretation: channels < 3 ? 'b-w' : 'srgb',
  });
  if (options.sixteenBit) image = image.colourspace(channels < 3 ? 'grey16' : 'rgb16');
  const paged = options.pageHeight === undefined ? {} : { page_height: options.pageHeight };
  const { distance } = options;
  const quality = distance === undefined ? { lossless: true } : { distance };
  return Buffer.from(image.jxlsaveBuffer({ ...quality, effort: 1, ...paged }));
}

export async function readJxl(file: Buffer): Promise<Pixels> {
  const { Image } = await loadVips();
  const image = Image.newFromBuffer(file, '');
  const data = Buffer.from(image.writeToMemory());
  const { width, height, bands } = image;
  return { data, width, height, channels: bands as Pixels['channels'] };
}

export function openZip(archive: Buffer): { colours: Buffer; alpha: Buffer } {
  const { 'color.jpg': colours, 'alpha.png': alpha, ...others } = unzipSync(archive);
  if (colours === undefined || alpha === undefined || Object.keys(others).length > 0) {
    throw new Error('an archive of other files than color.jpg and alpha.png');
  }
  return { colours: Buffer.from(colours), alpha: Buffer.from(alpha) };
}

/** As RGBA. From an archive it reads the colours. */
export async function readRgba(file: Buffer, format: string): Promise<Pixels> {
  if (format === 'zip') return await readRgba(openZip(file).colours, 'jpeg');
  if (format === 'jxl') {
    const picture = await readJxl(file);
    if (picture.channels !== 4)
      throw new Error(`${picture.channels} channels in the JPEG XL result`);
    return picture;
  }
  const { data, info } = await sharp(file)
    .ensureAlpha()
    .raw()
    .toBuffer({ resolveWithObject: true });
  return { data, width: info.width, height: info.height, channels: 4 };
}

export function createPngChunk(type: string, body: Buffer): Buffer {
  const typed = Buffer.concat([Buffer.from(type, 'latin1'), body]);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(body.length);
  const crc = Buffer.alloc(4);
  crc.writeUInt32BE(crc32(typed));
  return Buffer.concat([length, typed, crc]);
}

export interface PngFields {
  /** 0 grey, 2 RGB, 3 palette, 4 grey with alpha, 6 RGB with alpha. */
  readonly colourType: number;
  readonly depth: number;
  readonly width: number;
  readonly height: number;
  /** Samples of every row, as stored. */
  readonly row: readonly number[];
  /** Between IHDR and IDAT. */
  readonly chunks?: readonly Buffer[];
}

export function createPng(fields: PngFields): Buffer {
  const { colourType, depth, width, height, row, chunks = [] } = fields;
  const ihdr = Buffer.alloc(13);
  ihdr.writeUInt32BE(width, 0);
  ihdr.writeUInt32BE(height, 4);
  ihdr.set([depth, colourType], 8);
  const rows = Array.from({ length: height }, () => Buffer.from([0, ...row]));
  return Buffer.concat([
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    createPngChunk('IHDR', ihdr),
    ...chunks,
    createPngChunk('IDAT', deflateSync(Buffer.concat(rows))),
    createPngChunk('IEND', Buffer.alloc(0)),
  ]);
}

const PNG_SIGNATURE_BYTES = 8;
const IHDR_BYTES = 25;

export function insertPngChunks(png: Buffer, ...chunks: Buffer[]): Buffer {
  const at = PNG_SIGNATURE_BYTES + IHDR_BYTES;
  return Buffer.concat([png.subarray(0, at), ...chunks, png.subarray(at)]);
}

export function claimPngSize(png: Buffer, width: number, height: number): Buffer {
  const body = Buffer.from(png.subarray(PNG_SIGNATURE_BYTES + 8, PNG_SIGNATURE_BYTES + 21));
  body.writeUInt32BE(width, 0);
  body.writeUInt32BE(height, 4);
  return Buffer.concat([
    png.subarray(0, PNG_SIGNATURE_BYTES),
    createPngChunk('IHDR', body),
    png.subarray(PNG_SIGNATURE_BYTES + IHDR_BYTES),
  ]);
}

export function jpegDataStart(jpeg: Buffer): number {
  const scan = findJpegMarker(jpeg, 0xda);
  return scan + 2 + jpeg.readUInt16BE(scan + 2);
}

/**
 * With a restart marker after every row of blocks.
 * @param space grey, or 4:2:0, whose blocks are twice as large
 */
export async function writeJpegWithRestarts(
  pixels: Pixels,
  space: 'b-w' | 'srgb' = 'b-w',
): Promise<Buffer> {
  const { width, height } = pixels;
  const side = space === 'b-w' ? 8 : 16;
  const whole = await asSharp(pixels).removeAlpha().toColourspace(space).png().toBuffer();
  const rows = await Promise.all(
    Array.from({ length: height / side }, (_, row) =>
      sharp(whole)
        .extract({ left: 0, top: side * row, width, height: side })
        .toColourspace(space)
        .jpeg({ quality: 80, optimizeCoding: false })
        .toBuffer(),
    ),
  );
  const first = elementAt(rows, 0);
  const head = Buffer.from(first.subarray(0, jpegDataStart(first)));
  head.writeUInt16BE(height, findJpegMarker(head, 0xc0) + 5);
  const scan = findJpegMarker(head, 0xda);
  const interval = Buffer.from([0xff, 0xdd, 0, 4, 0, width / side]);
  const data = rows.flatMap((row, i) => {
    const codes = row.subarray(jpegDataStart(row), row.length - 2);
    return i === 0 ? [codes] : [Buffer.from([0xff, 0xd0 + ((i - 1) & 7)]), codes];
  });
  const end = first.subarray(first.length - 2);
  return Buffer.concat([head.subarray(0, scan), interval, head.subarray(scan), ...data, end]);
}

export function findJpegMarker(jpeg: Buffer, marker: number): number {
  const at = jpeg.indexOf(Buffer.from([0xff, marker]));
  if (at === -1) throw new Error(`no marker ${marker.toString(16)}`);
  return at;
}
