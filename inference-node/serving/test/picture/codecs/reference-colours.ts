/** The expected colours, from the definitions alone. All whites are D65. */
export type Vector = readonly [number, number, number];
type Matrix = readonly [Vector, Vector, Vector];

export interface Curve {
  readonly name: string;
  readonly toLinear: (sample: number) => number;
  /** Content of an ICC curve tag. */
  readonly tag: Buffer;
}

type Point = readonly [x: number, y: number];

export interface Gamut {
  readonly name: string;
  /** CIE xy of red, green and blue. */
  readonly xy: readonly [red: Point, green: Point, blue: Point];
}

export const SRGB_GAMUT: Gamut = {
  name: 'sRGB',
  xy: [
    [0.64, 0.33],
    [0.3, 0.6],
    [0.15, 0.06],
  ],
};
export const P3_GAMUT: Gamut = {
  name: 'P3',
  xy: [
    [0.68, 0.32],
    [0.265, 0.69],
    [0.15, 0.06],
  ],
};
export const ADOBE_GAMUT: Gamut = {
  name: 'Adobe',
  xy: [
    [0.64, 0.33],
    [0.21, 0.71],
    [0.15, 0.06],
  ],
};
export const REC2020_GAMUT: Gamut = {
  name: 'BT.2020',
  xy: [
    [0.708, 0.292],
    [0.17, 0.797],
    [0.131, 0.046],
  ],
};

function fixed(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length);
  for (const [i, value] of values.entries()) bytes.writeInt32BE(Math.round(value * 65536), 4 * i);
  return bytes;
}

function tag(type: string, ...content: readonly Buffer[]): Buffer {
  return Buffer.concat([Buffer.from(`${type}\0\0\0\0`, 'latin1'), ...content]);
}

export const SRGB_CURVE: Curve = {
  name: 'sRGB',
  toLinear: v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4),
  tag: tag(
    'para',
    Buffer.from([0, 3, 0, 0]),
    fixed(2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045),
  ),
};
export const LINEAR_CURVE: Curve = {
  name: 'linear',
  toLinear: v => v,
  tag: tag('curv', Buffer.alloc(4)),
};
/** Adobe RGB: 563 / 256. */
export const ADOBE_CURVE: Curve = {
  name: 'gamma 2.2',
  toLinear: v => v ** (563 / 256),
  tag: tag('curv', Buffer.from([0, 0, 0, 1, 0x02, 0x33])),
};

function apply(matrix: Matrix, [x, y, z]: Vector): Vector {
  const dot = (row: Vector) => row[0] * x + row[1] * y + row[2] * z;
  return [dot(matrix[0]), dot(matrix[1]), dot(matrix[2])];
}

function solve(columns: Matrix, right: Vector): Vector {
  const determinant = ([a, b, c]: Matrix) =>
    a[0] * (b[1] * c[2] - b[2] * c[1]) -
    b[0] * (a[1] * c[2] - a[2] * c[1]) +
    c[0] * (a[1] * b[2] - a[2] * b[1]);
  const all = determinant(columns);
  const [r, g, b] = columns;
  return [
    determinant([right, g, b]) / all,
    determinant([r, right, b]) / all,
    determinant([r, g, right]) / all,
  ];
}

const WHITE: Vector = [0.3127 / 0.329, 1, (1 - 0.3127 - 0.329) / 0.329];

function colorants({ xy }: Gamut): Matrix {
  const toXyz = ([x, y]: Point): Vector => [x / y, 1, (1 - x - y) / y];
  const [r, g, b] = [toXyz(xy[0]), toXyz(xy[1]), toXyz(xy[2])];
  const [sr, sg, sb] = solve([r, g, b], WHITE);
  const scale = (vector: Vector, by: number): Vector => [
    vector[0] * by,
    vector[1] * by,
    vector[2] * by,
  ];
  return [scale(r, sr), scale(g, sg), scale(b, sb)];
}

function linearToSrgb(light: number): number {
  const value = Math.min(1, Math.max(0, light));
  return value <= 0.0031308 ? value * 12.92 : 1.055 * value ** (1 / 2.4) - 0.055;
}

