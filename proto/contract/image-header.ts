/**
 * Reads the first bytes of a file without decoding a pixel: which of the six input formats it is,
 * its stored width and height, and whether it is animated. Hostile input is expected: every read is
 * bounded and every loop ends.
 */
import { type ByteReader, ByteWindow, type ImageHeader } from './image-header/byte-window.ts';
import { KIND_BYTES, kindOfFile } from './image-header/file-kinds.ts';
import { isIsoFile, nameIsoFile, readHeifHeader } from './image-header/heif.ts';
import {
  isJxlCodestream,
  isJxlContainer,
  readJxlCodestream,
  readJxlContainer,
} from './image-header/jxl.ts';

export type { ByteReader, ImageHeader };

const SIGNATURE_BYTES = 12;

type FormatReader = (window: ByteWindow) => Promise<ImageHeader | undefined>;

function readerFor(start: Buffer): FormatReader | undefined {
  if (isJpeg(start)) return readJpeg;
  if (isPng(start)) return readPng;
  if (isWebp(start)) return readWebp;
  if (isJxlContainer(start)) return readJxlContainer;
  if (isJxlCodestream(start)) return readJxlCodestream;
  if (isIsoFile(start)) return readHeifHeader;
  return undefined;
}

/** Undefined: none of the six formats. Never rejects on bytes, only where `read` does. */
export async function readImageHeader(
  read: ByteReader,
  sizeBytes: number,
): Promise<ImageHeader | undefined> {
  const window = new ByteWindow(read, sizeBytes);
  const reader = readerFor(await window.upTo(0, SIGNATURE_BYTES));
  const header = await reader?.(window);
  // A picture without pixels has no readable size: one side alone says nothing.
  if (header === undefined || (header.width && header.height)) return header;
  return { ...header, width: undefined, height: undefined };
}

const READ = 'JPEG, PNG, WebP, AVIF, HEIC or JPEG XL';

/**
 * The text of a refusal, for a file that `readImageHeader` returns nothing for: what it is, and what
 * to send. It reads the first bytes, and of an ISO media file its boxes.
 * @param served of what came from an address: its Content-Type, empty where it had none
 */
export async function describeUnread(
  read: ByteReader,
  sizeBytes: number,
  served?: string,
): Promise<string> {
  const start = await new ByteWindow(read, sizeBytes).upTo(0, KIND_BYTES);
  const named = kindOfFile(start) ?? (isIsoFile(start) && (await nameIsoFile(read, sizeBytes)));
  const kind = named || 'a file of an unknown kind';
  const as = served ? ` (Content-Type: ${served})` : '';
  const seen = served === undefined ? `This is ${kind}.` : `The address returned ${kind}${as}.`;
  return `${seen} Send an image as ${READ}.`;
}

/* The headers of JPEG (ITU-T T.81), PNG (ISO/IEC 15948, with APNG) and WebP (RFC 9649). */

/** Segments before the frame header; 50 MB of full APP segments are 800. */
const SEGMENTS_MAX = 4096;
/** Fill bytes and stray bytes between all the segments, which libjpeg skips too. */
const STRAY_BYTES_MAX = 65_536;

const SOI = 0xd8;
const EOI = 0xd9;
const SOS = 0xda;
const TEM = 0x01;

function isJpeg(start: Buffer): boolean {
  return start.length >= 3 && start[0] === 0xff && start[1] === SOI && start[2] === 0xff;
}

/** SOF0 to SOF15 (baseline, progressive, lossless, arithmetic ...) without DHT, JPG and DAC. */
export function isFrameHeader(marker: number): boolean {
  return marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
}

function standsAlone(marker: number): boolean {
  return marker === TEM || (marker >= 0xd0 && marker <= SOI);
}

/**
 * The next marker's code and the offset behind it. Skips stray and fill bytes, at most `strayMax`;
 * the marker's own two bytes do not count.
 */
async function nextMarker(
  window: ByteWindow,
  from: number,
  strayMax: number,
): Promise<{ marker: number; offset: number } | undefined> {
  let afterFf = false;
  for (let offset = from; offset < from + strayMax + 2; offset += 1) {
    const byte = (await window.at(offset, 1))?.[0];
    if (byte === undefined) return undefined;
    if (byte === 0xff) afterFf = true;
    else if (afterFf && byte !== 0) return { marker: byte, offset: offset + 1 };
    else afterFf = false;
  }
  return undefined;
}

async function readJpeg(window: ByteWindow): Promise<ImageHeader> {
  const header = { format: 'jpeg', width: undefined, height: undefined, animated: false } as const;
  let offset = 2;
  let strayLeft = STRAY_BYTES_MAX;
  for (let segment = 0; segment < SEGMENTS_MAX; segment += 1) {
    const found = await nextMarker(window, offset, strayLeft);
    if (found === undefined) return header;
    strayLeft -= found.offset - 2 - offset;
    offset = found.offset;
    if (standsAlone(found.marker)) continue;
    // Pixel data or the end before a frame header: no decoder finds a size either.
    if (found.marker === SOS || found.marker === EOI) return header;
    if (isFrameHeader(found.marker)) {
      const frame = await window.at(offset, 7);
      if (frame === undefined) return header;
      return { ...header, height: frame.readUInt16BE(3), width: frame.readUInt16BE(5) };
    }
    const lengthBytes = (await window.at(offset, 2))?.readUInt16BE(0);
    if (lengthBytes === undefined || lengthBytes < 2) return header;
    offset += lengthBytes;
  }
  return header;
}

/* PNG (ISO/IEC 15948) and its animations (APNG: an acTL chunk before the first IDAT). */

/** Chunks read before IDAT; libpng itself stops at 1000 it has to keep. */
const CHUNKS_MAX = 1024;
const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
const IHDR_BYTES = 13;
/** PNG's own bound on a dimension and a chunk's length. */
const UINT31_MAX = 0x7fff_ffff;

