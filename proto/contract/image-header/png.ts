/** PNG (ISO/IEC 15948). An acTL chunk before the first IDAT announces an animation (APNG). */

import type { ByteWindow, ImageHeader, UnreadVariant } from './byte-window.ts';

/** Before IDAT; libpng keeps at most 1000. */
const CHUNKS_MAX = 1024;
const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
const IHDR_BYTES = 13;
/** PNG's bound of a side and of a chunk's length. */
const UINT31_MAX = 0x7fff_ffff;

export function isPng(start: Buffer): boolean {
  return start.length >= SIGNATURE.length && start.subarray(0, 8).equals(SIGNATURE);
}

function dimension(value: number): number | undefined {
  return value > UINT31_MAX ? undefined : value;
}

/** An announced animation of one frame is a still picture. */
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

export async function readPng(window: ByteWindow): Promise<ImageHeader | UnreadVariant> {
  const ihdr = await window.at(8, 16);
  if (ihdr?.toString('latin1', 4, 8) === 'CgBI') return "a PNG in Apple's own form for iOS (CgBI)";
  const isIhdr = ihdr?.readUInt32BE(0) === IHDR_BYTES && ihdr.toString('latin1', 4, 8) === 'IHDR';
  if (ihdr === undefined || !isIhdr) {
    return { format: 'png', width: undefined, height: undefined, animated: false };
  }
  const width = dimension(ihdr.readUInt32BE(8));
  const height = dimension(ihdr.readUInt32BE(12));
  const animated = await isAnimated(window, SIGNATURE.length + 12 + IHDR_BYTES);
  return { format: 'png', width, height, animated };
}
