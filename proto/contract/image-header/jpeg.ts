/** The header of JPEG (ITU-T T.81): its segments up to the frame header. */

import type { ByteWindow, ImageHeader } from './byte-window.ts';

/** Segments before the frame header; 50 MB of full APP segments are 800. */
const SEGMENTS_MAX = 4096;
/** Fill bytes and stray bytes between all the segments, which libjpeg skips too. */
const STRAY_BYTES_MAX = 65_536;

const SOI = 0xd8;
const EOI = 0xd9;
const SOS = 0xda;
const TEM = 0x01;

export function isJpeg(start: Buffer): boolean {
  return start.length >= 3 && start[0] === 0xff && start[1] === SOI && start[2] === 0xff;
}

/** SOF0 to SOF15 (baseline, progressive, lossless, arithmetic ...) without DHT, JPG and DAC. */
export function isFrameHeader(marker: number): boolean {
  return marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
}

function standsAlone(marker: number): boolean {
  return marker === TEM || (marker >= 0xd0 && marker <= SOI);
}

/**
 * The next marker's code and the offset behind it. Skips stray and fill bytes, at most `strayMax`;
 * the marker's own two bytes do not count.
 */
async function nextMarker(
  window: ByteWindow,
  from: number,
  strayMax: number,
): Promise<{ marker: number; offset: number } | undefined> {
  let afterFf = false;
  for (let offset = from; offset < from + strayMax + 2; offset += 1) {
    const byte = (await window.at(offset, 1))?.[0];
    if (byte === undefined) return undefined;
    if (byte === 0xff) afterFf = true;
    else if (afterFf && byte !== 0) return { marker: byte, offset: offset + 1 };
    else afterFf = false;
  }
  return undefined;
}

export async function readJpeg(window: ByteWindow): Promise<ImageHeader> {
  const header = { format: 'jpeg', width: undefined, height: undefined, animated: false } as const;
  let offset = 2;
  let strayLeft = STRAY_BYTES_MAX;
  for (let segment = 0; segment < SEGMENTS_MAX; segment += 1) {
    const found = await nextMarker(window, offset, strayLeft);
    if (found === undefined) return header;
    strayLeft -= found.offset - 2 - offset;
    offset = found.offset;
    if (standsAlone(found.marker)) continue;
    // Pixel data or the end before a frame header: no decoder finds a size either.
    if (found.marker === SOS || found.marker === EOI) return header;
    if (isFrameHeader(found.marker)) {
      const frame = await window.at(offset, 7);
      if (frame === undefined) return header;
      return { ...header, height: frame.readUInt16BE(3), width: frame.readUInt16BE(5) };
    }
    const lengthBytes = (await window.at(offset, 2))?.readUInt16BE(0);
    if (lengthBytes === undefined || lengthBytes < 2) return header;
    offset += lengthBytes;
  }
  return header;
}
