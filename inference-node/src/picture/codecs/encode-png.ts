/**
 * Encodes PNG (ISO/IEC 15948), 8 bits a channel. Rows are filtered by a kernel, a strip at a time,
 * while zlib compresses the strip before. Of a cut-out most bytes that are not 0 after the filter
 * are noise, in which no string comes twice: runs and Huffman codes alone take a fifth of the time
 * of a search and fewer bytes. A drawing is the other way round, so each picture is tried both ways
 * on some of its rows.
 */
import { once } from 'node:events';
import { constants, crc32, createDeflate, deflateSync, type ZlibOptions } from 'node:zlib';
import { bytesAt, kernels, VECTOR_BYTES, withMemory } from '../kernels/kernels.ts';
import type { RawPixels } from './raw-pixels.ts';

const RUNS: ZlibOptions = { level: 1, strategy: constants.Z_RLE };
const SEARCH: ZlibOptions = { level: 2 };
const STRIP_BYTES = 512 * 1024;
/** Of what zlib answers at once; each becomes one IDAT chunk. */
const CHUNK_BYTES = 256 * 1024;

/** Of filtered rows that are tried: runs of rows, in which the search can find what comes again. */
const SAMPLE_BYTES_MAX = 192 * 1024;
const SAMPLE_SHARE_MAX = 1 / 8;
const SAMPLES = 4;
/** Of those of the search. */
const RUNS_BYTES_MAX = 1.02;
const COLOUR_TYPES = { 1: 0, 4: 6 } as const;
/** Of the sRGB chunk, 11.3.2.5. */
const PERCEPTUAL = 0;
const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

/** Marked as sRGB, unless it is a plane of grey. */
export async function encodePng(pixels: RawPixels): Promise<Buffer> {
  const parts = [SIGNATURE, chunk('IHDR', headerOf(pixels))];
  if (pixels.channels === 4) parts.push(chunk('sRGB', Buffer.of(PERCEPTUAL)));
  for (const data of await compressed(pixels)) parts.push(chunk('IDAT', data));
  parts.push(chunk('IEND', Buffer.alloc(0)));
  return Buffer.concat(parts);
}

function headerOf({ width, height, channels }: RawPixels): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.writeUInt8(8, 8);
  header.writeUInt8(COLOUR_TYPES[channels], 9);
  return header;
}

async function compressed(pixels: RawPixels): Promise<Buffer[]> {
  const deflate = createDeflate({ ...waysOf(pixels), chunkSize: CHUNK_BYTES });
  const parts: Buffer[] = [];
  deflate.on('data', (part: Buffer) => void parts.push(part));
  const ended = once(deflate, 'end');
  const rowsMax = Math.max(1, Math.floor(STRIP_BYTES / (pixels.width * pixels.channels)));
  for (let y = 0; y < pixels.height; y += rowsMax) {
    const rows = Math.min(rowsMax, pixels.height - y);
    if (!deflate.write(filtered(pixels, y, rows))) await once(deflate, 'drain');
  }
  deflate.end();
  await ended;
  return parts;
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

/** Rows as they are compressed: for each the number of its filter, and its bytes. */
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

function chunk(type: string, data: Buffer): Buffer {
  const whole = Buffer.allocUnsafe(12 + data.length);
  whole.writeUInt32BE(data.length, 0);
  whole.write(type, 4, 'latin1');
  data.copy(whole, 8);
  whole.writeUInt32BE(crc32(whole.subarray(4, 8 + data.length)), 8 + data.length);
  return whole;
}
