/**
 * Takes out of a JPEG XL container what is not its picture (ISO/IEC 18181-2). Decoders fail at what
 * is wrong with Exif, XMP or boxes that they know, and pillow-jxl-plugin leaves out the first four
 * bytes of each Exif. Nothing of it is used: the codestream has the orientation and the colours.
 */
import { isJxlContainer } from '#contract/image-header/jxl.ts';

/** The container's own boxes, and those with the codestream or parts of it. */
const PICTURE_TYPES = new Set(
  ['JXL ', 'ftyp', 'jxll', 'jxlc', 'jxlp'].map(type => Buffer.from(type).readUInt32BE()),
);
/** Boxes looked at. What follows is left as it is: libjxl writes some tens at most. */
const BOXES_MAX = 8192;
const HEAD_BYTES = 8;
const LARGE_HEAD_BYTES = 16;

/** @returns the given bytes, or a copy of some of them. */
export function withoutMetadata(file: Buffer): Buffer {
  if (!isJxlContainer(file)) return file;
  const kept: Buffer[] = [];
  let at = 0;
  for (let boxes = 0; boxes < BOXES_MAX; boxes += 1) {
    const end = endOfBox(file, at);
    // Behind the last box that can be read there is no codestream.
    if (end === undefined) return joined(kept, file);
    if (PICTURE_TYPES.has(file.readUInt32BE(at + 4))) kept.push(file.subarray(at, end));
    at = end;
  }
  return joined([...kept, file.subarray(at)], file);
}

/** Where the box at `at` ends, at most the file's end; undefined: there is none. */
function endOfBox(file: Buffer, at: number): number | undefined {
  if (at + HEAD_BYTES > file.length) return undefined;
  const size = file.readUInt32BE(at);
  if (size === 0) return file.length;
  if (size !== 1) return size < HEAD_BYTES ? undefined : Math.min(file.length, at + size);
  if (at + LARGE_HEAD_BYTES > file.length) return undefined;
  const large = Number(file.readBigUInt64BE(at + HEAD_BYTES));
  return large < LARGE_HEAD_BYTES ? undefined : Math.min(file.length, at + large);
}

function joined(parts: readonly Buffer[], file: Buffer): Buffer {
  const bytes = parts.reduce((sum, { length }) => sum + length, 0);
  return bytes === file.length ? file : Buffer.concat(parts, bytes);
}
