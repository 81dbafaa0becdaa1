/**
 * Reads format, stored size and animation from the first bytes of a file. The input may be hostile,
 * so every read and loop is bounded.
 */
import {
  type ByteReader,
  ByteWindow,
  type ImageHeader,
  type UnreadVariant,
} from './image-header/byte-window.ts';
import {
  isReadAsText,
  KIND_BYTES,
  kindOfFile,
  SEND_BYTES,
  spoiltImage,
} from './image-header/file-kinds.ts';
import { isIsoFile, nameIsoFile, readHeifHeader } from './image-header/heif.ts';
import { isJpeg, readJpeg } from './image-header/jpeg.ts';
import { isJxlCodestream, isJxlContainer, readJxl } from './image-header/jxl.ts';
import { isPng, readPng } from './image-header/png.ts';
import { isWebp, readWebp } from './image-header/webp.ts';

export type { ByteReader, ImageHeader };

const SIGNATURE_BYTES = 12;

type FormatReader = (window: ByteWindow) => Promise<ImageHeader | UnreadVariant | undefined>;

function readerFor(start: Buffer): FormatReader | undefined {
  if (isJpeg(start)) return readJpeg;
  if (isPng(start)) return readPng;
  if (isWebp(start)) return readWebp;
  if (isJxlContainer(start) || isJxlCodestream(start)) return readJxl;
  if (isIsoFile(start)) return readHeifHeader;
  return undefined;
}

/** undefined: another format or an unsupported variant. Rejects only if `read` does. */
export async function readImageHeader(
  read: ByteReader,
  sizeBytes: number,
): Promise<ImageHeader | undefined> {
  const header = await readVariant(new ByteWindow(read, sizeBytes));
  if (typeof header === 'string') return undefined;
  // One side alone is useless.
  if (header === undefined || (header.width && header.height)) return header;
  return { ...header, width: undefined, height: undefined };
}

async function readVariant(window: ByteWindow) {
  return await readerFor(await window.upTo(0, SIGNATURE_BYTES))?.(window);
}

/** Formats of every service. Some also read HEIC. */
const READ = 'JPEG, PNG, WebP, AVIF or JPEG XL';
const SEND_PLAIN =
  'The service does not read this variant. Send a baseline JPEG or a standard PNG.';

/**
 * The text of a refusal if `readImageHeader` returns undefined: what the file is, and what to send.
 * @param served the Content-Type of a downloaded file, possibly empty
 */
export async function describeUnread(
  read: ByteReader,
  sizeBytes: number,
  served?: string,
): Promise<string> {
  const window = new ByteWindow(read, sizeBytes);
  const start = await window.upTo(0, KIND_BYTES);
  const variant = await readVariant(window);
  const isVariant = typeof variant === 'string';
  const spoilt = isVariant ? undefined : spoiltImage(start);
  const named = isVariant
    ? variant
    : (spoilt?.kind ??
      kindOfFile(start) ??
      (isIsoFile(start) && (await nameIsoFile(read, sizeBytes))));
  const kind = named || 'a file of an unknown kind';
  const as = served ? ` (Content-Type: ${served})` : '';
  const seen = served === undefined ? `This is ${kind}.` : `The address returned ${kind}${as}.`;
  const send = spoilt?.send ?? `Send an image as ${READ}.`;
  return `${seen} ${isVariant ? SEND_PLAIN : send}`;
}

/** @param damaged the text for a file of a known format that cannot be decoded */
export function describeDamaged(file: Buffer, damaged: string): string {
  if (!isReadAsText(file.subarray(0, KIND_BYTES))) return damaged;
  return `${damaged} Its bytes were read as text on the way. ${SEND_BYTES}`;
}
