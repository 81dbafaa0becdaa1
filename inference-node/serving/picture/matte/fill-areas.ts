/**
 * Decides areas that the looks at a picture leave open as a whole: an area inside of a body is the
 * body where a look is sure of it. Nothing becomes ground so: a half transparent area with the
 * ground around it may be glass or smoke. Pure.
 */
import type { Size } from '#contract/finishing.ts';
import { type Plane, resample } from './resample.ts';
import { type Area, findAreas, type Look, neighbours } from './undecided-areas.ts';

export interface AreaRules {
  /** Smaller areas are left: trees are full of gaps. */
  readonly cellsMin: number;
  /** Share of what is around an area that must be the subject. */
  readonly enclosedMin: number;
  /** Quarter (0 to 255) from which a look is sure of the subject. */
  readonly sureFrom: number;
  /** Middle from which a look that decides does not call an area ground: real gaps have nearly 0. */
  readonly doubtFrom: number;
  /** Share of what an opinion calls the subject that must be it, for the opinion to count. */
  readonly precisionMin: number;
  /** The same of the looks that decide, for areas that an opinion is not sure of. */
  readonly ownSureFrom: number;
  readonly ownEnclosedMin: number;
  /**
   * Share of what is around an area that is not filled, from which it does not fall below the first
   * look: a mean with a look that is blind for it would be a hole. Half: an edge has less.
   */
  readonly keptEnclosedMin: number;
  /** The same for what the first look is nearly sure of. */
  readonly sureKeptEnclosedMin: number;
}

/** Judged by cross-validation: bench/quality-choose.ts, docs/performance.md. */
export const AREA_RULES: AreaRules = {
  cellsMin: 60,
  enclosedMin: 0.7,
  sureFrom: 230,
  doubtFrom: 6,
  precisionMin: 0.95,
  ownSureFrom: 215,
  ownEnclosedMin: 0.75,
  keptEnclosedMin: 0.5,
  sureKeptEnclosedMin: 0.3,
};

/** The first look is not nearly sure up to the one, and is from the other on (0 to 255). */
const NEARLY_SURE_ABOVE = 180;
const NEARLY_SURE = 230;
/** Cells of the long side of the planes that areas are found on. */
const GRID_SIDE = 256;
/** Cells from the ground in which an area may be its edge, so that a look's own value counts. */
const EDGE = 4;

/** A look of the size of the merged matte, and as the model gave it. */
export interface FullLook extends Look {
  readonly source: Plane;
}

/**
 * Fills areas in place.
 * @param looks of the size of `merged`; the first decides.
 */
export function fillAreas(
  looks: readonly FullLook[],
  merged: Uint8Array,
  size: Size,
  rules = AREA_RULES,
): void {
  const grid = gridSize(size);
  const small = looks.map(({ source, decides }) => ({ alpha: resample(source, grid), decides }));
  const areas = findAreas(small, grid);
  if (areas.length === 0) return;
  const { trusted, filled, kept, sureKept } = decideAreas(areas, small, rules);
  if (kept.length > 0) raise(merged, spread(cellsOf(kept), grid, size), looks.slice(0, 1));
  if (sureKept.length > 0) {
    const sure = looks.slice(0, 1).map(({ alpha }) => ({ alpha: nearlySure(alpha) }));
    raise(merged, spread(cellsOf(sureKept), grid, size), sure);
  }
  if (filled.length === 0) return;
  const cells = cellsOf(filled);
  const heard = looks.filter((_, index) => trusted[index]);
  raise(merged, spread(cells, grid, size), heard);
  const whole = spread(awayFromGround(cells, small, grid), grid, size);
  for (let i = whole.from; i < whole.to; i++) {
    if (whole.shares[i]! > merged[i]!) merged[i] = whole.shares[i]!;
  }
}

export interface AreaDecisions {
  /** For each look whether it counts. */
  readonly trusted: readonly boolean[];
  readonly filled: readonly Area[];
  /** Not filled, but they do not fall below the first look. */
  readonly kept: readonly Area[];
  /** The same where the first look is nearly sure. */
  readonly sureKept: readonly Area[];
}

/** @param looks that the areas were found in. */
export function decideAreas(
  areas: readonly Area[],
  looks: readonly Look[],
  rules: AreaRules,
): AreaDecisions {
  const trusted = trustedLooks(looks, areas, rules);
  const filled = areas.filter(area => isSubject(area, looks, trusted, rules));
  const left = areas.filter(area => !filled.includes(area));
  const isKept = ({ enclosed }: Area) => enclosed >= rules.keptEnclosedMin;
  const kept = left.filter(isKept);
  const sureKept = left.filter(area => area.enclosed >= rules.sureKeptEnclosedMin && !isKept(area));
  return { trusted, filled, kept, sureKept };
}

function cellsOf(areas: readonly Area[]): number[] {
  return areas.flatMap(({ cells }) => cells);
}

