/** JPEG XL under a header written anew (ISO/IEC 18181-1, annexes D and E). */
import { BitReader } from '@matting/proto/contract/image-header/jxl.ts';
import { BitWriter } from '@matting/proto/contract/test/image-header-samples.ts';
import { at as elementAt } from '@matting/test-support/at.ts';
import type { Samples } from '../../../picture/codecs/colour/samples.ts';
import { loadVips } from '../../pictures.ts';

export interface JxlColours {
  /** The numbers are 1 sRGB, 9 BT.2100, 11 P3; they mean nothing in grey. */
  readonly primaries: number;
  /** 8 linear, 13 sRGB, 16 PQ. */
  readonly transfer: number;
}

export interface JxlFields {
  readonly width: number;
  readonly height: number;
  readonly channels: 1 | 2 | 3 | 4;
  /** Floating-point samples are shares of 1. */
  readonly samples: Samples | Float32Array;
  readonly colours: JxlColours;
  readonly premultiplied: boolean;
}

/**
 * Writes numbers of 0 to 17 in the format's way of enumerations, all of which are written with it.
 */
class HeaderWriter extends BitWriter {
  putEnum(value: number): this {
    if (value < 2) return this.put(value, 2);
    return this.put(2, 2).put(value - 2, 4);
  }
}

/** Lossless. The frame of one with the same size, channels and depth is the same for all colours. */
export async function writeJxlFields(fields: JxlFields): Promise<Buffer> {
  const { Image, BandFormat } = await loadVips();
  const { width, height, channels, samples, premultiplied } = fields;
  const isDeep = samples instanceof Uint16Array;
  const isGrey = channels < 3;
  const hasAlpha = channels % 2 === 0;
  const isFloat = samples instanceof Float32Array;
  const whole = isDeep ? BandFormat.ushort : BandFormat.uchar;
  const format = isFloat ? BandFormat.float : whole;
  const grey = isDeep ? 'grey16' : 'b-w';
  const interpretation = isFloat ? 'scrgb' : isGrey ? grey : isDeep ? 'rgb16' : 'srgb';
  const image = Image.newFromMemory(samples, width, height, channels, format).copy({
    interpretation,
  });
  const options = { lossless: true, effort: 1, keep: 'none' } as const;
  const file = codestreamOf(Buffer.from(image.jxlsaveBuffer(options)));
  const header = new HeaderWriter().put(0x0aff, 16);
  header
    .put(0, 1)
    .put(0, 2)
    .put(height - 1, 9)
    .put(0, 3);
  header.put(0, 2).put(width - 1, 9);
  const putDepth = () => {
    // 32 bits, eight of them for the exponent.
    if (isFloat) return header.put(1, 1).put(0, 2).put(7, 4);
    return isDeep ? header.put(0, 1).put(3, 2).put(15, 6) : header.put(0, 3);
  };
  // ImageMetadata: not the default, no extra fields.
  header.put(0, 1).put(0, 1);
  putDepth();
  header.put(isDeep || isFloat ? 0 : 1, 1).put(hasAlpha ? 1 : 0, 2);
  if (hasAlpha) {
    // Not the default; alpha, of no other size, without a name.
    header.put(0, 1).putEnum(0);
    putDepth();
    header
      .put(0, 2)
      .put(0, 2)
      .put(premultiplied ? 1 : 0, 1);
  }
  // Not XYB. Colours: not the default, no profile.
  header.put(0, 1).put(0, 1).put(0, 1);
  header.putEnum(isGrey ? 1 : 0).putEnum(1);
  if (!isGrey) header.putEnum(fields.colours.primaries);
  header.put(0, 1).putEnum(fields.colours.transfer).putEnum(0);
  // No extensions, the default transforms.
  header.put(0, 2).put(1, 1);
  return Buffer.concat([header.bytes(), file.subarray(frameStart(file))]);
}

/**
 * Takes the codestream out of the boxes, if it is in some: libjxl puts 16 bits into a container.
 */
export function codestreamOf(file: Buffer): Buffer {
  if (file.readUInt16LE(0) === 0x0aff) return file;
  const parts: Buffer[] = [];
  for (let at = 0; at < file.length; at += file.readUInt32BE(at) || file.length) {
    const type = file.toString('latin1', at + 4, at + 8);
    const box = file.subarray(at + 8, at + (file.readUInt32BE(at) || file.length));
    if (type === 'jxlc') parts.push(box);
    if (type === 'jxlp') parts.push(box.subarray(4));
  }
  return Buffer.concat(parts);
}

/** Finds the frame behind the header that libjxl writes for samples without a profile. */
function frameStart(file: Buffer): number {
  const bits = new BitReader(file);
  let read = 0;
  const take = (count: number) => {
    read += count;
    return bits.bits(count);
  };
  const takeOf = (counts: readonly number[]) => take(elementAt(counts, take(2)));
  const takeEnum = () => takeOf([0, 0, 4, 6]);
  const takeDepth = () => {
    const isFloat = take(1) === 1;
    takeOf([0, 0, 0, 6]);
    if (isFloat) take(4);
  };
  take(16);
  const isSmall = take(1) === 1;
  const takeSide = () => (isSmall ? take(5) : takeOf([9, 13, 18, 30]));
  takeSide();
  if (take(3) === 0) takeSide();
  if (take(1) === 0) {
    const hasMore = take(1) === 1;
    if (hasMore) throw new Error('libjxl wrote extra fields');
    takeDepth();
    take(1);
    const channels = [0, 1][take(2)];
    if (channels === undefined) throw new Error('libjxl wrote more channels');
    if (channels === 1 && take(1) === 0) {
      takeEnum();
      takeDepth();
      take(2 + 2 + 1);
    }
    take(1);
    if (take(1) === 0) takeColours(take, takeEnum);
    take(2);
  }
  if (take(1) === 0) throw new Error('libjxl wrote transforms');
  return Math.ceil(read / 8);
}

function takeColours(take: (count: number) => number, takeEnum: () => number): void {
  if (take(1) === 1) throw new Error('libjxl wrote a profile');
  // The enumeration's own bits tell 0 (RGB) and 1 (grey) apart.
  const isGrey = take(2) === 1;
  takeEnum();
  if (!isGrey) takeEnum();
  if (take(1) === 1) take(24);
  else takeEnum();
  takeEnum();
}
