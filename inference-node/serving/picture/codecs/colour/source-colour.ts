/**
 * Converts colours described by numbers to 8-bit sRGB: H.273 code points (AVIF, PNG), gamma and
 * chromaticities (PNG). High dynamic range has a fixed tone curve, so a crop keeps the whole
 * picture's colours. Diffuse white (203 cd/m2) becomes nearly white, brighter light rolls off up to
 * PEAK_NITS.
 */
import type { Cicp } from '@matting/proto/contract/image-header/heif-file.ts';
import type { Chromaticities } from './png-colour.ts';
import { type Samples, sampleMaxOf } from './samples.ts';

export interface SourceColour {
  /** Leads from linear light in the source's primaries to that in sRGB's. */
  readonly matrix: Matrix;
  /** The result 1 is white, or PEAK_NITS if `toneMaps` is set. */
  readonly toLinear: (sample: number) => number;
  readonly toneMaps: boolean;
  /** Hybrid log-gamma: a power of its luminance turns scene light into display light. */
  readonly isScene: boolean;
}

const D65 = [0.3127, 0.329] as const;
const SRGB: Chromaticities = [...D65, 0.64, 0.33, 0.3, 0.6, 0.15, 0.06];
const REC_2020: Chromaticities = [...D65, 0.708, 0.292, 0.17, 0.797, 0.131, 0.046];

/** H.273 table 2; all others count as sRGB's. */
const PRIMARIES: Readonly<Record<number, Chromaticities>> = {
  1: SRGB,
  5: [...D65, 0.64, 0.33, 0.29, 0.6, 0.15, 0.06],
  6: [...D65, 0.63, 0.34, 0.31, 0.595, 0.155, 0.07],
  7: [...D65, 0.63, 0.34, 0.31, 0.595, 0.155, 0.07],
  9: REC_2020,
  11: [0.314, 0.351, 0.68, 0.32, 0.265, 0.69, 0.15, 0.06],
  12: [...D65, 0.68, 0.32, 0.265, 0.69, 0.15, 0.06],
};

const TRANSFER_PQ = 16;
const TRANSFER_HLG = 18;
/** H.273 table 3, without curves that no picture has. */
const TRANSFERS: ReadonlySet<number> = new Set([
  1,
  4,
  5,
  6,
  8,
  11,
  12,
  13,
  14,
  15,
  TRANSFER_PQ,
  TRANSFER_HLG,
]);

/** Luminance for which most HDR content is graded. */
const PEAK_NITS = 1000;
const WHITE_NITS = 203;
const PQ_PEAK_NITS = 10_000;
/** For a screen of 1000 cd/m2 (ITU-R BT.2100, table 5). */
const HLG_SYSTEM_GAMMA = 1.2;

/** Writers of gAMA 45455 (2.2) mean sRGB. */
const EXPONENT_TOLERANCE = 0.05;
const CHROMATICITY_TOLERANCE = 0.004;

export function isKnownCicp({ primaries, transfer }: Cicp): boolean {
  return PRIMARIES[primaries] !== undefined && TRANSFERS.has(transfer);
}

/** Undefined: the colours are sRGB already. */
export function colourOfCicp({ primaries, transfer }: Cicp): SourceColour | undefined {
  const toneMaps = transfer === TRANSFER_PQ || transfer === TRANSFER_HLG;
  const isScene = transfer === TRANSFER_HLG;
  const chromaticities = PRIMARIES[primaries] ?? SRGB;
  const toLinear = transferOf(transfer);
  if (toLinear === srgbToLinear && chromaticities === SRGB) return undefined;
  return { matrix: matrixToSrgb(chromaticities), toLinear, toneMaps, isScene };
}

/** PNG's gAMA and cHRM. Undefined: the colours are sRGB already. */
export function colourOfGamma(
  exponent: number | undefined,
  chromaticities: Chromaticities | undefined,
): SourceColour | undefined {
  const isSrgbCurve = exponent === undefined || Math.abs(exponent - 2.2) <= EXPONENT_TOLERANCE;
  const isSrgbGamut =
    chromaticities === undefined ||
    chromaticities.every(
      (value, i) => Math.abs(value - (SRGB[i] ?? Number.NaN)) <= CHROMATICITY_TOLERANCE,
    );
  if (isSrgbCurve && isSrgbGamut) return undefined;
  const matrix = matrixToSrgb(isSrgbGamut ? SRGB : chromaticities);
  // Degenerate primaries span no space.
  const usable = matrix.flat().every(Number.isFinite);
  const toLinear = isSrgbCurve ? srgbToLinear : (sample: number) => sample ** exponent;
  if (!usable && isSrgbCurve) return undefined;
  return {
    matrix: usable ? matrix : matrixToSrgb(SRGB),
    toLinear,
    toneMaps: false,
    isScene: false,
  };
}