/** To the highest of the looks, by the share of each pixel. All are of one size. */
function raise(
  merged: Uint8Array,
  { shares, from, to }: Spread,
  looks: readonly Pick<Look, 'alpha'>[],
): void {
  for (const { alpha } of looks) {
    for (let i = from; i < to; i++) {
      const share = shares[i]!;
      if (share === 0 || alpha[i]! <= merged[i]!) continue;
      merged[i] = Math.max(merged[i]!, Math.round((share * alpha[i]!) / 255));
    }
  }
}

/** Alpha where it is nearly sure, falling to 0 where it is not. */
function nearlySure(alpha: Uint8Array): Uint8Array {
  const table = Uint8Array.from({ length: 256 }, (_, value) => {
    const share = (value - NEARLY_SURE_ABOVE) / (NEARLY_SURE - NEARLY_SURE_ABOVE);
    return Math.round(value * Math.min(1, Math.max(0, share)));
  });
  return alpha.map(value => table[value]!);
}

/** Of the planes that areas are found on. */
export function gridSize({ width, height }: Size): Size {
  const scale = Math.min(1, GRID_SIDE / Math.max(width, height));
  const cells = (pixels: number) => Math.max(1, Math.round(pixels * scale));
  return { width: cells(width), height: cells(height) };
}

/**
 * A look that decides is trusted. An opinion is where it calls hardly anything the subject that the
 * first look does not, but for areas inside of bodies: it may be wrong about what the subject is.
 */
function trustedLooks(looks: readonly Look[], areas: readonly Area[], rules: AreaRules): boolean[] {
  const inner = areas.filter(({ enclosed }) => enclosed >= rules.enclosedMin);
  const inside = new Uint8Array(looks[0]?.alpha.length ?? 0);
  for (const { cells } of inner) for (const cell of cells) inside[cell] = 1;
  return looks.map(
    look => look.decides || precision(looks, look.alpha, inside) >= rules.precisionMin,
  );
}

function isSubject(
  { cells, enclosed, quarters, middles }: Area,
  looks: readonly Look[],
  trusted: readonly boolean[],
  rules: AreaRules,
): boolean {
  if (cells.length < rules.cellsMin || enclosed < rules.enclosedMin) return false;
  const sure = looks.some(
    ({ decides }, index) =>
      trusted[index] === true && !decides && (quarters[index] ?? 0) >= rules.sureFrom,
  );
  const doubted = looks.some(
    ({ decides }, index) => decides && (middles[index] ?? 0) >= rules.doubtFrom,
  );
  if (sure && doubted) return true;
  const ownSure = looks.some(
    ({ decides }, index) => decides && (quarters[index] ?? 0) >= rules.ownSureFrom,
  );
  return ownSure && enclosed >= rules.ownEnclosedMin;
}

/** Share of what the opinion calls the subject that the first look does too, outside of areas. */
function precision(looks: readonly Look[], opinion: Uint8Array, inside: Uint8Array): number {
  let both = 0;
  let claimed = 0;
  for (const [cell, value] of opinion.entries()) {
    if (value < 128 || inside[cell] === 1) continue;
    claimed += 1;
    if ((looks[0]?.alpha[cell] ?? 0) >= 128) both += 1;
  }
  return claimed === 0 ? 0 : both / claimed;
}

/** The cells that lie at least EDGE from what every look calls ground. */
function awayFromGround(cells: readonly number[], looks: readonly Look[], grid: Size): number[] {
  const left = new Uint8Array(grid.width * grid.height);
  for (const cell of cells) left[cell] = 1;
  const isGround = (cell: number) => looks.every(({ alpha }) => (alpha[cell] ?? 0) < 128);
  let front: number[] = [];
  for (const cell of cells) {
    if (neighbours(cell, grid).some(to => left[to] === 0 && isGround(to))) front.push(cell);
  }
  for (let step = 0; step < EDGE; step++) {
    for (const cell of front) left[cell] = 0;
    const next = front.flatMap(cell => neighbours(cell, grid)).filter(to => left[to] === 1);
    front = [...new Set(next)];
  }
  return cells.filter(cell => left[cell] === 1);
}

/** Cells at a picture's size: areas are small, so what is outside of their rows is passed over. */
interface Spread {
  /** 255 in the cells, falling to 0 around them. */
  readonly shares: Uint8Array;
  /** Pixels before and from which on there is nothing. */
  readonly from: number;
  readonly to: number;
}

function spread(cells: readonly number[], grid: Size, size: Size): Spread {
  const data = new Uint8Array(grid.width * grid.height);
  let first = grid.height;
  let last = -1;
  for (const cell of cells) {
    data[cell] = 255;
    const row = Math.floor(cell / grid.width);
    first = Math.min(first, row);
    last = Math.max(last, row);
  }
  const rowAt = (row: number) => {
    const y = Math.round((row * size.height) / grid.height);
    return Math.min(size.height, Math.max(0, y)) * size.width;
  };
  return { shares: resample({ data, ...grid }, size), from: rowAt(first - 1), to: rowAt(last + 2) };
}
