/**
 * What the first bytes of a file say of it, without decoding a pixel: which of the five input
 * formats it is, its stored width and height, and whether it is animated. Hostile input is
 * expected: every read is bounded and every loop ends.
 */
import type { InputFormat } from './formats.ts';
import { isIsoFile, readAvif } from './image-header/avif.ts';
import { ByteWindow } from './image-header/byte-window.ts';
import { isJpeg, readJpeg } from './image-header/jpeg.ts';
import {
  isJxlCodestream,
  isJxlContainer,
  readJxlCodestream,
  readJxlContainer,
} from './image-header/jxl.ts';
import { isPng, readPng } from './image-header/png.ts';
import { isWebp, readWebp } from './image-header/webp.ts';

export interface ImageHeader {
  readonly format: InputFormat;
  /** Pixels as stored (before EXIF or irot); undefined where the header does not show them. */
  readonly width: number | undefined;
  readonly height: number | undefined;
  /** More than one frame: refused by the contract. An AVIF grid is not an animation. */
  readonly animated: boolean;
}

/** Reads up to `length` bytes at `offset`; fewer at the end of the file. */
export type ByteReader = (offset: number, length: number) => Promise<Uint8Array> | Uint8Array;

/** Bytes that tell the five formats apart. */
const SIGNATURE_BYTES = 12;

type FormatReader = (window: ByteWindow) => Promise<ImageHeader | undefined>;

function readerFor(start: Buffer): FormatReader | undefined {
  if (isJpeg(start)) return readJpeg;
  if (isPng(start)) return readPng;
  if (isWebp(start)) return readWebp;
  if (isJxlContainer(start)) return readJxlContainer;
  if (isJxlCodestream(start)) return readJxlCodestream;
  if (isIsoFile(start)) return readAvif;
  return undefined;
}

/** Undefined: none of the five formats. Never rejects on bytes, only where `read` does. */
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
