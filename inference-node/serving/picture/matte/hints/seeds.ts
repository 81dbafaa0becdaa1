import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import type { HintShape, Hints } from '@matting/proto/contract/hints.ts';
import type { RgbaPicture } from '../../rgba-picture.ts';

const NO_SEED = 0;
export const KEEP_SEED = 1;
export const ERASE_SEED = 2;
export const KEEP_BOX_SEED = 3;
export const ERASE_BOX_SEED = 4;
const BOX_SEEDS = { [KEEP_SEED]: KEEP_BOX_SEED, [ERASE_SEED]: ERASE_BOX_SEED };

export function keeps(seed: number): boolean {
  return seed === KEEP_SEED || seed === KEEP_BOX_SEED;
}

export interface HintsPlane extends Size {
  readonly luma: Uint8Array;
}

/** Lumas from KEEP_FROM on keep, lumas up to ERASE_TO erase. */
const KEEP_FROM = 250;
const ERASE_TO = 5;

/** Rec. 601, in 256ths. */
const LUMA = { red: 77, green: 150, blue: 29 };

export function lumaOf({ rgba, width, height }: RgbaPicture): HintsPlane {
  const luma = new Uint8Array(rgba.length);
  for (let i = 0; i < rgba.length; i++) {
    const pixel = rgba[i]!;
    const [red, green, blue] = [pixel & 255, (pixel >>> 8) & 255, (pixel >>> 16) & 255];
    luma[i] = (LUMA.red * red + LUMA.green * green + LUMA.blue * blue + 128) >>> 8;
  }
  return { luma, width, height };
}

/** Shapes in the picture's pixels, or a plane over all of it. */
export type Drawn = Pick<Hints, 'keep' | 'erase'> | HintsPlane;

export function isDrawn({ keep = [], erase = [] }: Hints): boolean {
  return keep.length + erase.length > 0;
}

/** @param part of the picture, which the seeds of `size` cover. Erase wins */
export function drawSeeds(drawn: Drawn, picture: Size, part: Box, size: Size): Uint8Array {
  if ('luma' in drawn) return stretch(drawn, picture, part, size);
  const seeds = new Uint8Array(size.width * size.height);
  const scale = { x: size.width / part.width, y: size.height / part.height };
  const { keep = [], erase = [] } = drawn;
  for (const [shapes, line] of [[keep, KEEP_SEED] as const, [erase, ERASE_SEED] as const]) {
    for (const shape of shapes) {
      const toPlane = (x: number, y: number) =>
        [(x - part.left) * scale.x, (y - part.top) * scale.y] as const;
      const seed = 'box' in shape ? BOX_SEEDS[line] : line;
      drawShape(shape, toPlane, (scale.x + scale.y) / 2, { seeds, seed, ...size });
    }
  }
  return seeds;
}

interface Canvas extends Size {
  readonly seeds: Uint8Array;
  readonly seed: number;
}

type ToPlane = (x: number, y: number) => readonly [x: number, y: number];

function drawShape(shape: HintShape, toPlane: ToPlane, scale: number, canvas: Canvas): void {
  if ('box' in shape) {
    const [left, top] = toPlane(shape.box[0], shape.box[1]);
    const [right, bottom] = toPlane(shape.box[2], shape.box[3]);
    const from = Math.min(canvas.height - 1, Math.floor(top));
    for (let y = from; y < Math.max(from + 1, bottom); y++) drawSpan(canvas, y, left, right);
    return;
  }
  const radius = Math.max(0.75, shape.radius * scale);
  const points = shape.line.map(([x, y]) => toPlane(x, y));
  const ends = points.length > 1 ? points.slice(1) : points;
  for (const [index, end] of ends.entries()) drawSegment(points[index]!, end, radius, canvas);
}

type Point = readonly [x: number, y: number];

/** Fills one span per row, since a line with round ends is convex: a large radius costs no time. */
function drawSegment([x1, y1]: Point, [x2, y2]: Point, radius: number, canvas: Canvas): void {
  const length = Math.hypot(x2 - x1, y2 - y1);
  const across: Point = length === 0 ? [0, radius] : turned([x2 - x1, y2 - y1], radius / length);
  const corners: Point[] = [
    [x1 + across[0], y1 + across[1]],
    [x2 + across[0], y2 + across[1]],
    [x2 - across[0], y2 - across[1]],
    [x1 - across[0], y1 - across[1]],
  ];
  const top = Math.max(0, Math.floor(Math.min(y1, y2) - radius));
  const bottom = Math.min(canvas.height - 1, Math.ceil(Math.max(y1, y2) + radius));
  for (let row = top; row <= bottom; row++) {
    const y = row + 0.5;
    let [left, right] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
    const reach = (x: number, half = 0) => {
      left = Math.min(left, x - half);
      right = Math.max(right, x + half);
    };
    for (const [x, centre] of [
      [x1, y1],
      [x2, y2],
    ] as const) {
      const rise = Math.abs(y - centre);
      if (rise <= radius) reach(x, Math.sqrt(radius * radius - rise * rise));
    }
    for (let side = 0; side < 4; side++) {
      const [ax, ay] = corners[side]!;
      const [bx, by] = corners[(side + 1) % 4]!;
      if (ay < y !== by < y) reach(ax + ((y - ay) / (by - ay)) * (bx - ax));
    }
    if (left <= right) drawSpan(canvas, row, left, right);
  }
}

function turned([x, y]: Point, scale: number): Point {
  return [-y * scale, x * scale];
}

function drawSpan({ seeds, seed, width }: Canvas, row: number, left: number, right: number): void {
  const from = Math.min(width - 1, Math.max(0, Math.floor(left)));
  const to = Math.min(width, Math.max(from + 1, Math.ceil(right)));
  seeds.fill(seed, row * width + from, row * width + to);
}

/** Thin lines survive: each pixel takes any hint inside of it. */
function stretch(hints: HintsPlane, picture: Size, part: Box, size: Size): Uint8Array {
  const seeds = new Uint8Array(size.width * size.height);
  const across = spans(part.left, part.width, picture.width, hints.width, size.width);
  const down = spans(part.top, part.height, picture.height, hints.height, size.height);
  for (let y = 0, at = 0; y < size.height; y++) {
    for (let x = 0; x < size.width; x++, at++) {
      let seed = NO_SEED;
      for (let row = down.from[y]!; row < down.to[y]!; row++) {
        for (let i = across.from[x]!; i < across.to[x]!; i++) {
          const value = hints.luma[row * hints.width + i]!;
          if (value <= ERASE_TO) seed = ERASE_SEED;
          else if (value >= KEEP_FROM && seed === NO_SEED) seed = KEEP_SEED;
        }
      }
      seeds[at] = seed;
    }
  }
  return seeds;
}

/** Spans of `length` pixels over a side, for each of `count` pixels along its part. */
function spans(start: number, part: number, side: number, length: number, count: number) {
  const at = (pixel: number) => ((start + (pixel * part) / count) * length) / side;
  const from = Int32Array.from({ length: count }, (_none, i) =>
    Math.min(length - 1, Math.floor(at(i) + 1e-6)),
  );
  const to = Int32Array.from({ length: count }, (_none, i) =>
    Math.min(length, Math.max(from[i]! + 1, Math.ceil(at(i + 1) - 1e-6))),
  );
  return { from, to };
}
