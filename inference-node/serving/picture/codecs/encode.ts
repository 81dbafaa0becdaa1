/**
 * Encodes pixels as the contract's "Output" says, 100 megapixels well within a minute. Figures:
 * processor time, 2 cores of an AMD EPYC, a cut-out with soft edges; memory above an idle worker's.
 *
 *              0.25 MP          2 MP             12 MP            100 MP
 *   png        13 ms 205 KB     81 ms 1.3 MB     0.5 s  6.2 MB    4.7 s, peak 0.6 GB
 *   webp       64 ms  26 KB    252 ms 144 KB     0.9 s  1.1 MB    5.9 s, peak 1.0 GB
 *   avif       90 ms  28 KB    200 ms 209 KB     1.6 s  0.8 MB   13.5 s, peak 1.4 GB
 *   jxl        34 ms  22 KB    199 ms 114 KB     1.4 s  0.7 MB   23   s, peak 6.9 GB (cjxl)
 *   jpeg                                        0.1 s  0.7 MB    1.6 s, peak 1.7 GB
 *   zip                                         0.6 s  1.1 MB    4.3 s, peak 1.8 GB
 *
 * PNG's times are libvips': ours takes 0.3 to 0.5 of them, with fewer bytes. AVIF at effort 1 takes
 * two to three times as long as at 0 for files 10 to 25 % smaller, at 2 four times for no more.
 */

import { pipeline } from 'node:stream/promises';
import { constants, crc32, createDeflate, deflateSync, type ZlibOptions } from 'node:zlib';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import { zipSync } from 'fflate';
import { bytesAt, kernels, VECTOR_BYTES, withMemory } from '../kernels/kernels.ts';
import { type RawPixels, viewAsBytes, viewAsPixels } from '../rgba-picture.ts';
import { encodeJxl } from './codec-jxl.ts';
import { openRaw } from './codec-sharp.ts';
import { type CodedStrip, readCodedItems, writeAvif } from './files/avif-file.ts';
import { encodeAlphaPlane, fillEdges, tagWebp } from './webp-alpha.ts';

export async function encodePixels(pixels: RawPixels, format: OutputFormat): Promise<Buffer> {
  switch (format) {
    case 'png':
      return await encodePng(pixels);
    case 'webp':
      return await encodeWebp(pixels);
    case 'avif':
      return await (pixels.channels === 1 ? encodeAvifPlane(pixels) : encodeAvif(pixels));
    case 'jxl':
      return await encodeJxl(pixels);
    case 'jpeg':
      return await encodeJpeg(pixels);
    case 'zip':
      return await encodeZip(pixels, encodePng);
  }
}

function encodeAvifPlane(pixels: RawPixels): Promise<Buffer> {
  return openRaw(pixels).avif({ lossless: true, effort: 0, bitdepth: 8 }).toBuffer();
}

/*
 * AVIF. libvips gives alpha the quality of the colours (up to 11 of 255 off at 90), so alpha is
 * encoded apart, losslessly, as that of a black picture. A portrait of 12 MP (one thread of an AMD
 * EPYC): colours 0.74 s and 601 KB, alpha 0.89 s and 226 KB; together at 90, lossy, 1.1 s and 820
 * KB.
 */

const QUALITY = 85;
/** Effort (0 to 9) is 1 up to this size and 0 above. */
const EFFORT_1_PIXELS_MAX = 1_000_000;
/**
 * The largest frame of any level of AV1 (annex A.3): larger pictures are written in strips, smaller
 * ones in one frame, since not every reader knows grids.
 */
const FRAME_PIXELS_MAX = 35_651_584;
/** Bound of a strip where there are several: the encoder takes up to 40 bytes a pixel. */
const STRIP_PIXELS_MAX = 17_000_000;
/** Up to here colours and alpha are encoded at once: half the time for twice the memory. */
const AT_ONCE_PIXELS_MAX = 17_000_000;

const ALPHA_BITS = 0xff000000;

