/**
 * What the first bytes of a file say of it, without decoding a pixel: which of the five input
 * formats it is, its stored width and height, and whether it is animated. Hostile input is
 * expected: every read is bounded and every loop ends.
 */
import { isIsoFile, readAvif } from './image-header/avif.ts';
import { type ByteReader, ByteWindow, type ImageHeader } from './image-header/byte-window.ts';
import {
  isJpeg,
  isPng,
  isWebp,
  readJpeg,
  readPng,
  readWebp,
} from './image-header/jpeg-png-webp.ts';
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