/** The cameras' curves (BT.709, BT.601, BT.2020) target displays with nearly sRGB's curve. */
function transferOf(transfer: number): (sample: number) => number {
  switch (transfer) {
    case 4:
      return sample => sample ** 2.2;
    case 5:
      return sample => sample ** 2.8;
    case 8:
      return sample => sample;
    case TRANSFER_PQ:
      return sample => (pqToNits(sample) > PEAK_NITS ? 1 : pqToNits(sample) / PEAK_NITS);
    case TRANSFER_HLG:
      return hlgToScene;
    default:
      return srgbToLinear;
  }
}

export function srgbToLinear(sample: number): number {
  return sample <= 0.04045 ? sample / 12.92 : ((sample + 0.055) / 1.055) ** 2.4;
}

function linearToSrgb(light: number): number {
  return light <= 0.0031308 ? light * 12.92 : 1.055 * light ** (1 / 2.4) - 0.055;
}

const PQ = { m1: 2610 / 16384, m2: 2523 / 32, c1: 107 / 128, c2: 2413 / 128, c3: 2392 / 128 };

/** SMPTE ST 2084. */
function pqToNits(sample: number): number {
  const power = sample ** (1 / PQ.m2);
  const light = Math.max(0, power - PQ.c1) / (PQ.c2 - PQ.c3 * power);
  return PQ_PEAK_NITS * light ** (1 / PQ.m1);
}

function nitsToPq(nits: number): number {
  const power = (nits / PQ_PEAK_NITS) ** PQ.m1;
  return ((PQ.c1 + PQ.c2 * power) / (1 + PQ.c3 * power)) ** PQ.m2;
}

/** ITU-R BT.2100, table 5: the inverse of the camera's curve. */
function hlgToScene(sample: number): number {
  const [a, b, c] = [0.17883277, 0.28466892, 0.55991073];
  return sample <= 0.5 ? sample ** 2 / 3 : (Math.exp((sample - c) / a) + b) / 12;
}

/** Maps PEAK_NITS to WHITE_NITS: ITU-R BT.2390-11, section 5.4.1. `light`: 1 is PEAK_NITS. */
function toneMap(light: number): number {
  const peak = nitsToPq(PEAK_NITS);
  const target = nitsToPq(WHITE_NITS) / peak;
  const knee = 1.5 * target - 0.5;
  const sample = nitsToPq(light * PEAK_NITS) / peak;
  if (sample < knee) return (light * PEAK_NITS) / WHITE_NITS;
  const t = (sample - knee) / (1 - knee);
  const bent =
    (2 * t ** 3 - 3 * t ** 2 + 1) * knee +
    (t ** 3 - 2 * t ** 2 + t) * (1 - knee) +
    (-2 * t ** 3 + 3 * t ** 2) * target;
  return pqToNits(bent * peak) / WHITE_NITS;
}

type Triple<T> = readonly [T, T, T];
type Vector = Triple<number>;
type Matrix = Triple<Vector>;

function mapThree<From, To>(
  [a, b, c]: Triple<From>,
  map: (v: From, i: 0 | 1 | 2) => To,
): Triple<To> {
  return [map(a, 0), map(b, 1), map(c, 2)];
}

function dot([a, b, c]: Vector, [x, y, z]: Vector): number {
  return a * x + b * y + c * z;
}

function transpose([a, b, c]: Matrix): Matrix {
  return mapThree(a, (_, i): Vector => [a[i], b[i], c[i]]);
}

function invert([[a, b, c], [d, e, f], [g, h, i]]: Matrix): Matrix {
  const determinant = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g);
  const adjugate: Matrix = [
    [e * i - f * h, c * h - b * i, b * f - c * e],
    [f * g - d * i, a * i - c * g, c * d - a * f],
    [d * h - e * g, b * g - a * h, a * e - b * d],
  ];
  return mapThree(adjugate, row => mapThree(row, value => value / determinant));
}

function multiply(left: Matrix, right: Matrix): Matrix {
  const columns = transpose(right);
  return mapThree(left, row => mapThree(columns, column => dot(row, column)));
}

function toXyz(x: number, y: number): Vector {
  return [x / y, 1, (1 - x - y) / y];
}

