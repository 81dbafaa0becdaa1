/**
 * Whether a JPEG XL's colours are multiplied by its alpha ("associated"): a bit of the alpha channel
 * in ImageMetadata (ISO/IEC 18181-1, annex D.3). Decoders hand such colours out as they are.
 */
import { BitReader } from './bit-reader.ts';
import { ByteWindow, WINDOW_BYTES } from './byte-window.ts';
import { isJxlCodestream, readCodestreamHead, readSize, skipPreviewSize } from './jxl.ts';
import {
  CHANNEL_COUNT_RANGES,
  ranged,
  readAnimation,
  readChannel,
  skipBitDepth,
} from './jxl-metadata.ts';

/** Orientation, intrinsic size, preview and animation. */
function skipExtraFields(bits: BitReader): void {
  bits.bits(3);
  if (bits.bool()) readSize(bits);
  if (bits.bool()) skipPreviewSize(bits);
  if (bits.bool()) readAnimation(bits);
}

/** False too where the header cannot be read: a decoder will say what is wrong with the file. */
export async function hasAssociatedAlpha(file: Buffer): Promise<boolean> {
  const window = new ByteWindow(
    (offset, length) => file.subarray(offset, offset + length),
    file.length,
  );
  const head = await readCodestreamHead(window, WINDOW_BYTES);
  if (!isJxlCodestream(head)) return false;
  const bits = new BitReader(head.subarray(2));
  readSize(bits);
  const allDefault = bits.bool();
  if (allDefault) return false;
  if (bits.bool()) skipExtraFields(bits);
  skipBitDepth(bits);
  // Whether 16 bits are enough to decode with.
  bits.bool();
  const channels = ranged(bits, CHANNEL_COUNT_RANGES);
  for (let channel = 0; channel < channels && !bits.overrun; channel += 1) {
    const { isAlpha, isAssociated } = readChannel(bits);
    // The first is the picture's.
    if (isAlpha) return isAssociated && !bits.overrun;
  }
  return false;
}
