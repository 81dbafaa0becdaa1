/** Strokes that people draw on a thing whose alpha is known, and how well a matte follows. */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import type { HintShape } from '@matting/proto/contract/hints.ts';

export interface AlphaPlane extends Size {
  readonly data: Uint8Array;
}

type Point = [x: number, y: number];

export function boxOf({ data, width, height }: AlphaPlane, from = 128): Box {
  let [left, top, right, bottom] = [width, height, 0, 0];
  for (let i = 0; i < data.length; i++) {
    if (data[i]! < from) continue;
    const [x, y] = [i % width, Math.floor(i / width)];
    [left, right] = [Math.min(left, x), Math.max(right, x + 1)];
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y + 1)];
  }
  return { left, top, width: right - left, height: bottom - top };
}

/** `margin` pixels wider, within the picture. */
export function boxAround(thing: AlphaPlane, margin: number): HintShape {
  const { left, top, width, height } = boxOf(thing, 20);
  return {
    box: [
      Math.max(0, left - margin),
      Math.max(0, top - margin),
      Math.min(thing.width, left + width + margin),
      Math.min(thing.height, top + height + margin),
    ],
  };
}

export function lowerHalf(thing: AlphaPlane, margin: number): HintShape & { box: unknown } {
  const { top, height } = boxOf(thing, 20);
  const [left, , right, bottom] = (boxAround(thing, margin) as { box: readonly number[] }).box;
  return { box: [left!, Math.round(top + height / 2), right!, bottom!] };
}

/** One stroke as broad as the thing. */
export function broadStroke(thing: AlphaPlane): HintShape {
  const { left, top, width, height } = boxOf(thing);
  const [x, y] = [left + width / 2, top + height / 2];
  const radius = (Math.min(width, height) / 2) * 1.05;
  const ends: Point[] =
    height >= width
      ? [
          [x, top + radius / 2],
          [x, top + height - radius / 2],
        ]
      : [
          [left + radius / 2, y],
          [left + width - radius / 2, y],
        ];
  return { line: ends, radius };
}

export function scribble(thing: AlphaPlane, radius: number, rows = 6): HintShape {
  const { top, height } = boxOf(thing);
  const line: Point[] = [];
  for (let row = 0; row < rows; row++) {
    const y = Math.floor(top + (height * (row + 0.5)) / rows);
    const ends = endsOf(thing, y);
    if (ends === undefined) continue;
    const inset = (ends[1] - ends[0]) * 0.15;
    const across: Point[] = [
      [ends[0] + inset, y],
      [ends[1] - inset, y],
    ];
    line.push(...(row % 2 === 0 ? across : across.reverse()));
  }
  return { line, radius };
}

export function middleStroke(thing: AlphaPlane, radius: number): HintShape {
  const { left, top, width, height } = boxOf(thing);
  const depths = depthsOf(thing);
  const isTall = height >= width;
  const line: Point[] = [];
  for (let step = 0; step <= 8; step++) {
    const share = 0.25 + step / 16;
    const at = Math.floor(isTall ? top + share * height : left + share * width);
    const across = isTall ? { from: left, length: width } : { from: top, length: height };
    const pointAt = (i: number): Point => (isTall ? [i, at] : [at, i]);
    const depthAt = ([x, y]: Point) => depths[y * thing.width + x]!;
    let best = pointAt(across.from);
    for (let i = across.from; i < across.from + across.length; i++) {
      if (depthAt(pointAt(i)) > depthAt(best)) best = pointAt(i);
    }
    if (depthAt(best) > 0) line.push(best);
  }
  return { line, radius };
}

export function dot(thing: AlphaPlane): HintShape {
  const depths = depthsOf(thing);
  let deepest = 0;
  for (let i = 1; i < depths.length; i++) if (depths[i]! > depths[deepest]!) deepest = i;
  const point: Point = [deepest % thing.width, Math.floor(deepest / thing.width)];
  return { line: [point], radius: Math.max(2, depths[deepest]! / 3) };
}

