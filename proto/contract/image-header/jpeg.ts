/** JPEG (ITU-T T.81): the segments up to the frame header. */

import type { ByteWindow, ImageHeader, UnreadVariant } from './byte-window.ts';
import {
  EOI,
  endOfSegment,
  findMarker,
  isFrameHeader,
  nameUnreadFrame,
  SOI,
  SOS,
  standsAlone,
} from './jpeg-segments.ts';

/** Before the frame header; 50 MB of full APP segments are 800. */
const SEGMENTS_MAX = 4096;
/** Total of the fill and stray bytes, which libjpeg skips, too. */
const STRAY_BYTES_MAX = 65_536;

export function isJpeg(start: Buffer): boolean {
  return start.length >= 3 && start[0] === 0xff && start[1] === SOI && start[2] === 0xff;
}

/**
 * Returns the offset after the marker. Skips at most `strayMax` bytes, without the marker's two.
 */
async function nextMarker(
  window: ByteWindow,
  from: number,
  strayMax: number,
): Promise<{ marker: number; offset: number } | undefined> {
  const end = from + strayMax + 2;
  let afterFf = false;
  for (let offset = from; offset < end; ) {
    const bytes = (await window.from(offset))?.subarray(0, end - offset);
    if (bytes === undefined) return undefined;
    const found = findMarker(bytes, 0, afterFf);
    const marker = bytes[found.at];
    if (marker !== undefined) return { marker, offset: offset + found.at + 1 };
    ({ afterFf } = found);
    offset += bytes.length;
  }
  return undefined;
}

export async function readJpeg(window: ByteWindow): Promise<ImageHeader | UnreadVariant> {
  const header = { format: 'jpeg', width: undefined, height: undefined, animated: false } as const;
  let offset = 2;
  let strayLeft = STRAY_BYTES_MAX;
  for (let segment = 0; segment < SEGMENTS_MAX; segment += 1) {
    const found = await nextMarker(window, offset, strayLeft);
    if (found === undefined) return header;
    strayLeft -= found.offset - 2 - offset;
    offset = found.offset;
    if (standsAlone(found.marker)) continue;
    // Without a frame header decoders find no size either.
    if (found.marker === SOS || found.marker === EOI) return header;
    if (isFrameHeader(found.marker)) {
      const frame = await window.at(offset, 7);
      if (frame === undefined) return header;
      const unread = nameUnreadFrame(found.marker, frame.readUInt8(2));
      if (unread !== undefined) return unread;
      return { ...header, height: frame.readUInt16BE(3), width: frame.readUInt16BE(5) };
    }
    const length = (await window.at(offset, 2))?.readUInt16BE(0);
    const end = length === undefined ? undefined : endOfSegment(offset, length);
    if (end === undefined) return header;
    offset = end;
  }
  return header;
}