async function encodeAvif({ data, width, height }: RawPixels): Promise<Buffer> {
  const pixels = width * height;
  const count = pixels <= FRAME_PIXELS_MAX ? 1 : Math.ceil(pixels / STRIP_PIXELS_MAX);
  const stripHeight = Math.ceil(height / count);
  const strips = [];
  for (let top = 0; top < height; top += stripHeight) {
    const strip = takeStrip(data, width, top, stripHeight);
    const raw: RawPixels = { data: strip, width, height: stripHeight, channels: 4 };
    strips.push(await encodeStrip(raw, pixels));
  }
  return writeAvif({ width, height, strips, stripHeight });
}

/** Rows of the picture; below its end the last row is repeated. */
function takeStrip(data: Buffer, width: number, top: number, height: number): Buffer {
  const rowBytes = width * 4;
  const there = data.subarray(top * rowBytes, (top + height) * rowBytes);
  const missing = height - there.length / rowBytes;
  if (missing === 0) return there;
  const lastRow = there.subarray(there.length - rowBytes);
  return Buffer.concat([there, ...Array<Buffer>(missing).fill(lastRow)]);
}

async function encodeStrip(raw: RawPixels, picturePixels: number) {
  const effort = picturePixels <= EFFORT_1_PIXELS_MAX ? 1 : 0;
  const options = { effort, bitdepth: 8 } as const;
  const encodeColours = () =>
    openRaw(raw)
      .removeAlpha()
      .avif({ ...options, quality: QUALITY, chromaSubsampling: '4:4:4' })
      .toBuffer();
  // Quality 100 is lossless in its one plane; `lossless` would spend more on the black.
  const encodeAlpha = (data: Buffer) =>
    openRaw({ ...raw, data })
      .avif({ ...options, quality: 100, chromaSubsampling: '4:2:0' })
      .toBuffer();
  if (raw.width * raw.height <= AT_ONCE_PIXELS_MAX) {
    const alphaFile = encodeAlpha(blacken(Buffer.from(raw.data)));
    return pair(...(await Promise.all([encodeColours(), alphaFile])));
  }
  const colours = await encodeColours();
  return pair(colours, await encodeAlpha(blacken(raw.data)));
}

function pair(coloursFile: Buffer, alphaFile: Buffer): CodedStrip {
  const [colours] = readCodedItems(coloursFile);
  const [, alpha] = readCodedItems(alphaFile);
  if (colours === undefined || alpha === undefined) throw new Error('the encoder left out an item');
  return { colours, alpha };
}

/** Keeps only the alpha of every pixel, in place. */
function blacken(data: Buffer): Buffer {
  const pixels = viewAsPixels(data);
  for (let i = 0; i < pixels.length; i++) pixels[i]! &= ALPHA_BITS;
  return Buffer.from(pixels.buffer, pixels.byteOffset, pixels.byteLength);
}

/*
 * PNG (ISO/IEC 15948), 8 bits a channel. Rows are filtered a strip at a time, while zlib compresses
 * the one before. A cut-out's bytes are noise: runs and Huffman codes alone take a fifth of the
 * time of a search and fewer bytes. A drawing is the other way round: each picture is tried both
 * ways.
 */

const RUNS: ZlibOptions = { level: 1, strategy: constants.Z_RLE };
const SEARCH: ZlibOptions = { level: 2 };
const STRIP_BYTES = 512 * 1024;
/** Of what zlib answers at once; each becomes one IDAT chunk. */
const CHUNK_BYTES = 256 * 1024;
const CHUNK_OVERHEAD_BYTES = 12;

/** Of filtered rows that are tried: runs of rows, in which the search can find what comes again. */
const SAMPLE_BYTES_MAX = 192 * 1024;
const SAMPLE_SHARE_MAX = 1 / 8;
const SAMPLES = 4;
const RUNS_BYTES_MAX = 1.02;
const COLOUR_TYPES = { 1: 0, 4: 6 } as const;
const PERCEPTUAL = 0;
const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