export function polygon(thing: AlphaPlane, radius: number): HintShape {
  const { left, top, width, height } = boxOf(thing);
  const [right, bottom] = [left + width - 1, top + height - 1];
  const corners: Point[] = [
    [left, top],
    [right, top],
    [right, bottom],
    [left, bottom],
  ];
  return { line: [...corners, corners[0]!, corners[2]!], radius };
}

/** Along its right side, so many pixels over its rim and no deeper. */
export function besideStroke(thing: AlphaPlane, radius: number, over: number): HintShape {
  const inverse = { ...thing, data: thing.data.map(value => (value >= 128 ? 0 : 255)) };
  const away = depthsOf(inverse);
  const { left, width } = boxOf(thing);
  const middle = left + width / 2;
  let points: Point[] = [];
  for (let i = 0; i < away.length; i++) {
    const [x, y] = [i % thing.width, Math.floor(i / thing.width)];
    const isOnPath = away[i]! >= radius - over && away[i]! < radius - over + 1.2;
    if (isOnPath && x >= middle && x < thing.width - 1) points.push([x, y]);
  }
  const apart = (one: Point, other: Point) => Math.hypot(one[0] - other[0], one[1] - other[1]);
  const line: Point[] = [];
  let here = points.toSorted((a, b) => b[1] - a[1])[0];
  while (here !== undefined) {
    const last: Point = here;
    line.push(last);
    points = points.filter(point => apart(point, last) > 2);
    const [next] = points.toSorted((a, b) => apart(a, last) - apart(b, last));
    here = next !== undefined && apart(next, last) < 8 ? next : undefined;
  }
  return { line, radius };
}

function endsOf({ data, width }: AlphaPlane, y: number): Point | undefined {
  const row = data.subarray(y * width, (y + 1) * width);
  const first = row.findIndex(value => value >= 200);
  return first < 0 ? undefined : [first, row.findLastIndex(value => value >= 200)];
}

/** Distance from the rim, in pixels. */
export function depthsOf({ data, width, height }: AlphaPlane): Float32Array {
  const depths = Float32Array.from(data, value => (value >= 128 ? 1e6 : 0));
  const at = (x: number, y: number) =>
    x < 0 || y < 0 || x >= width || y >= height ? 0 : depths[y * width + x]!;
  for (const step of [1, -1]) {
    for (let i = step === 1 ? 0 : depths.length - 1; i >= 0 && i < depths.length; i += step) {
      const [x, y] = [i % width, Math.floor(i / width)];
      const beside = Math.min(at(x - step, y), at(x, y - step)) + 1;
      const across = Math.min(at(x - step, y - step), at(x + step, y - step)) + Math.SQRT2;
      depths[i] = Math.min(depths[i]!, beside, across);
    }
  }
  return depths;
}

export function shownShare(matte: Uint8Array, { data }: AlphaPlane): number {
  let [shown, all] = [0, 0];
  for (let i = 0; i < data.length; i++) {
    shown += Math.min(matte[i]!, data[i]!);
    all += data[i]!;
  }
  return shown / all;
}

export function changedShare(matte: Uint8Array, before: Uint8Array, { data }: AlphaPlane): number {
  let [changed, all] = [0, 0];
  for (let i = 0; i < data.length; i++) {
    changed += Math.abs(matte[i]! - before[i]!) * (data[i]! / 255);
    all += data[i]!;
  }
  return changed / all;
}

/** Soft intersection over union, where `isIn`. */
export function overlap(
  matte: Uint8Array,
  { data, width }: AlphaPlane,
  isIn: (x: number, y: number) => boolean = () => true,
): number {
  let [both, either] = [0, 0];
  for (let i = 0; i < data.length; i++) {
    if (!isIn(i % width, Math.floor(i / width))) continue;
    both += Math.min(matte[i]!, data[i]!);
    either += Math.max(matte[i]!, data[i]!);
  }
  return both / either;
}