/** @param sample 0 to 1, in that gamut and curve. The result: 0 to 255 of 8-bit sRGB, not rounded. */
export function toSrgb8([red, green, blue]: Vector, gamut: Gamut, curve: Curve): Vector {
  const [r, g, b] = [curve.toLinear(red), curve.toLinear(green), curve.toLinear(blue)];
  const columns = colorants(gamut);
  const xyz = (i: 0 | 1 | 2) => r * columns[0][i] + g * columns[1][i] + b * columns[2][i];
  const light = solve(colorants(SRGB_GAMUT), [xyz(0), xyz(1), xyz(2)]);
  const encode = (value: number) => 255 * linearToSrgb(value);
  return [encode(light[0]), encode(light[1]), encode(light[2])];
}

/** Bradford, D65 to the D50 of profiles (ICC.1:2022, annex E). */
const TO_D50: Matrix = [
  [1.0478112, 0.0228866, -0.050127],
  [0.0295424, 0.9904844, -0.0170491],
  [-0.0092345, 0.0150436, 0.7521316],
];

export function createRgbProfile(gamut: Gamut, curve: Curve): Buffer {
  const [red, green, blue] = colorants(gamut);
  const colorant = (xyz: Vector) => tag('XYZ ', fixed(...apply(TO_D50, xyz)));
  return createProfile('mntrRGB XYZ ', [
    ['rXYZ', colorant(red)],
    ['gXYZ', colorant(green)],
    ['bXYZ', colorant(blue)],
    ['rTRC', curve.tag],
    ['gTRC', curve.tag],
    ['bTRC', curve.tag],
  ]);
}

export function createGreyProfile(curve: Curve): Buffer {
  return createProfile('mntrGRAYXYZ ', [['kTRC', curve.tag]]);
}

/**
 * Makes an ICC profile, version 2, by whose table every picture of three channels is middle grey.
 * @param kind class and colour space
 */
export function createTableProfile(kind: string): Buffer {
  // Two points a channel; L* 50 of 100, a* and b* 0.
  const points = Buffer.alloc(2 ** 3 * 6, Buffer.from('7f8080008000', 'hex'));
  const straight = Buffer.alloc(3 * 4, Buffer.from('0000ffff', 'hex'));
  const matrix = fixed(1, 0, 0, 0, 1, 0, 0, 0, 1);
  const head = [Buffer.from([3, 3, 2, 0]), matrix, Buffer.from([0, 2, 0, 2])];
  return createProfile(`${kind}Lab `, [['A2B0', tag('mft2', ...head, straight, points, straight)]]);
}

const D50 = [0.9642, 1, 0.8249] as const;

function createProfile(kind: string, colours: readonly (readonly [string, Buffer])[]): Buffer {
  const name = tag('desc', Buffer.from([0, 0, 0, 5]), Buffer.from('test\0'), Buffer.alloc(78));
  const tags: readonly (readonly [string, Buffer])[] = [
    ['desc', name],
    ['cprt', tag('text', Buffer.from('none\0'))],
    ['wtpt', tag('XYZ ', fixed(...D50))],
    ...colours,
  ];
  const table = Buffer.alloc(4 + 12 * tags.length);
  table.writeUInt32BE(tags.length);
  const bodies: Buffer[] = [];
  let at = 128 + table.length;
  for (const [i, [signature, body]] of tags.entries()) {
    table.write(signature, 4 + 12 * i, 'latin1');
    table.writeUInt32BE(at, 8 + 12 * i);
    table.writeUInt32BE(body.length, 12 + 12 * i);
    const padded = Buffer.concat([body, Buffer.alloc((4 - (body.length % 4)) % 4)]);
    bodies.push(padded);
    at += padded.length;
  }
  const header = Buffer.alloc(128);
  header.writeUInt32BE(at);
  header.writeUInt32BE(0x02400000, 8);
  header.write(kind, 12, 'latin1');
  for (const [i, part] of [2024, 1, 1].entries()) header.writeUInt16BE(part, 24 + 2 * i);
  header.write('acsp', 36, 'latin1');
  fixed(...D50).copy(header, 68);
  return Buffer.concat([header, table, ...bodies]);
}