function isPng(start: Buffer): boolean {
  return start.length >= SIGNATURE.length && start.subarray(0, 8).equals(SIGNATURE);
}

function dimension(value: number): number | undefined {
  return value > UINT31_MAX ? undefined : value;
}

/** One frame is a still picture, whatever chunk announces it. */
async function isAnimated(window: ByteWindow, firstChunk: number): Promise<boolean> {
  let offset = firstChunk;
  for (let chunk = 0; chunk < CHUNKS_MAX; chunk += 1) {
    const head = await window.at(offset, 8);
    if (head === undefined) return false;
    const dataBytes = head.readUInt32BE(0);
    const type = head.toString('latin1', 4, 8);
    if (type === 'IDAT' || type === 'IEND' || dataBytes > UINT31_MAX) return false;
    if (type === 'acTL') {
      const frames = (await window.at(offset + 8, 4))?.readUInt32BE(0);
      return frames !== 1;
    }
    offset += 12 + dataBytes;
  }
  return false;
}

async function readPng(window: ByteWindow): Promise<ImageHeader> {
  const ihdr = await window.at(8, 16);
  const isIhdr = ihdr?.readUInt32BE(0) === IHDR_BYTES && ihdr.toString('latin1', 4, 8) === 'IHDR';
  if (ihdr === undefined || !isIhdr) {
    return { format: 'png', width: undefined, height: undefined, animated: false };
  }
  const width = dimension(ihdr.readUInt32BE(8));
  const height = dimension(ihdr.readUInt32BE(12));
  const animated = await isAnimated(window, SIGNATURE.length + 12 + IHDR_BYTES);
  return { format: 'png', width, height, animated };
}

/* WebP (RFC 9649): a RIFF file whose first chunk is VP8, VP8L or VP8X. */

const VP8X_ANIMATION = 0x02;
const VP8L_SIGNATURE = 0x2f;
const VP8_START_CODE = 0x9d012a;
const CHUNK_DATA = 20;
const CHUNK_HEAD_BYTES = 8;
/** Chunks of an animation that are read for its frames: ICCP, ANIM and unknown ones. */
const WEBP_CHUNKS_MAX = 64;
/** Head of a frame before its data: place, size, duration and flags. */
const FRAME_HEAD_BYTES = 16;

function isWebp(start: Buffer): boolean {
  return (
    start.length >= 12 &&
    start.toString('latin1', 0, 4) === 'RIFF' &&
    start.toString('latin1', 8, 12) === 'WEBP'
  );
}

interface Size {
  readonly width: number;
  readonly height: number;
}

/** A lossy key frame: 3 bytes of tag, 3 of start code, then 14 bits a side. */
function lossySize(data: Buffer): Size | undefined {
  const isKeyFrame = (data.readUInt8(0) & 1) === 0;
  if (!isKeyFrame || data.readUIntBE(3, 3) !== VP8_START_CODE) return undefined;
  return { width: data.readUInt16LE(6) & 0x3fff, height: data.readUInt16LE(8) & 0x3fff };
}

/** A lossless frame: a signature byte, then 14 bits a side, each less one. */
function losslessSize(data: Buffer): Size | undefined {
  if (data[0] !== VP8L_SIGNATURE) return undefined;
  const bits = data.readUInt32LE(1);
  return { width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 };
}

/**
 * False where it has one frame, and that is the whole canvas: then there is one picture to see.
 * What cannot be read is taken for an animation, as it is announced.
 */
async function isAnimation(window: ByteWindow, canvas: Size): Promise<boolean> {
  let frames = 0;
  let offset = CHUNK_DATA - CHUNK_HEAD_BYTES;
  for (let chunk = 0; chunk < WEBP_CHUNKS_MAX; chunk += 1) {
    const head = await window.at(offset, CHUNK_HEAD_BYTES);
    if (head === undefined) break;
    const [type, bytes] = [head.toString('latin1', 0, 4), head.readUInt32LE(4)];
    if (type === 'ANMF') {
      frames += 1;
      const frame = await window.at(offset + CHUNK_HEAD_BYTES, FRAME_HEAD_BYTES);
      if (frames > 1 || frame === undefined || !isWhole(frame, canvas)) return true;
    }
    // Chunks are padded to an even length.
    offset += CHUNK_HEAD_BYTES + bytes + (bytes & 1);
    if (offset >= window.sizeBytes) return frames !== 1;
  }
  return true;
}

function isWhole(frame: Buffer, { width, height }: Size): boolean {
  const isAtCorner = frame.readUIntLE(0, 3) === 0 && frame.readUIntLE(3, 3) === 0;
  return (
    isAtCorner && frame.readUIntLE(6, 3) === width - 1 && frame.readUIntLE(9, 3) === height - 1
  );
}

async function readWebp(window: ByteWindow): Promise<ImageHeader> {
  const start = await window.at(12, CHUNK_DATA - 12 + 10);
  const data = start?.subarray(8);
  const header = { format: 'webp', width: undefined, height: undefined, animated: false } as const;
  if (start === undefined || data === undefined) return header;
  switch (start.toString('latin1', 0, 4)) {
    case 'VP8 ':
      return { ...header, ...lossySize(data) };
    case 'VP8L':
      return { ...header, ...losslessSize(data) };
    case 'VP8X': {
      const canvas = { width: data.readUIntLE(4, 3) + 1, height: data.readUIntLE(7, 3) + 1 };
      const isAnnounced = (data.readUInt8(0) & VP8X_ANIMATION) !== 0;
      return { ...header, ...canvas, animated: isAnnounced && (await isAnimation(window, canvas)) };
    }
    default:
      return header;
  }
}
