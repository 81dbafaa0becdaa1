const RIFF_HEAD_BYTES = 12;
const CHUNK_HEAD_BYTES = 8;
const VP8X_BYTES = 10;
const FLAG_PROFILE = 0x20;
const FLAG_ALPHA = 0x10;
/**
 * Alpha of 255 at any size: lossless (1), then VP8L (RFC 9649, 3) without transforms or cache, with
 * one group of codes of one symbol each, which take no bits.
 */
const OPAQUE_ALPHA = Buffer.from([1, 0xe8, 0x7f, 0x44, 0x04]);

/** Only animations have ten or more chunks. */
const CHUNKS_MAX = 1024;

/** Returns the file with its last chunk's pad byte, if only that is missing. */
export function withPadByte(file: Buffer): Buffer | undefined {
  let at = RIFF_HEAD_BYTES;
  for (let chunk = 0; chunk < CHUNKS_MAX && at + CHUNK_HEAD_BYTES <= file.length; chunk++) {
    const bytes = file.readUInt32LE(at + 4);
    at += CHUNK_HEAD_BYTES + bytes + (bytes & 1);
  }
  const claimed = CHUNK_HEAD_BYTES + file.readUInt32LE(4);
  if (at !== file.length + 1 || (claimed !== at && claimed !== file.length)) return undefined;
  const padded = Buffer.concat([file, Buffer.alloc(1)]);
  padded.writeUInt32LE(at - CHUNK_HEAD_BYTES, 4);
  return padded;
}

function webpChunk(type: string, body: Buffer): Buffer {
  const head = Buffer.alloc(CHUNK_HEAD_BYTES);
  head.write(type, 'latin1');
  head.writeUInt32LE(body.length, 4);
  return Buffer.concat([head, body, Buffer.alloc(body.length % 2)]);
}

/** Adds an sRGB profile, and opaque alpha, which libwebp omits. */
export function tagWebp(webp: Buffer, width: number, height: number): Buffer {
  const isExtended = webp.toString('latin1', RIFF_HEAD_BYTES, RIFF_HEAD_BYTES + 4) === 'VP8X';
  const first = RIFF_HEAD_BYTES + CHUNK_HEAD_BYTES;
  const canvas = Buffer.alloc(VP8X_BYTES);
  const alpha: Buffer[] = [];
  if (isExtended) {
    webp.copy(canvas, 0, first, first + VP8X_BYTES);
  } else {
    canvas[0] = FLAG_ALPHA;
    canvas.writeUIntLE(width - 1, 4, 3);
    canvas.writeUIntLE(height - 1, 7, 3);
    alpha.push(webpChunk('ALPH', OPAQUE_ALPHA));
  }
  canvas.writeUInt8(canvas.readUInt8(0) | FLAG_PROFILE, 0);
  const rest = webp.subarray(isExtended ? first + VP8X_BYTES : RIFF_HEAD_BYTES);
  const chunks = [webpChunk('VP8X', canvas), webpChunk('ICCP', SRGB_PROFILE), ...alpha, rest];
  const head = Buffer.from('RIFF\0\0\0\0WEBP', 'latin1');
  head.writeUInt32LE(4 + chunks.reduce((sum, chunk) => sum + chunk.length, 0), 4);
  return Buffer.concat([head, ...chunks]);
}

/** 480 bytes, CC0 (ICC.1:2022, version 4.4): IEC 61966-2-1, adapted to D50 with Bradford. */
const SRGB_PROFILE = Buffer.from(
  'AAAB4AAAAAAEQAAAbW50clJHQiBYWVogB+gAAQABAAAAAAAAYWNzcAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA' +
    'APbWAAEAAAAA0y0AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAKZGVzYwAA' +
    'APwAAAAkY3BydAAAASAAAAAid3RwdAAAAUQAAAAUY2hhZAAAAVgAAAAsclhZWgAAAYQAAAAUZ1hZWgAAAZgAAAAUYlhZ' +
    'WgAAAawAAAAUclRSQwAAAcAAAAAgZ1RSQwAAAcAAAAAgYlRSQwAAAcAAAAAgbWx1YwAAAAAAAAABAAAADGVuVVMAAAAI' +
    'AAAAHABzAFIARwBCbWx1YwAAAAAAAAABAAAADGVuVVMAAAAGAAAAHABDAEMAMAAAWFlaIAAAAAAAAPbWAAEAAAAA0y1z' +
    'ZjMyAAAAAAABDEIAAAXe///zJQAAB5MAAP2Q///7of///aIAAAPcAADAblhZWiAAAAAAAABvoAAAOPUAAAOQWFlaIAAA' +
    'AAAAAGKXAAC3hwAAGNlYWVogAAAAAAAAJJ8AAA+EAAC2xHBhcmEAAAAAAAMAAAACZmYAAPKnAAANWQAAE9AAAApb',
  'base64',
);