/** Marked as sRGB, unless it is a plane of grey. */
export async function encodePng(pixels: RawPixels): Promise<Buffer> {
  // Room for the most that there can be: memory is taken only by what is written.
  const file = Buffer.allocUnsafeSlow(fileBytesMax(pixels));
  let end = SIGNATURE.copy(file);
  const add = (type: string, data: Buffer) => {
    end = addChunk(file, end, type, data);
  };
  add('IHDR', headerOf(pixels));
  if (pixels.channels === 4) add('sRGB', Buffer.of(PERCEPTUAL));
  const deflate = createDeflate({ ...waysOf(pixels), chunkSize: CHUNK_BYTES });
  await pipeline(strips(pixels), deflate, async compressed => {
    for await (const data of compressed) add('IDAT', data);
  });
  add('IEND', Buffer.alloc(0));
  return file.subarray(0, end);
}

/** By zlib's deflateBound for any settings; it answers to each strip, and when a chunk is full. */
function fileBytesMax(pixels: RawPixels): number {
  const { width, height, channels } = pixels;
  const bytes = height * (1 + width * channels);
  const compressed = bytes + Math.ceil(bytes / 8) + Math.ceil(bytes / 64) + 32;
  const chunks = 4 + Math.ceil(height / rowsOfStrip(pixels)) + Math.ceil(compressed / CHUNK_BYTES);
  return SIGNATURE.length + 64 + compressed + chunks * CHUNK_OVERHEAD_BYTES;
}

function headerOf({ width, height, channels }: RawPixels): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.writeUInt8(8, 8);
  header.writeUInt8(COLOUR_TYPES[channels], 9);
  return header;
}

function rowsOfStrip({ width, channels }: RawPixels): number {
  return Math.max(1, Math.floor(STRIP_BYTES / (width * channels)));
}

function* strips(pixels: RawPixels): Generator<Buffer> {
  const rowsMax = rowsOfStrip(pixels);
  for (let y = 0; y < pixels.height; y += rowsMax) {
    yield filtered(pixels, y, Math.min(rowsMax, pixels.height - y));
  }
}

/** The faster one, unless it makes too many bytes of some of the rows. */
function waysOf(pixels: RawPixels): ZlibOptions {
  const { width, height, channels } = pixels;
  const rowsMax = SAMPLE_BYTES_MAX / (width * channels);
  const rows = Math.ceil(Math.min(rowsMax, height * SAMPLE_SHARE_MAX) / SAMPLES);
  const samples: Buffer[] = [];
  for (let sample = 0; sample < SAMPLES; sample += 1) {
    const y = Math.floor(((height - rows) * (sample + 0.5)) / SAMPLES);
    samples.push(filtered(pixels, y, rows));
  }
  const sampled = Buffer.concat(samples);
  const bytes = (options: ZlibOptions) => deflateSync(sampled, options).length;
  return bytes(RUNS) <= RUNS_BYTES_MAX * bytes(SEARCH) ? RUNS : SEARCH;
}

function filtered({ data, width, channels }: RawPixels, y: number, rows: number): Buffer {
  const length = width * channels;
  const out = Buffer.allocUnsafe(rows * (length + 1));
  withMemory(borrow => {
    // Zeros before a row and behind it, for what the filters see beyond its ends.
    const pitch = VECTOR_BYTES * (2 + Math.ceil(length / VECTOR_BYTES));
    const lines = [borrow(pitch), borrow(pitch)].map(at => at + VECTOR_BYTES);
    const filteredAt = borrow(pitch);
    for (const line of lines) bytesAt(line - VECTOR_BYTES, pitch).fill(0);
    const lineOf = (row: number) => lines[row & 1] as number;
    const take = (row: number) =>
      bytesAt(lineOf(row), length).set(data.subarray(row * length, (row + 1) * length));
    if (y > 0) take(y - 1);
    for (let row = y; row < y + rows; row += 1) {
      take(row);
      kernels.filterRow(lineOf(row), lineOf(row + 1), length, channels, filteredAt);
      out.set(bytesAt(filteredAt, length + 1), (row - y) * (length + 1));
    }
  });
  return out;
}

