/** Markers and segments of JPEG (ITU-T T.81, annex B). */

export const RST_FIRST = 0xd0;
export const SOI = 0xd8;
export const EOI = 0xd9;
export const SOS = 0xda;
const TEM = 0x01;
const FF = 0xff;

/** SOF0 to SOF15 without DHT, JPG and DAC, and the frame of JPEG-LS. */
export function isFrameHeader(marker: number): boolean {
  if (marker === JPEG_LS) return true;
  return marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
}

/** SOF0 to 2, 9 and 10: baseline, extended and progressive, Huffman or arithmetic. */
const READ_PROCESSES: readonly number[] = [0xc0, 0xc1, 0xc2, 0xc9, 0xca];
const JPEG_LS = 0xf7;
const READ_BITS = 8;
const BITS_MAX = 16;

/** @param bits of a sample; impossible numbers mean damage */
export function nameUnreadFrame(marker: number, bits: number): string | undefined {
  if (marker === JPEG_LS) return 'a JPEG-LS picture';
  if (!READ_PROCESSES.includes(marker)) return 'a lossless or hierarchical JPEG';
  return bits > READ_BITS && bits <= BITS_MAX ? `a JPEG with ${bits} bits a sample` : undefined;
}

/** Markers without length and content. */
export function standsAlone(marker: number): boolean {
  return marker === TEM || (marker >= RST_FIRST && marker <= SOI);
}

/**
 * Finds the byte after FF that names the marker. Skips stray and fill bytes.
 * @param afterFf the byte before `from` is FF
 * @param counts accepts a marker
 * @returns `at` -1: not found; `afterFf`: the last byte is FF
 */
export function findMarker(
  bytes: Uint8Array,
  from: number,
  afterFf = false,
  counts: (marker: number) => boolean = () => true,
): { readonly at: number; readonly afterFf: boolean } {
  let at = from;
  let isAfterFf = afterFf;
  for (;;) {
    if (!isAfterFf) {
      at = bytes.indexOf(FF, at) + 1;
      if (at === 0) return { at: -1, afterFf: false };
    }
    const marker = bytes[at];
    if (marker === undefined) return { at: -1, afterFf: true };
    isAfterFf = marker === FF;
    if (!isAfterFf && marker !== 0 && counts(marker)) return { at, afterFf: false };
    at += 1;
  }
}

/** @param offset of the segment's length @returns undefined: invalid */
export function endOfSegment(offset: number, length: number): number | undefined {
  return length < 2 ? undefined : offset + length;
}
