/**
 * Reads a PNG's colour chunks. They rank (W3C, 2025, 4.3): cICP, iCCP, sRGB, gAMA with cHRM. libpng
 * reports only the profile.
 */
import type { Cicp } from '@matting/proto/contract/image-header/heif-file.ts';

const SIGNATURE_BYTES = 8;
const CHUNK_FRAME_BYTES = 12;
const CHUNKS_MAX = 1024;
const PER_UNIT = 100_000;

type Xy = readonly [number, number];
/** CIE x and y of white, red, green and blue. */
export type Chromaticities = readonly [...Xy, ...Xy, ...Xy, ...Xy];

interface PngColour {
  readonly cicp: Cicp | undefined;
  readonly isSrgb: boolean;
  /** A sample to this power is linear light. */
  readonly exponent: number | undefined;
  readonly chromaticities: Chromaticities | undefined;
}

export function readPngColour(file: Buffer): PngColour {
  const colour: { -readonly [Key in keyof PngColour]: PngColour[Key] } = {
    cicp: undefined,
    isSrgb: false,
    exponent: undefined,
    chromaticities: undefined,
  };
  let offset = SIGNATURE_BYTES;
  for (let chunk = 0; chunk < CHUNKS_MAX && offset + CHUNK_FRAME_BYTES <= file.length; chunk++) {
    const length = file.readUInt32BE(offset);
    const type = file.toString('latin1', offset + 4, offset + 8);
    const body = file.subarray(offset + 8, offset + 8 + length);
    if (type === 'IDAT') break;
    if (type === 'cICP' && body.length === 4) {
      const [primaries = 0, transfer = 0, , isFull] = body;
      colour.cicp = { primaries, transfer, isNarrow: isFull === 0, isRgb: true };
    }
    if (type === 'sRGB') colour.isSrgb = true;
    if (type === 'gAMA' && body.length === 4) colour.exponent = readExponent(body);
    if (type === 'cHRM' && body.length === 32) colour.chromaticities = readChromaticities(body);
    offset += CHUNK_FRAME_BYTES + length;
  }
  return colour;
}

/** Values far from any screen or camera are mistakes. */
function readExponent(body: Buffer): number | undefined {
  const exponent = PER_UNIT / body.readUInt32BE(0);
  return exponent >= 0.5 && exponent <= 5 ? exponent : undefined;
}

function readChromaticities(body: Buffer): Chromaticities | undefined {
  const at = (i: number) => body.readUInt32BE(4 * i) / PER_UNIT;
  const xy: Chromaticities = [at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)];
  return xy.every(value => value <= 2) ? xy : undefined;
}
