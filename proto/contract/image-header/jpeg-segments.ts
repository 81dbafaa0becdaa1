/** How JPEG frames its segments (ITU-T T.81, annex B): markers, and where a segment ends. */

export const RST_FIRST = 0xd0;
export const SOI = 0xd8;
export const EOI = 0xd9;
export const SOS = 0xda;
const TEM = 0x01;
const FF = 0xff;

/** SOF0 to SOF15 (baseline, progressive, lossless, arithmetic ...) without DHT, JPG and DAC. */
export function isFrameHeader(marker: number): boolean {
  return marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
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
