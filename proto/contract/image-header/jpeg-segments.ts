/** How JPEG frames its segments (ITU-T T.81, annex B): markers, and where a segment ends. */

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

/** Baseline, extended and progressive, each by Huffman or by arithmetic codes: SOF0 to 2, 9, 10. */
const READ_PROCESSES: readonly number[] = [0xc0, 0xc1, 0xc2, 0xc9, 0xca];
const JPEG_LS = 0xf7;
const READ_BITS = 8;
const BITS_MAX = 16;

/** @param bits of a sample; other numbers than a JPEG can have are damage */
export function nameUnreadFrame(marker: number, bits: number): string | undefined {
  if (marker === JPEG_LS) return 'a JPEG-LS picture';
  if (!READ_PROCESSES.includes(marker)) return 'a lossless or hierarchical JPEG';
  return bits > READ_BITS && bits <= BITS_MAX ? `a JPEG with ${bits} bits a sample` : undefined;
}

/** Such a marker has neither length nor content. */
export function standsAlone(marker: number): boolean {
  return marker === TEM || (marker >= RST_FIRST && marker <= SOI);
}

/**
 * Finds the byte behind FF that says which marker it is, and skips stray and fill bytes.
 * @param afterFf whether the byte before `from` is FF
 * @param counts whether a marker is one of those to stop at
 * @returns `at` -1 where there is none, and then whether the last byte is FF
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

/** @param offset of the segment's length; undefined: no segment is so short */
export function endOfSegment(offset: number, length: number): number | undefined {
  return length < 2 ? undefined : offset + length;
}
