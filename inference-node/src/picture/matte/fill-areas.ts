/**
 * Decides areas that the looks at a picture leave open as a whole: an area inside of a body is the
 * body where a look is sure of it. Nothing becomes ground so: a half transparent area with the
 * ground around it may be glass or smoke. Pure.
 */
import type { Size } from '../size.ts';
import { resample } from './resample.ts';
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
};

/** Cells of the long side of the planes that areas are found on. */
const GRID_SIDE = 256;
/** Cells from the ground in which an area may be its edge, so that a look's own value counts. */
const EDGE = 4;

/**
 * Fills areas in place.
 * @param looks of the size of `merged`; the first decides.
 */
export function fillAreas(
  looks: readonly Look[],
  merged: Uint8Array,
  size: Size,
  rules = AREA_RULES,
): void {
  const grid = gridSize(size);
  const small = looks.map(({ alpha, decides }) => ({
    alpha: resample({ data: alpha, ...size }, grid),
    decides,
  }));
  const areas = findAreas(small, grid);
  const trusted = trustedLooks(small, areas, rules);
  const filled = areas.filter(area => isSubject(area, small, trusted, rules));
  if (filled.length === 0) return;
  const cells = filled.flatMap(area => area.cells);
  const raised = spread(cells, grid, size);
  const whole = spread(awayFromGround(cells, small, grid), grid, size);
  for (let i = 0; i < merged.length; i++) {
    const share = raised[i]!;
    if (share === 0) continue;
    let most = 0;
    for (const [index, look] of looks.entries()) {
      if (trusted[index] === true) most = Math.max(most, look.alpha[i]!);
    }
    merged[i] = Math.max(merged[i]!, whole[i]!, Math.round((share * most) / 255));
  }
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
export function trustedLooks(
  looks: readonly Look[],
  areas: readonly Area[],
  rules: AreaRules,
): boolean[] {
  const inner = areas.filter(({ enclosed }) => enclosed >= rules.enclosedMin);
  const inside = new Uint8Array(looks[0]?.alpha.length ?? 0);
  for (const { cells } of inner) for (const cell of cells) inside[cell] = 1;
  return looks.map(
    look => look.decides || precision(looks, look.alpha, inside) >= rules.precisionMin,
  );
}

export function isSubject(
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

/** 255 in the cells, falling to 0 around them. */
function spread(cells: readonly number[], grid: Size, size: Size): Uint8Array {
  const data = new Uint8Array(grid.width * grid.height);
  for (const cell of cells) data[cell] = 255;
  return resample({ data, ...grid }, size);
}
