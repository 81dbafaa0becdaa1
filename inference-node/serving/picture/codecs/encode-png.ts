/**
 * PNG (ISO/IEC 15948), 8 bits a channel. Rows are filtered and compressed a strip at a time. A
 * cut-out's bytes are noise: runs and Huffman codes alone take a fifth of the time of a search and
 * fewer bytes. A drawing is the other way round: each picture is tried both ways.
 */

import {
  constants,
  crc32,
  createDeflate,
  type Deflate,
  deflateSync,
  type ZlibOptions,
} from 'node:zlib';
import { bytesAt, kernels, VECTOR_BYTES, withMemory } from '../kernels/kernels.ts';
import type { RawPixels } from '../rgba-picture.ts';

const RUNS: ZlibOptions = { level: 1, strategy: constants.Z_RLE };
const SEARCH: ZlibOptions = { level: 2 };
const STRIP_BYTES = 512 * 1024;
/** The size of zlib's output buffers; each becomes one IDAT chunk. */
const CHUNK_BYTES = 256 * 1024;
const CHUNK_OVERHEAD_BYTES = 12;

/** The encoder tries so many filtered rows: runs of rows, in which the search can find repeats. */
const SAMPLE_BYTES_MAX = 192 * 1024;
const SAMPLE_SHARE_MAX = 1 / 8;
const SAMPLES = 4;
const RUNS_BYTES_MAX = 1.02;
/** Room for the file, relative to what the samples say; a file that takes more gets the most. */
const ROOM = 1.5;
const COLOUR_TYPES = { 1: 0, 4: 6 } as const;
const PERCEPTUAL = 0;
const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

/** Marked as sRGB, unless it is a plane of grey. */
export async function encodePng(pixels: RawPixels): Promise<Buffer> {
  const bytesMax = fileBytesMax(pixels);
  const { ways, share } = waysOf(pixels);
  const room = Math.ceil(ROOM * share * bytesMax) + CHUNK_BYTES;
  let file = Buffer.allocUnsafeSlow(Math.min(bytesMax, room));
  let end = SIGNATURE.copy(file);
  const add = (type: string, data: Buffer) => {
    if (end + CHUNK_OVERHEAD_BYTES + data.length > file.length) file = sized(file, bytesMax);
    end = addChunk(file, end, type, data);
  };
  add('IHDR', headerOf(pixels));
  if (pixels.channels === 4) add('sRGB', Buffer.of(PERCEPTUAL));
  const deflate = createDeflate({ ...ways, chunkSize: CHUNK_BYTES });
  const read = async () => {
    for await (const data of deflate) add('IDAT', data);
  };
  await Promise.all([writeStrips(pixels, deflate), read()]);
  add('IEND', Buffer.alloc(0));
  return sized(file, end);
}

/** The buffer's own memory is freed. */
function sized({ buffer }: Buffer<ArrayBuffer>, bytes: number): Buffer<ArrayBuffer> {
  return Buffer.from(buffer.transfer(bytes));
}

/**
 * Bounds the file by zlib's deflateBound for any settings; zlib writes for each strip, and when a
 * chunk is full.
 */
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

/** All strips lie in one buffer, one after the other. */
async function writeStrips(pixels: RawPixels, deflate: Deflate): Promise<void> {
  const rowsMax = rowsOfStrip(pixels);
  const strip = Buffer.allocUnsafeSlow(rowsMax * rowBytes(pixels));
  for (let y = 0; y < pixels.height; y += rowsMax) {
    const bytes = filter(pixels, y, Math.min(rowsMax, pixels.height - y), strip);
    await new Promise<void>((resolve, reject) => {
      deflate.write(strip.subarray(0, bytes), error => (error ? reject(error) : resolve()));
    });
  }
  deflate.end();
}

/** With the number of its filter. */
function rowBytes({ width, channels }: RawPixels): number {
  return 1 + width * channels;
}

/**
 * The faster one, unless it makes too many bytes of some of the rows. `share`: of their bytes, once
 * compressed.
 */
function waysOf(pixels: RawPixels): { readonly ways: ZlibOptions; readonly share: number } {
  const { width, height, channels } = pixels;
  const rowsMax = SAMPLE_BYTES_MAX / (width * channels);
  const rows = Math.ceil(Math.min(rowsMax, height * SAMPLE_SHARE_MAX) / SAMPLES);
  const sampled = Buffer.allocUnsafe(SAMPLES * rows * rowBytes(pixels));
  for (let sample = 0, end = 0; sample < SAMPLES; sample += 1) {
    const y = Math.floor(((height - rows) * (sample + 0.5)) / SAMPLES);
    end += filter(pixels, y, rows, sampled.subarray(end));
  }
  const share = (options: ZlibOptions) => deflateSync(sampled, options).length / sampled.length;
  const [runs, search] = [share(RUNS), share(SEARCH)];
  const isFast = runs <= RUNS_BYTES_MAX * search;
  return isFast ? { ways: RUNS, share: runs } : { ways: SEARCH, share: search };
}

/** Returns the bytes that it wrote. */
function filter(pixels: RawPixels, y: number, rows: number, out: Uint8Array): number {
  const { data, width, channels } = pixels;
  const length = width * channels;
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
  return rows * rowBytes(pixels);
}

function addChunk(file: Buffer, start: number, type: string, data: Buffer): number {
  const end = start + CHUNK_OVERHEAD_BYTES + data.length;
  file.writeUInt32BE(data.length, start);
  file.write(type, start + 4, 'latin1');
  data.copy(file, start + 8);
  file.writeUInt32BE(crc32(file.subarray(start + 4, end - 4)), end - 4);
  return end;
}
