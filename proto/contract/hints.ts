/** The wire message `Hints` in the programs. matte_service.proto describes each field. */
import { type ContractError, invalidParameter } from './errors.ts';
import type { Box, Region } from './finishing.ts';
import { IMAGE_SIDE_PX_MAX } from './limits.ts';

/** In pixels of the oriented picture, as in callers' JSON. */
export type HintShape =
  | { readonly box: readonly [left: number, top: number, right: number, bottom: number] }
  | { readonly line: readonly (readonly [x: number, y: number])[]; readonly radius: number };

/** Without any field use undefined. */
export interface Hints {
  readonly subjectBox?: Region;
  readonly keep?: readonly HintShape[];
  readonly erase?: readonly HintShape[];
  /** A file next to the image, instead of shapes. */
  readonly picture?: true;
}

/** Of `keep` and `erase` together. */
export const HINT_SHAPES_MAX = 64;
export const HINT_POINTS_MAX = 4096;

const SHAPE_FIELDS = ['keep', 'erase'] as const;

/** The checks that need no picture. @throws ContractError INVALID_PARAMETER */
export function requireShapes(hints: Hints): void {
  let [shapes, points] = [0, 0];
  for (const field of SHAPE_FIELDS) {
    for (const shape of hints[field] ?? []) {
      shapes += 1;
      if ('line' in shape) points += shape.line.length;
      const wrong = shapes > HINT_SHAPES_MAX ? TOO_MANY_SHAPES : wrongOf(shape);
      if (wrong !== undefined) throw invalidParameter(field, wrong);
      if (points > HINT_POINTS_MAX) throw invalidParameter(field, TOO_MANY_POINTS);
    }
  }
}

const TOO_MANY_SHAPES = `must have at most ${HINT_SHAPES_MAX} shapes, together with the other`;
const TOO_MANY_POINTS = `must have at most ${HINT_POINTS_MAX} points, together with the other`;

function wrongOf(shape: HintShape): string | undefined {
  const numbers = 'box' in shape ? shape.box : shape.line.flat();
  const isNumber = (value: number) => value >= 0 && value <= IMAGE_SIDE_PX_MAX;
  if (!numbers.every(isNumber)) {
    return `must have numbers from 0 to ${IMAGE_SIDE_PX_MAX}, in pixels of the image`;
  }
  if ('box' in shape) {
    const [left, top, right, bottom] = shape.box;
    return right > left && bottom > top ? undefined : 'must have boxes of x1 < x2 and y1 < y2';
  }
  if (shape.line.length === 0) return 'must have lines of at least one point';
  if (shape.radius > 0 && shape.radius <= IMAGE_SIDE_PX_MAX) return undefined;
  return `must have lines with a radius over 0, at most ${IMAGE_SIDE_PX_MAX}`;
}

/** Wire numbers have 24 bits, and a caller may round. */
const OUTSIDE_PX_MAX = 1;

/** @param area the picture, or the subject's box in it @throws ContractError INVALID_PARAMETER */
export function requireInside(hints: Hints, area: Box): void {
  const right = area.left + area.width + OUTSIDE_PX_MAX;
  const bottom = area.top + area.height + OUTSIDE_PX_MAX;
  const isInside = (x: number, y: number) =>
    x >= area.left - OUTSIDE_PX_MAX && x <= right && y >= area.top - OUTSIDE_PX_MAX && y <= bottom;
  for (const field of SHAPE_FIELDS) {
    for (const shape of hints[field] ?? []) {
      const points = 'line' in shape ? shape.line : cornersOf(shape.box);
      if (points.every(([x, y]) => isInside(x, y))) continue;
      throw outside(field, hints);
    }
  }
}

function outside(field: string, { subjectBox }: Hints): ContractError {
  const where = subjectBox === undefined ? 'the image' : 'subject_box';
  return invalidParameter(field, `must lie inside ${where}, in pixels of the upright image`);
}

function cornersOf([left, top, right, bottom]: readonly [number, number, number, number]) {
  return [
    [left, top],
    [right, bottom],
  ] as const;
}