function addChunk(file: Buffer, start: number, type: string, data: Buffer): number {
  const end = start + CHUNK_OVERHEAD_BYTES + data.length;
  file.writeUInt32BE(data.length, start);
  file.write(type, start + 4, 'latin1');
  data.copy(file, start + 8);
  file.writeUInt32BE(crc32(file.subarray(start + 4, end - 4)), end - 4);
  return end;
}

/* WebP. libwebp needs 25 bytes a pixel for both parts: in large pictures alpha is coded here. */

const WEBP_QUALITY = 90;
/** libwebp's effort (0 to 6) by size: the first row whose `pixelsMax` is not exceeded. */
const EFFORTS = [
  { pixelsMax: 1_000_000, effort: 4 },
  { pixelsMax: 4_000_000, effort: 2 },
  { pixelsMax: 40_000_000, effort: 0 },
] as const;
/** The lowest that bounds its first partition: below it all of 75 MP and more failed. */
const SAFE_EFFORT = 2;
/** Above this size alpha is coded apart (docs/adr/0018). */
const TOGETHER_PIXELS_MAX = 24_000_000;

export async function encodeWebp(
  pixels: RawPixels,
  togetherPixelsMax = TOGETHER_PIXELS_MAX,
): Promise<Buffer> {
  const { data, width, height, channels } = pixels;
  // A plane is a matte, and mattes are lossless.
  if (channels === 1) return await openRaw(pixels).webp({ lossless: true, effort: 0 }).toBuffer();
  const count = width * height;
  const isApart = count > togetherPixelsMax;
  const alphaPlane = isApart ? takeAlpha(pixels) : undefined;
  const encode = (effort: number) => {
    const picture = openRaw({ ...pixels, data });
    const seen = isApart ? picture.removeAlpha() : picture;
    return seen.webp({ quality: WEBP_QUALITY, alphaQuality: 100, effort }).toBuffer();
  };
  const effort = EFFORTS.find(({ pixelsMax }) => count <= pixelsMax)?.effort ?? SAFE_EFFORT;
  const webp =
    effort >= SAFE_EFFORT
      ? await encode(effort)
      : await encode(effort).catch(() => encode(SAFE_EFFORT));
  return tagWebp(webp, width, height, alphaPlane);
}

function takeAlpha({ data, width, height }: RawPixels): Buffer {
  const pixels = viewAsPixels(data);
  const plane = encodeAlphaPlane(pixels, width);
  fillEdges(pixels, width, height);
  return plane;
}

/* A ZIP archive of colours (color.jpg) and alpha (alpha.png), stored: neither gets smaller. */

/** The archive of one picture has the same bytes at any time: the earliest that the format knows. */
const MODIFIED_AT = new Date(1980, 0, 1);

async function encodeZip(
  pixels: RawPixels,
  encodePlane: (plane: RawPixels) => Promise<Buffer>,
): Promise<Buffer> {
  const { width, height } = pixels;
  if (pixels.channels !== 4) throw new Error('an archive of colours without their alpha');
  const rgba = viewAsPixels(pixels.data);
  const alpha = Buffer.allocUnsafeSlow(rgba.length);
  for (let i = 0; i < rgba.length; i++) alpha[i] = rgba[i]! >>> 24;
  const alphaPng = await encodePlane({ data: alpha, width, height, channels: 1 });
  spreadColours(rgba, width, height);
  const colourJpeg = await encodeJpeg({ ...pixels, data: viewAsBytes(rgba) });
  const files = { 'color.jpg': colourJpeg, 'alpha.png': alphaPng };
  const archive = zipSync(files, { level: 0, mtime: MODIFIED_AT });
  return Buffer.from(archive.buffer, archive.byteOffset, archive.byteLength);
}

/**
 * Gives transparent pixels the colours of the nearest visible ones, so that colours without alpha
 * have no edge to black. Summed in blocks, two by two a level; an empty block takes the mean of the
 * finest one above it that has any.
 */

