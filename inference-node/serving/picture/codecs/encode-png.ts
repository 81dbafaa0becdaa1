/**
 * PNG (ISO/IEC 15948), 8 bits a channel. A cut-out's bytes are noise: runs and Huffman codes alone
 * take a third of the time of zlib's search and as many bytes. A drawing takes fewer bytes with the
 * search, so both are tried on a sample.
 */

import { constants, crc32, deflateRawSync } from 'node:zlib';
import { type Borrow, bytesAt, kernels, VECTOR_BYTES, withMemory } from '../kernels/kernels.ts';
import type { RawPixels } from '../rgba-picture.ts';
import { deflateRuns } from './huffman.ts';

const SEARCH = { level: 2, finishFlush: constants.Z_SYNC_FLUSH };
const STRIP_BYTES = 512 * 1024;
const CHUNK_OVERHEAD_BYTES = 12;

/**
 * Filtered bytes of all samples. Each has consecutive rows, since zlib finds repeats only between
 * near ones.
 */
const SAMPLE_BYTES_MAX = 192 * 1024;
const SAMPLE_SHARE_MAX = 1 / 8;
const SAMPLES = 4;
const RUNS_BYTES_MAX = 1.05;
const ROOM = 1.5;
const COLOUR_TYPES = { 1: 0, 4: 6 } as const;
const PERCEPTUAL = 0;
const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
/** zlib's header (RFC 1950) for the fastest compression. */
const BEGIN = Buffer.from([0x78, 0x01]);

type Compress = (at: number, bytes: number) => Uint8Array;

export function encodePng(pixels: RawPixels): Buffer {
  return withMemory(borrow => {
    const strip = borrowStrip(borrow, pixels);
    const { compress, share } = chooseCompression(pixels, strip);
    const filteredBytes = pixels.height * rowBytes(pixels);
    let file = Buffer.allocUnsafeSlow(Math.ceil(ROOM * share * filteredBytes) + STRIP_BYTES);
    let end = SIGNATURE.copy(file);
    const add = (type: string, data: Uint8Array) => {
      const missing = end + CHUNK_OVERHEAD_BYTES + data.length - file.length;
      if (missing > 0) file = resized(file, file.length + Math.max(missing, filteredBytes / 4));
      end = addChunk(file, end, type, data);
    };
    add('IHDR', headerOf(pixels));
    if (pixels.channels === 4) add('sRGB', Buffer.of(PERCEPTUAL));
    add('IDAT', BEGIN);
    let sum = 1;
    for (let y = 0; y < pixels.height; y += strip.rowsMax) {
      const bytes = strip.filter(y, Math.min(strip.rowsMax, pixels.height - y));
      sum = kernels.adler32(strip.at, bytes, sum);
      add('IDAT', compress(strip.at, bytes));
    }
    const last = Buffer.of(3, 0, 0, 0, 0, 0);
    last.writeInt32BE(sum, 2);
    add('IDAT', last);
    add('IEND', Buffer.alloc(0));
    return resized(file, end);
  });
}

function resized({ buffer }: Buffer<ArrayBuffer>, bytes: number): Buffer<ArrayBuffer> {
  return Buffer.from(buffer.transfer(bytes));
}

function headerOf({ width, height, channels }: RawPixels): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.writeUInt8(8, 8);
  header.writeUInt8(COLOUR_TYPES[channels], 9);
  return header;
}

function rowBytes({ width, channels }: RawPixels): number {
  return 1 + width * channels;
}

function borrowStrip(borrow: Borrow, pixels: RawPixels) {
  const { data, width, channels } = pixels;
  const length = width * channels;
  const rowsMax = Math.max(SAMPLES, Math.floor(STRIP_BYTES / rowBytes(pixels)));
  const at = borrow(VECTOR_BYTES + rowsMax * rowBytes(pixels)) + VECTOR_BYTES;
  const above = borrow((1 + rowsMax) * length);
  // No filter has this number, so no run begins before the rows.
  bytesAt(at - 1, 1).fill(255);
  const filter = (y: number, rows: number, from = 0) => {
    const lines = bytesAt(above, (1 + rows) * length);
    if (y > 0) lines.set(data.subarray((y - 1) * length, (y + rows) * length));
    else lines.fill(0, 0, length).set(data.subarray(0, rows * length), length);
    kernels.filterRows(above + length, length, rows, channels, at + from);
    return rows * rowBytes(pixels);
  };
  return { rowsMax, at, filter };
}

/**
 * Chooses the faster way, unless the sample takes too many bytes. `share`: compressed bytes of a
 * filtered byte.
 */
function chooseCompression(
  pixels: RawPixels,
  strip: ReturnType<typeof borrowStrip>,
): { compress: Compress; share: number } {
  const { width, height, channels } = pixels;
  const rowsMax = SAMPLE_BYTES_MAX / (width * channels);
  const rows = Math.ceil(Math.min(rowsMax, height * SAMPLE_SHARE_MAX) / SAMPLES);
  let bytes = 0;
  for (let sample = 0; sample < SAMPLES; sample += 1) {
    const y = Math.floor(((height - rows) * (sample + 0.5)) / SAMPLES);
    bytes += strip.filter(y, rows, bytes);
  }
  const share = (compress: Compress) => compress(strip.at, bytes).length / bytes;
  const [ofRuns, ofSearch] = [share(deflateRuns), share(search)];
  const isFast = ofRuns <= RUNS_BYTES_MAX * ofSearch;
  return isFast ? { compress: deflateRuns, share: ofRuns } : { compress: search, share: ofSearch };
}

const search: Compress = (at, bytes) => deflateRawSync(bytesAt(at, bytes), SEARCH);

function addChunk(file: Buffer, start: number, type: string, data: Uint8Array): number {
  const end = start + CHUNK_OVERHEAD_BYTES + data.length;
  file.writeUInt32BE(data.length, start);
  file.write(type, start + 4, 'latin1');
  file.set(data, start + 8);
  file.writeUInt32BE(crc32(file.subarray(start + 4, end - 4)), end - 4);
  return end;
}
