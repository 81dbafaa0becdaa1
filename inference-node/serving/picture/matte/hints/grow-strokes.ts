/**
 * Decides the area around strokes by geodesic distance: a path through colours unlike the stroke's
 * is long (Bai and Sapiro, "Geodesic Matting", IJCV 2009; Criminisi et al., "GeoS", ECCV 2008). A
 * stroke grows only through cells that the matte has wrong, and learns only their colours.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';

export interface Cells extends Size {
  /** Four bytes a cell: red, green, blue, undefined. */
  readonly colours: Uint8Array;
  readonly alpha: Uint8Array;
}

interface GrowRules {
  /** Least difference (of 255) of a wrong cell. */
  readonly wrongFrom: number;
  /** The reach is the sum of these: cells, a multiple of the breadth, a share of the extent. */
  readonly reachCells: number;
  readonly reachBreadth: number;
  readonly reachShare: number;
  /** Longest path through unlike colours. */
  readonly unlikeCells: number;
  /** Likeness from which a colour is the stroke's. At `likeSpan` less it is wholly unlike. */
  readonly likeFrom: number;
  readonly likeSpan: number;
  /** Share of the reach that a sharp edge takes. */
  readonly edgeShare: number;
  /** Extra length of a cell if the matte is sure of it. */
  readonly sureWeight: number;
  /** Last share of the reach, in which the weight falls to 0. */
  readonly fadeShare: number;
}

/** Chosen on photos with reference mattes, with strokes along their largest errors. */
const KEEP_RULES: GrowRules = {
  wrongFrom: 64,
  reachCells: 4,
  reachBreadth: 2,
  reachShare: 0.05,
  unlikeCells: 2,
  likeFrom: 0.9,
  likeSpan: 0.4,
  edgeShare: 0.15,
  sureWeight: 1,
  fadeShare: 0.15,
};

/** Wider, since erasing stays within shown pixels. */
const ERASE_RULES: GrowRules = {
  ...KEEP_RULES,
  reachCells: 6,
  reachBreadth: 3,
  reachShare: 0.4,
  likeFrom: 0.8,
  likeSpan: 0.5,
};

const GROW_RULES: Readonly<Record<'keep' | 'erase', GrowRules>> = {
  keep: KEEP_RULES,
  erase: ERASE_RULES,
};

/** Strokes beyond this number count only as drawn, and do not grow. */
const STROKES_MAX = 64;
/** Histogram bins of a colour channel. */
const STEPS = 16;
const COLOURS = STEPS ** 3;
/** The second pass also knows the colours of the cells that the first one took. */
const PASSES = 2;
/** Distance steps per cell. */
const FINE = 8;

/** The box's sides are inclusive. */
export interface Stroke {
  readonly cells: readonly number[];
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
}

export function findStrokes(marked: Uint8Array, size: Size): Stroke[] {
  return findGroups(cell => marked[cell] === 1, size)
    .sort((a, b) => b.cells.length - a.cells.length)
    .slice(0, STROKES_MAX);
}