const BLOCK_SIDE = 8;
/** Numbers of a cell: alpha, and red, green and blue weighted with it. */
const PARTS = 4;

interface Level {
  readonly columns: number;
  readonly rows: number;
  readonly cells: Float64Array;
}

/** In place; no alpha changes. */
function spreadColours(pixels: Uint32Array, width: number, height: number): void {
  const levels = [sumBlocks(pixels, width, height)];
  for (let fine = levels[0]!; fine.columns * fine.rows > 1; fine = levels[0]!) {
    levels.unshift(halve(fine));
  }
  for (let i = 1; i < levels.length; i++) fillEmpty(levels[i]!, levels[i - 1]!);
  paintHidden(pixels, width, height, levels.at(-1)!);
}

function createLevel(columns: number, rows: number): Level {
  return { columns, rows, cells: new Float64Array(columns * rows * PARTS) };
}

function sumBlocks(pixels: Uint32Array, width: number, height: number): Level {
  const level = createLevel(Math.ceil(width / BLOCK_SIDE), Math.ceil(height / BLOCK_SIDE));
  const { columns, cells } = level;
  // Every index is within the picture and its cells.
  for (let y = 0, i = 0; y < height; y++) {
    const row = Math.floor(y / BLOCK_SIDE) * columns;
    for (let x = 0; x < width; x++, i++) {
      const pixel = pixels[i]!;
      const alpha = pixel >>> 24;
      if (alpha === 0) continue;
      const at = (row + (x >>> 3)) * PARTS;
      cells[at]! += alpha;
      cells[at + 1]! += (pixel & 255) * alpha;
      cells[at + 2]! += ((pixel >>> 8) & 255) * alpha;
      cells[at + 3]! += ((pixel >>> 16) & 255) * alpha;
    }
  }
  return level;
}

function halve(fine: Level): Level {
  const coarse = createLevel(Math.ceil(fine.columns / 2), Math.ceil(fine.rows / 2));
  for (let row = 0; row < fine.rows; row++) {
    for (let column = 0; column < fine.columns; column++) {
      const from = (row * fine.columns + column) * PARTS;
      const to = ((row >>> 1) * coarse.columns + (column >>> 1)) * PARTS;
      for (let part = 0; part < PARTS; part++) coarse.cells[to + part]! += fine.cells[from + part]!;
    }
  }
  return coarse;
}

function fillEmpty(fine: Level, coarse: Level): void {
  for (let row = 0; row < fine.rows; row++) {
    for (let column = 0; column < fine.columns; column++) {
      const to = (row * fine.columns + column) * PARTS;
      if (fine.cells[to]! > 0) continue;
      const from = ((row >>> 1) * coarse.columns + (column >>> 1)) * PARTS;
      for (let part = 0; part < PARTS; part++) fine.cells[to + part] = coarse.cells[from + part]!;
    }
  }
}

function paintHidden(
  pixels: Uint32Array,
  width: number,
  height: number,
  { columns, cells }: Level,
): void {
  for (let y = 0, i = 0; y < height; y++) {
    const row = Math.floor(y / BLOCK_SIDE) * columns;
    for (let x = 0; x < width; x++, i++) {
      if (pixels[i]! >>> 24 !== 0) continue;
      const at = (row + (x >>> 3)) * PARTS;
      const alpha = cells[at]!;
      if (alpha === 0) return;
      const red = Math.round(cells[at + 1]! / alpha);
      const green = Math.round(cells[at + 2]! / alpha);
      const blue = Math.round(cells[at + 3]! / alpha);
      pixels[i] = red | (green << 8) | (blue << 16);
    }
  }
}

const JPEG_QUALITY = 90;

/** sRGB, as every JPEG without a profile. Alpha is left out. */
async function encodeJpeg(pixels: RawPixels): Promise<Buffer> {
  const picture = openRaw(pixels);
  return await (pixels.channels === 1 ? picture : picture.removeAlpha())
    .jpeg({ quality: JPEG_QUALITY, chromaSubsampling: '4:4:4' })
    .toBuffer();
}
