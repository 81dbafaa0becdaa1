/**
 * Takes out what is not the picture (ISO/IEC 18181-2): decoders fail at wrong Exif, XMP or boxes,
 * and pillow-jxl-plugin leaves out four bytes of Exif. The codestream has orientation and colours.
 */
import { parseBox } from '@matting/proto/contract/image-header/iso-boxes.ts';
import { isJxlContainer } from '@matting/proto/contract/image-header/jxl.ts';

/** The container's own boxes, and those with the codestream or parts of it. */
const PICTURE_TYPES: ReadonlySet<string> = new Set(['JXL ', 'ftyp', 'jxll', 'jxlc', 'jxlp']);
/** Boxes looked at. What follows is left as it is: libjxl writes some tens at most. */
const BOXES_MAX = 8192;

/** @returns the given bytes, or a copy of some of them. */
export function withoutMetadata(file: Buffer): Buffer {
  if (!isJxlContainer(file)) return file;
  const kept: Buffer[] = [];
  let at = 0;
  for (let boxes = 0; boxes < BOXES_MAX; boxes += 1) {
    const box = parseBox(file.subarray(at, at + 16), at, file.length);
    // Behind the last box that can be read there is no codestream.
    if (box === undefined) return joined(kept, file);
    if (PICTURE_TYPES.has(box.type)) kept.push(file.subarray(at, box.end));
    at = box.end;
  }
  return joined([...kept, file.subarray(at)], file);
}

function joined(parts: readonly Buffer[], file: Buffer): Buffer {
  const bytes = parts.reduce((sum, { length }) => sum + length, 0);
  return bytes === file.length ? file : Buffer.concat(parts, bytes);
}
