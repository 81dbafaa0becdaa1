/** WebP (RFC 9649): a RIFF file that begins with VP8, VP8L or VP8X. */

import type { ByteWindow, ImageHeader } from './byte-window.ts';

const VP8X_ANIMATION = 0x02;
const VP8L_SIGNATURE = 0x2f;
const VP8_START_CODE = 0x9d012a;
const CHUNK_DATA = 20;
const CHUNK_HEAD_BYTES = 8;
/** Read to count an animation's frames. */
const WEBP_CHUNKS_MAX = 64;
/** Position, size, duration and flags before a frame's data. */
const FRAME_HEAD_BYTES = 16;

export function isWebp(start: Buffer): boolean {
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

/** A lossless frame: a signature byte, then 14 bits a side, less one. */
function losslessSize(data: Buffer): Size | undefined {
  if (data[0] !== VP8L_SIGNATURE) return undefined;
  const bits = data.readUInt32LE(1);
  return { width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 };
}

/** False: a single frame that fills the canvas. An unreadable animation counts as one. */
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

export async function readWebp(window: ByteWindow): Promise<ImageHeader> {
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
