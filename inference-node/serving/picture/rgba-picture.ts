import { endianness } from 'node:os';
import type { Size } from '@matting/proto/contract/finishing.ts';

/** Oriented, 8-bit sRGB with straight alpha. Pixels exist once and are changed in place. */
export interface RgbaPicture extends Size {
  /** An element a pixel: red is the lowest byte, alpha the highest. */
  readonly rgba: Uint32Array;
  /** False: the file has no alpha, so every pixel is opaque. */
  readonly translucent: boolean;
}

if (endianness() !== 'LE') throw new Error('this machine is not little-endian');

export function viewAsPixels(bytes: Uint8Array): Uint32Array {
  const aligned = bytes.byteOffset % 4 === 0 ? bytes : Uint8Array.from(bytes);
  return new Uint32Array(aligned.buffer, aligned.byteOffset, aligned.byteLength / 4);
}

/** Frees pixels at once: V8 would collect several times for a picture. Shared memory stays. */
export function freePixels({ buffer, byteLength }: Uint32Array | Uint8Array): void {
  const isOwn = buffer instanceof ArrayBuffer && buffer.byteLength === byteLength;
  if (isOwn && !buffer.detached) buffer.transfer(0);
}

export function viewAsBytes(rgba: Uint32Array): Buffer {
  return Buffer.from(rgba.buffer, rgba.byteOffset, rgba.byteLength);
}

export interface RawPixels extends Size {
  readonly data: Buffer;
  /** 4: sRGB with straight alpha. 1: a grey plane. */
  readonly channels: 1 | 4;
}

/**
 * How a file was repaired: bytes of a JPEG outside of blocks and markers were removed, or the pad
 * byte of a WebP's last chunk was added.
 */
export type Mended = 'stray_bytes' | 'pad_byte';

interface ReadPixels extends Pick<RgbaPicture, 'rgba' | 'translucent'> {
  readonly mended?: Mended | undefined;
}

/** The size is oriented. */
export interface OpenedPicture extends Size {
  /** Before crop and rotation. Absent: the same size. */
  readonly stored?: Size;
  /** @throws ContractError PROCESSING_FAILED, NODE_INCAPABLE */
  readPixels(): Promise<ReadPixels>;
}