/** SMPTE RP 177: linear RGB to XYZ, white at a luminance of 1. */
function rgbToXyz([wx, wy, rx, ry, gx, gy, bx, by]: Chromaticities): Matrix {
  const primaries = transpose([toXyz(rx, ry), toXyz(gx, gy), toXyz(bx, by)]);
  const white = toXyz(wx, wy);
  const scale = mapThree(invert(primaries), row => dot(row, white));
  return mapThree(primaries, row => mapThree(row, (value, i) => value * scale[i]));
}

const BRADFORD: Matrix = [
  [0.8951, 0.2664, -0.1614],
  [-0.7502, 1.7135, 0.0367],
  [0.0389, -0.0685, 1.0296],
];

/** Linear Bradford: maps the source's white to D65. */
function adaptation(white: Vector): Matrix {
  const cones = (xyz: Vector) => mapThree(BRADFORD, row => dot(row, xyz));
  const [from, to] = [cones(white), cones(toXyz(...D65))];
  const scale = mapThree(to, (value, i) => value / from[i]);
  const scaled = mapThree(BRADFORD, (row, i) => mapThree(row, value => value * scale[i]));
  return multiply(invert(BRADFORD), scaled);
}

function matrixToSrgb(chromaticities: Chromaticities): Matrix {
  const [wx, wy] = chromaticities;
  const adapt = adaptation(toXyz(wx, wy));
  return multiply(invert(rgbToXyz(SRGB)), multiply(adapt, rgbToXyz(chromaticities)));
}

/** Steps of linear light, each at most 0.05 of 255 in sRGB. */
const LIGHT_STEPS = 65_535;

function tabulate(length: number, at: (index: number) => number): Float32Array {
  return Float32Array.from({ length }, (_, index) => at(index));
}

/** BT.2020's weights: HLG with other primaries is rare. */
const LUMINANCE = [0.2627, 0.678, 0.0593] as const;

/** Index: linear light in LIGHT_STEPS. */
let encodedLight: Uint8Array | undefined;

/** @param samples interleaved RGBA. 0.1 us a pixel */
export function convertToSrgb(
  samples: Samples,
  { matrix, toLinear, toneMaps, isScene }: SourceColour,
): Uint32Array {
  const sampleMax = sampleMaxOf(samples);
  const linear = tabulate(sampleMax + 1, value => toLinear(value / sampleMax));
  encodedLight ??= Uint8Array.from({ length: LIGHT_STEPS + 1 }, (_, index) =>
    Math.round(linearToSrgb(index / LIGHT_STEPS) * 255),
  );
  const encoded = encodedLight;
  // Scales a pixel's three colours alike, which keeps its hue.
  const factors = tabulate(toneMaps ? LIGHT_STEPS + 1 : 0, index => {
    const light = Math.max(index, 1) / LIGHT_STEPS;
    return toneMap(light) / light;
  });
  const scene = tabulate(
    isScene ? LIGHT_STEPS + 1 : 0,
    index => (Math.max(index, 1) / LIGHT_STEPS) ** (HLG_SYSTEM_GAMMA - 1),
  );
  const pixels = new Uint32Array(samples.length / 4);
  const [[m0, m1, m2], [m3, m4, m5], [m6, m7, m8]] = matrix;
  const encode = (light: number): number =>
    encoded[light <= 0 ? 0 : light >= 1 ? LIGHT_STEPS : (light * LIGHT_STEPS + 0.5) | 0]!;
  for (let i = 0, at = 0; i < pixels.length; i++, at += 4) {
    let r = linear[samples[at]!]!;
    let g = linear[samples[at + 1]!]!;
    let b = linear[samples[at + 2]!]!;
    if (isScene) {
      const luminance = LUMINANCE[0] * r + LUMINANCE[1] * g + LUMINANCE[2] * b;
      const gain = scene[(Math.min(1, luminance) * LIGHT_STEPS) | 0]!;
      r *= gain;
      g *= gain;
      b *= gain;
    }
    if (toneMaps) {
      const factor = factors[(Math.min(1, Math.max(r, g, b)) * LIGHT_STEPS) | 0]!;
      r *= factor;
      g *= factor;
      b *= factor;
    }
    const red = encode(m0 * r + m1 * g + m2 * b);
    const green = encode(m3 * r + m4 * g + m5 * b);
    const blue = encode(m6 * r + m7 * g + m8 * b);
    const alpha = ((samples[at + 3]! * 255) / sampleMax + 0.5) | 0;
    pixels[i] = (red | (green << 8) | (blue << 16) | (alpha << 24)) >>> 0;
  }
  return pixels;
}