export function findGroups(isIn: (cell: number) => boolean, { width, height }: Size): Stroke[] {
  const seen = new Uint8Array(width * height);
  const groups: Stroke[] = [];
  for (let start = 0; start < seen.length; start++) {
    if (seen[start] === 1 || !isIn(start)) continue;
    seen[start] = 1;
    const cells = [start];
    let [left, top, right, bottom] = [width, height, 0, 0];
    for (let next = 0; next < cells.length; next++) {
      const cell = cells[next]!;
      const [x, y] = [cell % width, Math.floor(cell / width)];
      [left, right] = [Math.min(left, x), Math.max(right, x)];
      [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
      for (let dy = Math.max(0, y - 1); dy <= Math.min(height - 1, y + 1); dy++) {
        for (let dx = Math.max(0, x - 1); dx <= Math.min(width - 1, x + 1); dx++) {
          const near = dy * width + dx;
          if (seen[near] === 1 || !isIn(near)) continue;
          seen[near] = 1;
          cells.push(near);
        }
      }
    }
    groups.push({ cells, left, top, right, bottom });
  }
  return groups;
}

/**
 * Weight of the strokes in each cell: 0 to 255.
 * @param barred not 0 in cells that nothing grows into
 */
export function growStrokes(
  strokes: readonly Stroke[],
  kind: 'keep' | 'erase',
  cells: Cells,
  barred: Uint8Array,
  rules = GROW_RULES[kind],
): Uint8Array {
  const { alpha } = cells;
  const won = new Uint8Array(alpha.length);
  const wrong = wrongOf(kind, cells);
  for (const stroke of strokes) {
    const sources = stroke.cells.filter(cell => wrong[cell]! >= rules.wrongFrom);
    if (sources.length === 0) continue;
    const reach = reachOf(stroke, rules);
    let shares: Uint8Array | undefined;
    for (let pass = 0; pass < PASSES; pass++) {
      const likeness = likenessOf(stroke, sources, wrong, shares, cells, reach);
      shares = distances(sources, likeness, wrong, barred, cells, reach, rules);
    }
    for (let cell = 0; cell < won.length; cell++) {
      if (shares![cell]! > won[cell]!) won[cell] = shares![cell]!;
    }
  }
  return won;
}

/** How far the matte contradicts strokes of a kind, 0 to 255. */
export function wrongOf(kind: 'keep' | 'erase', { alpha }: Cells): Uint8Array {
  return kind === 'keep' ? alpha.map(value => 255 - value) : alpha;
}

function binOf(colours: Uint8Array, cell: number): number {
  const at = 4 * cell;
  return ((colours[at]! >> 4) * STEPS + (colours[at + 1]! >> 4)) * STEPS + (colours[at + 2]! >> 4);
}

/** How much likelier a cell's colour is the stroke's than that of its surroundings: 0 to 1. */
export function likenessOf(
  { left, top, right, bottom }: Stroke,
  sources: readonly number[],
  wrong: Uint8Array,
  grown: Uint8Array | undefined,
  { colours, width, height }: Cells,
  reach: number,
): (cell: number) => number {
  const own = new Float32Array(COLOURS);
  const other = new Float32Array(COLOURS);
  for (const cell of sources) own[binOf(colours, cell)]! += 1;
  const isSource = new Set(sources);
  const room = Math.max(2 * reach, 24);
  for (let y = Math.max(0, top - room); y <= Math.min(height - 1, bottom + room); y++) {
    for (let x = Math.max(0, left - room); x <= Math.min(width - 1, right + room); x++) {
      const cell = y * width + x;
      if (isSource.has(cell)) continue;
      if ((grown?.[cell] ?? 0) > 127) own[binOf(colours, cell)]! += 0.25;
      else if (wrong[cell]! > 127) other[binOf(colours, cell)]! += 1;
    }
  }
  const [ours, theirs] = [smooth(own), smooth(other)];
  return cell => {
    const bin = binOf(colours, cell);
    const both = ours[bin]! + theirs[bin]!;
    return both < 1e-6 ? 0 : ours[bin]! / both;
  };
}

function smooth(bins: Float32Array): Float32Array {
  let from = bins;
  for (const step of [1, STEPS, STEPS * STEPS]) {
    const to = new Float32Array(COLOURS);
    for (let bin = 0; bin < COLOURS; bin++) {
      const level = Math.floor(bin / step) % STEPS;
      const before = level > 0 ? from[bin - step]! : from[bin]!;
      const after = level < STEPS - 1 ? from[bin + step]! : from[bin]!;
      to[bin] = 0.25 * before + 0.5 * from[bin]! + 0.25 * after;
    }
    from = to;
  }
  const sum = from.reduce((all, value) => all + value, 0);
  return sum === 0 ? from : from.map(value => value / sum);
}

function reachOf({ cells, left, top, right, bottom }: Stroke, rules: GrowRules): number {
  const extent = Math.max(right - left, bottom - top) + 1;
  const breadth = cells.length / extent;
  const { reachCells, reachBreadth, reachShare } = rules;
  return Math.round(reachCells + reachBreadth * breadth + reachShare * extent);
}

/** Least difference (of 255) of a cell that a stroke can cross. */
const PASSABLE_FROM = 13;

/** Weights 0 to 255 by distance (Dijkstra's, with a list for each distance: Dial 1969). */
function distances(
  sources: readonly number[],
  likeness: (cell: number) => number,
  wrong: Uint8Array,
  barred: Uint8Array,
  { colours, width, height }: Cells,
  reach: number,
  rules: GrowRules,
): Uint8Array {
  const most = FINE * reach;
  const best = new Int32Array(width * height).fill(most + 1);
  const fronts: number[][] = Array.from({ length: most + 1 }, () => []);
  const join = (cell: number, distance: number) => {
    if (distance >= best[cell]! || barred[cell] !== 0) return;
    best[cell] = distance;
    fronts[distance]!.push(cell);
  };
  const step = (from: number, to: number, distance: number) => {
    if (wrong[to]! < PASSABLE_FROM) return;
    const unlike = (rules.likeFrom - likeness(to)) / rules.likeSpan;
    const sure = wrong[to]! / 255;
    const cost =
      FINE * (1 + rules.sureWeight * sure * sure) +
      (most / rules.unlikeCells) * Math.min(1, Math.max(0, unlike)) +
      most * rules.edgeShare * edgeBetween(colours, from, to);
    join(to, Math.min(most + 1, Math.round(distance + cost)));
  };
  for (const cell of sources) join(cell, 0);
  for (let distance = 0; distance <= most; distance++) {
    const front = fronts[distance]!;
    for (let next = 0; next < front.length; next++) {
      const cell = front[next]!;
      if (best[cell] !== distance) continue;
      const x = cell % width;
      if (x > 0) step(cell, cell - 1, distance);
      if (x < width - 1) step(cell, cell + 1, distance);
      if (cell >= width) step(cell, cell - width, distance);
      if (cell + width < best.length) step(cell, cell + width, distance);
    }
  }
  const fade = Math.max(FINE, rules.fadeShare * most);
  return new Uint8Array(
    best.map(distance => 255 * Math.min(1, Math.max(0, most - distance) / fade)),
  );
}

/** Differences of colours (of 255) above noise, and of a full edge. */
const EDGE_FROM = 12;
const EDGE_FULL = 72;

/** 0 to 1, by the channel that differs most. */
function edgeBetween(colours: Uint8Array, one: number, other: number): number {
  let most = 0;
  for (let channel = 0; channel < 3; channel++) {
    const difference = colours[4 * one + channel]! - colours[4 * other + channel]!;
    most = Math.max(most, Math.abs(difference));
  }
  return Math.min(1, Math.max(0, most - EDGE_FROM) / (EDGE_FULL - EDGE_FROM));
}
