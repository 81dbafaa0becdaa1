/**
 * Which colours an ICC profile describes, and whether they are sRGB under another name: avoiding a
 * conversion saves 60 ms at 12 MP. ICC.1:2022 sections 7.2 (header), 7.3 (tag table), 10.6 (curv),
 * 10.18 (para), 10.31 (XYZ).
 */
import { srgbToLinear } from './source-colour.ts';

const HEADER_BYTES = 128;
const TAG_ENTRY_BYTES = 12;
const TAGS_MAX = 100;
const CURVE_POINTS_MAX = 4096;
/** Profiles of sRGB differ by the rounding of their adaptation to D50. */
const COLORANT_TOLERANCE = 0.002;
/** At 256 points, in linear light: half a step of 8 bits in the shadows. */
const CURVE_TOLERANCE = 0.001;

/** XYZ of sRGB's primaries adapted to D50 (IEC 61966-2-1 with Bradford). */
const SRGB_COLORANTS = {
  rXYZ: [0.4361, 0.2225, 0.0139],
  gXYZ: [0.3851, 0.7169, 0.0971],
  bXYZ: [0.1431, 0.0606, 0.7141],
} as const;
const CURVES = ['rTRC', 'gTRC', 'bTRC'] as const;

type Tags = ReadonlyMap<string, Buffer>;

/** ICC.1:2022, table 18, without classes of other uses. */
const PICTURE_CLASSES: ReadonlySet<string> = new Set(['scnr', 'mntr', 'prtr', 'spac']);
const SPACES = { 'RGB ': 'rgb', GRAY: 'grey', CMYK: 'cmyk' } as const;
const CONNECTIONS: ReadonlySet<string> = new Set(['XYZ ', 'Lab ']);

export type PixelSpace = (typeof SPACES)[keyof typeof SPACES];

export function spaceOfProfile(profile: Uint8Array): PixelSpace | undefined {
  const header = Buffer.from(profile.subarray(0, HEADER_BYTES)).toString('latin1');
  if (!PICTURE_CLASSES.has(header.slice(12, 16))) return undefined;
  if (!CONNECTIONS.has(header.slice(20, 24))) return undefined;
  return SPACES[header.slice(16, 20) as keyof typeof SPACES];
}

export function isSrgbProfile(profile: Uint8Array): boolean {
  const bytes = Buffer.from(profile.buffer, profile.byteOffset, profile.byteLength);
  const tags = readTags(bytes);
  // Tables for the intents take precedence over the matrix.
  if (tags === undefined || tags.has('A2B0') || tags.has('A2B1')) return false;
  for (const [name, expected] of Object.entries(SRGB_COLORANTS)) {
    const xyz = readXyz(tags.get(name));
    if (xyz === undefined) return false;
    const isNear = (i: 0 | 1 | 2) => Math.abs(xyz[i] - expected[i]) <= COLORANT_TOLERANCE;
    if (!isNear(0) || !isNear(1) || !isNear(2)) return false;
  }
  return CURVES.every(name => isSrgbCurve(tags.get(name)));
}

function readTags(bytes: Buffer): Tags | undefined {
  if (bytes.length < HEADER_BYTES + 4) return undefined;
  const isRgb = bytes.toString('latin1', 16, 20) === 'RGB ';
  const isXyz = bytes.toString('latin1', 20, 24) === 'XYZ ';
  const count = bytes.readUInt32BE(HEADER_BYTES);
  const tableEnd = HEADER_BYTES + 4 + count * TAG_ENTRY_BYTES;
  if (!isRgb || !isXyz || count > TAGS_MAX || tableEnd > bytes.length) return undefined;
  const tags = new Map<string, Buffer>();
  for (let at = HEADER_BYTES + 4; at < tableEnd; at += TAG_ENTRY_BYTES) {
    const offset = bytes.readUInt32BE(at + 4);
    const end = offset + bytes.readUInt32BE(at + 8);
    if (end > bytes.length) return undefined;
    tags.set(bytes.toString('latin1', at, at + 4), bytes.subarray(offset, end));
  }
  return tags;
}

function readFixed(tag: Buffer, at: number): number {
  return tag.readInt32BE(at) / 65536;
}

function readXyz(tag: Buffer | undefined): readonly [number, number, number] | undefined {
  if (tag === undefined || tag.length < 20 || tag.toString('latin1', 0, 4) !== 'XYZ ') {
    return undefined;
  }
  return [readFixed(tag, 8), readFixed(tag, 12), readFixed(tag, 16)];
}

function isSrgbCurve(tag: Buffer | undefined): boolean {
  const curve = tag && readCurve(tag);
  if (curve === undefined) return false;
  for (let i = 0; i < 256; i++) {
    if (!(Math.abs(curve(i / 255) - srgbToLinear(i / 255)) <= CURVE_TOLERANCE)) return false;
  }
  return true;
}

function readCurve(tag: Buffer): ((value: number) => number) | undefined {
  if (tag.length < 12) return undefined;
  const type = tag.toString('latin1', 0, 4);
  if (type === 'curv') return readSampledCurve(tag);
  return type === 'para' ? readParametricCurve(tag) : undefined;
}

/** A single gamma, or none, is not sRGB's curve. */
function readSampledCurve(tag: Buffer): ((value: number) => number) | undefined {
  const points = tag.readUInt32BE(8);
  if (points < 2 || points > CURVE_POINTS_MAX || tag.length < 12 + 2 * points) return undefined;
  return value => {
    const position = value * (points - 1);
    const below = Math.min(points - 2, Math.floor(position));
    const low = tag.readUInt16BE(12 + 2 * below);
    const high = tag.readUInt16BE(14 + 2 * below);
    return (low + (high - low) * (position - below)) / 65535;
  };
}

/** Types 3 and 4, which have sRGB's linear piece: X < d: cX (+ f), else (aX + b)^g (+ e). */
function readParametricCurve(tag: Buffer): ((value: number) => number) | undefined {
  const type = tag.readUInt16BE(8);
  const parameters = type === 3 ? 5 : type === 4 ? 7 : 0;
  if (parameters === 0 || tag.length < 12 + 4 * parameters) return undefined;
  const at = (i: number) => readFixed(tag, 12 + 4 * i);
  const [g, a, b, c, d] = [at(0), at(1), at(2), at(3), at(4)];
  const [e, f] = type === 4 ? [at(5), at(6)] : [0, 0];
  return value => (value < d ? c * value + f : (a * value + b) ** g + e);
}
