/** WebP (RFC 9649): a RIFF file whose first chunk is VP8, VP8L or VP8X. */
import type { ImageHeader } from '../image-header.ts';
import type { ByteWindow } from './byte-window.ts';

const VP8X_ANIMATION = 0x02;
const VP8L_SIGNATURE = 0x2f;
const VP8_START_CODE = 0x9d012a;
const CHUNK_DATA = 20;

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
  const isKeyFrame = (data[0] & 1) === 0;
  if (!isKeyFrame || data.readUIntBE(3, 3) !== VP8_START_CODE) return undefined;
  return { width: data.readUInt16LE(6) & 0x3fff, height: data.readUInt16LE(8) & 0x3fff };
}

/** A lossless frame: a signature byte, then 14 bits a side, each less one. */
function losslessSize(data: Buffer): Size | undefined {
  if (data[0] !== VP8L_SIGNATURE) return undefined;
  const bits = data.readUInt32LE(1);
  return { width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 };
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
    case 'VP8X':
      return {
        ...header,
        width: data.readUIntLE(4, 3) + 1,
        height: data.readUIntLE(7, 3) + 1,
        animated: (data[0] & VP8X_ANIMATION) !== 0,
      };
    default:
      return header;
  }
}
