/**
 * Decides open areas as a whole (docs/adr/0020): inside of a body they become the body if one matte
 * is sure of it. None becomes background: it may be glass or smoke.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { borrowCopy, bytesAt, kernels, VECTOR_BYTES, withMemory } from '../kernels/kernels.ts';
import { type Plane, resample, resampleAt } from './resample.ts';

/** Judged by cross-validation: bench/quality-choose.ts, bench/MEASUREMENTS.md. */
export const AREA_RULES = {
  /** Fewest cells of an area: trees are full of smaller gaps. */
  cellsMin: 60,
  /** Least share of subject around an area. */
  enclosedMin: 0.7,
  /** Lower quartile from which a matte is sure of the subject. */
  sureFrom: 230,
  /** Median from which a deciding matte does not show background: real gaps have nearly 0. */
  doubtFrom: 6,
  /** An opinion counts if this share of its shown cells is the subject. */
  precisionMin: 0.95,
  /** `sureFrom` and `enclosedMin` of deciding mattes, if no opinion is sure. */
  ownSureFrom: 215,
  ownEnclosedMin: 0.75,
  /**
   * Clothes in the background's colours touch much background: if an opinion is wholly sure of a
   * large area, a smaller share of enclosing subject suffices.
   */
  wideCellsMin: 300,
  wideSureFrom: 254,
  wideEnclosedMin: 0.45,
  /**
   * With this share of subject around it an open area keeps the first matte: a mean with a matte
   * that misses the area would leave a hole. An edge has less than half.
   */
  keptEnclosedMin: 0.5,
  /**
   * An area is background if its medians in the first matte and an opinion are at most these. No
   * further run adds to it.
   */
  groundTo: 50,
  opinionGroundTo: 5,
};
export type AreaRules = Readonly<typeof AREA_RULES>;

/** Also for haze (docs/adr/0059), with which no other number was tried. */
const GRID_SIDE = 256;
/** An area within this many cells of the background may be its edge. */
const EDGE = 4;

export interface MatteAt {
  readonly at: number;
  /** False: an opinion. */
  readonly decides: boolean;
  readonly source: Plane;
}

// Loops over cells count up: `entries()` makes two objects a cell, most of a worker's allocations
// in V8's heap.

/** Fills in place. The first of `mattes` decides. */
export function fillAreas(
  mattes: readonly MatteAt[],
  merged: number,
  size: Size,
  rules = AREA_RULES,
): void {
  const grid = gridSize(size);
  const small = mattes.map(({ source, decides }) => ({ alpha: resample(source, grid), decides }));
  const areas = findAreas(small, grid);
  if (areas.length === 0) return;
  const { trusted, filled, kept, ground } = decideAreas(areas, small, rules);
  const [first] = mattes;
  if (first === undefined) return;
  if (ground.length > 0) {
    spread(cellsOf(ground), grid, size, (at, ...range) => {
      kernels.lower(merged + at, first.at + at, ...range);
    });
  }
  const raise = (cells: readonly number[], to: readonly MatteAt[]) =>
    spread(cells, grid, size, (at, ...range) => {
      for (const matte of to) kernels.raise(merged + at, matte.at + at, ...range);
    });
  if (kept.length > 0) raise(cellsOf(kept), [first]);
  if (filled.length === 0) return;
  const cells = cellsOf(filled);
  raise(
    cells,
    mattes.filter((_, index) => trusted[index]),
  );
  spread(awayFromGround(cells, small, grid), grid, size, (at, shares, count) => {
    kernels.raiseTo(merged + at, shares, count);
  });
}

function decideAreas(areas: readonly Area[], mattes: readonly AreaMatte[], rules: AreaRules) {
  const trusted = trustedMattes(mattes, areas, rules);
  const filled = areas.filter(area => isSubject(area, mattes, trusted, rules));
  const left = areas.filter(area => !filled.includes(area));
  // In these areas the result is never below the first matte.
  const kept = left.filter(({ enclosed }) => enclosed >= rules.keptEnclosedMin);
  // In these areas the result is never above the first matte.
  const ground = left.filter(area => isGround(area, mattes, trusted, rules));
  return { trusted, filled, kept, ground };
}

function cellsOf(areas: readonly Area[]): number[] {
  return areas.flatMap(({ cells }) => cells);
}

export function gridSize({ width, height }: Size): Size {
  const scale = Math.min(1, GRID_SIDE / Math.max(width, height));
  const cells = (pixels: number) => Math.max(1, Math.round(pixels * scale));
  return { width: cells(width), height: cells(height) };
}

/**
 * An opinion is trusted if it shows little that the first matte does not, except inside of bodies.
 */
function trustedMattes(
  mattes: readonly AreaMatte[],
  areas: readonly Area[],
  rules: AreaRules,
): boolean[] {
  const inner = areas.filter(area => isInner(area, rules));
  const inside = new Uint8Array(mattes[0]?.alpha.length ?? 0);
  for (const { cells } of inner) for (const cell of cells) inside[cell] = 1;
  return mattes.map(
    matte => matte.decides || precision(mattes, matte.alpha, inside) >= rules.precisionMin,
  );
}

function isInner({ cells, enclosed }: Area, rules: AreaRules): boolean {
  const isWide = cells.length >= rules.wideCellsMin;
  return enclosed >= (isWide ? rules.wideEnclosedMin : rules.enclosedMin);
}

function isSubject(
  area: Area,
  mattes: readonly AreaMatte[],
  trusted: readonly boolean[],
  rules: AreaRules,
): boolean {
  const { cells, enclosed, quarters, middles } = area;
  if (cells.length < rules.cellsMin || !isInner(area, rules)) return false;
  const sureFrom = enclosed < rules.enclosedMin ? rules.wideSureFrom : rules.sureFrom;
  const sure = mattes.some(
    ({ decides }, index) =>
      trusted[index] === true && !decides && (quarters[index] ?? 0) >= sureFrom,
  );
  const doubted = mattes.some(
    ({ decides }, index) => decides && (middles[index] ?? 0) >= rules.doubtFrom,
  );
  if (sure && doubted) return true;
  const ownSure = mattes.some(
    ({ decides }, index) => decides && (quarters[index] ?? 0) >= rules.ownSureFrom,
  );
  return ownSure && enclosed >= rules.ownEnclosedMin;
}

function isGround(
  { cells, middles }: Area,
  mattes: readonly AreaMatte[],
  trusted: readonly boolean[],
  rules: AreaRules,
): boolean {
  if (cells.length < rules.cellsMin || (middles[0] ?? 255) > rules.groundTo) return false;
  return mattes.some(
    ({ decides }, index) =>
      trusted[index] === true && !decides && (middles[index] ?? 255) <= rules.opinionGroundTo,
  );
}

/** Share of the opinion's shown cells, outside of areas, that the first matte shows too. */
function precision(mattes: readonly AreaMatte[], opinion: Uint8Array, inside: Uint8Array): number {
  let both = 0;
  let claimed = 0;
  for (let cell = 0; cell < opinion.length; cell++) {
    if (opinion[cell]! < 128 || inside[cell] === 1) continue;
    claimed += 1;
    if ((mattes[0]?.alpha[cell] ?? 0) >= 128) both += 1;
  }
  return claimed === 0 ? 0 : both / claimed;
}

function awayFromGround(
  cells: readonly number[],
  mattes: readonly AreaMatte[],
  grid: Size,
): number[] {
  const left = new Uint8Array(grid.width * grid.height);
  for (const cell of cells) left[cell] = 1;
  const isGround = (cell: number) => mattes.every(({ alpha }) => (alpha[cell] ?? 0) < 128);
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

/**
 * Resamples the cells to fractions of 255 at `size`. `use` gets their rows: offset of the first
 * pixel, address of its fraction, number of pixels.
 */
function spread(
  cells: readonly number[],
  grid: Size,
  size: Size,
  use: (from: number, shares: number, count: number) => void,
): void {
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
    return Math.min(size.height, Math.max(0, y));
  };
  const [from, to] = [rowAt(first - 1), rowAt(last + 2)];
  if (to <= from) return;
  withMemory(borrow => {
    const shares = borrow((to - from) * size.width);
    const plane = { at: borrowCopy(borrow, data), ...grid };
    resampleAt(plane, size, shares, from, to);
    const count = (to - from) * size.width;
    bytesAt(shares + count, VECTOR_BYTES).fill(0);
    use(from * size.width, shares, count);
  });
}

/*
 * Areas on which the mattes disagree, or that they show half transparent. An edge, fur or hair has
 * background on one side; an area inside of a body has the body around it.
 */

interface AreaMatte {
  readonly alpha: Uint8Array;
  readonly decides: boolean;
}

interface Area {
  readonly cells: readonly number[];
  /** Share of subject among the decided cells around the area. */
  readonly enclosed: number;
  /** Lower quartiles of the mattes (0 to 255). */
  readonly quarters: readonly number[];
  /** Their medians. */
  readonly middles: readonly number[];
}

/** Between these a cell of a deciding matte is undecided. */
const CLEAR_TO = 25;
const WHOLE_FROM = 230;
/** Mattes that differ by more disagree. */
const DIFFER = 100;
/** In cells. A strip less than twice as wide is an edge. */
const REACH = 1;
const CELLS_MIN = 40;
/** Steps from an area in the search for decided cells: edges are undecided, too. */
const RING = 4;

export function findAreas(mattes: readonly AreaMatte[], size: Size): Area[] {
  const undecided = markUndecided(mattes);
  const labels = labelCores(undecided, size);
  for (let step = 0; step < REACH; step++) grow(labels, undecided, size);
  const areas: number[][] = [];
  for (let cell = 0; cell < labels.length; cell++) {
    const label = labels[cell]!;
    if (label === 0) continue;
    while (areas.length < label) areas.push([]);
    areas[label - 1]!.push(cell);
  }
  const border = borderCells(size);
  return areas
    .filter(own => own.length >= CELLS_MIN)
    .map(own => describe(own, border, undecided, mattes, size));
}

function markUndecided(mattes: readonly AreaMatte[]): Uint8Array {
  const [subject] = mattes;
  if (subject === undefined) throw new Error('areas without a matte');
  const least = Uint8Array.from(subject.alpha);
  const most = Uint8Array.from(subject.alpha);
  const undecided = new Uint8Array(least.length);
  for (const { alpha, decides } of mattes) {
    for (let cell = 0; cell < undecided.length; cell++) {
      const value = alpha[cell]!;
      if (value < least[cell]!) least[cell] = value;
      if (value > most[cell]!) most[cell] = value;
      if (decides && value > CLEAR_TO && value < WHOLE_FROM) undecided[cell] = 1;
    }
  }
  for (let cell = 0; cell < undecided.length; cell++) {
    if (most[cell]! - least[cell]! > DIFFER) undecided[cell] = 1;
  }
  return undecided;
}

/** Labels from 1 on; 0 outside. All cells within REACH of a core are undecided. */
function labelCores(undecided: Uint8Array, size: Size): Int32Array {
  const core = erode(undecided, size);
  const { width } = size;
  const labels = new Int32Array(core.length);
  const stack: number[] = [];
  let label = 0;
  for (let seed = 0; seed < core.length; seed++) {
    if (core[seed] !== 1 || labels[seed] !== 0) continue;
    label += 1;
    labels[seed] = label;
    stack.push(seed);
    const visit = (cell: number) => {
      if (core[cell] !== 1 || labels[cell] !== 0) return;
      labels[cell] = label;
      stack.push(cell);
    };
    for (let from = stack.pop(); from !== undefined; from = stack.pop()) {
      const x = from % width;
      if (x > 0) visit(from - 1);
      if (x < width - 1) visit(from + 1);
      if (from >= width) visit(from - width);
      if (from + width < core.length) visit(from + width);
    }
  }
  return labels;
}

/** Cells beyond the border count as marked, since a body continues there. */
function erode(marked: Uint8Array, { width, height }: Size): Uint8Array {
  return withMemory(borrow => {
    const open = borrowCopy(borrow, inverted(marked));
    const [scratch, near] = [borrow(marked.length), borrow(marked.length)];
    kernels.widen(open, width, height, REACH, scratch, near);
    return inverted(bytesAt(near, marked.length));
  });
}

function inverted(marks: Uint8Array): Uint8Array {
  const others = new Uint8Array(marks.length);
  for (let cell = 0; cell < marks.length; cell++) others[cell] = 1 - marks[cell]!;
  return others;
}

function neighbours(cell: number, { width, height }: Size): number[] {
  const x = cell % width;
  const found: number[] = [];
  if (x > 0) found.push(cell - 1);
  if (x < width - 1) found.push(cell + 1);
  if (cell >= width) found.push(cell - width);
  if (cell + width < width * height) found.push(cell + width);
  return found;
}

function grow(labels: Int32Array, undecided: Uint8Array, { width, height }: Size): void {
  const before = labels.slice();
  for (let cell = 0; cell < before.length; cell++) {
    const label = before[cell]!;
    if (label === 0) continue;
    const x = cell % width;
    const y = Math.floor(cell / width);
    for (let row = Math.max(0, y - 1); row <= Math.min(height - 1, y + 1); row++) {
      for (let column = Math.max(0, x - 1); column <= Math.min(width - 1, x + 1); column++) {
        const to = row * width + column;
        if (labels[to] === 0 && undecided[to] === 1) labels[to] = label;
      }
    }
  }
}

function describe(
  cells: readonly number[],
  border: readonly number[],
  undecided: Uint8Array,
  mattes: readonly AreaMatte[],
  size: Size,
): Area {
  const area = new Uint8Array(undecided.length);
  for (const cell of cells) area[cell] = 1;
  const around = decidedAround(cells, area, undecided, size);
  let all = around.length;
  let subject = around.filter(cell => holdsSubject(mattes, cell)).length;
  // An area that takes most of the border lies around a body, not inside of it.
  if (border.filter(cell => area[cell] === 1).length > border.length / 2) subject = 0;
  for (const run of runsAtBorder(area, border)) {
    const ends = run.beyond.map(line => line.find(cell => undecided[cell] === 0));
    // A shoulder cut off by the border has background on one side, which decides nothing.
    if (!ends.every(end => end !== undefined && holdsSubject(mattes, end))) continue;
    all += run.length;
    subject += run.length;
  }
  const sorted = mattes.map(({ alpha }) => {
    const values = new Uint8Array(cells.length);
    for (let at = 0; at < cells.length; at++) values[at] = alpha[cells[at]!]!;
    return values.sort();
  });
  const valueAt = (share: number) =>
    sorted.map(values => values[Math.floor(values.length * share)] ?? 0);
  return {
    cells,
    enclosed: all === 0 ? 0 : subject / all,
    quarters: valueAt(0.25),
    middles: valueAt(0.5),
  };
}

function holdsSubject(mattes: readonly AreaMatte[], cell: number): boolean {
  let [sum, deciding] = [0, 0];
  for (const { alpha, decides } of mattes) {
    if (!decides) continue;
    sum += alpha[cell]!;
    deciding += 1;
  }
  return sum > 127 * deciding;
}

function decidedAround(
  cells: readonly number[],
  area: Uint8Array,
  undecided: Uint8Array,
  size: Size,
): number[] {
  const seen = area.slice();
  const decided: number[] = [];
  let front: readonly number[] = cells;
  for (let step = 0; step < RING; step++) {
    const next: number[] = [];
    for (const cell of front) {
      for (const to of neighbours(cell, size)) {
        if (seen[to] === 1) continue;
        seen[to] = 1;
        (undecided[to] === 1 ? next : decided).push(to);
      }
    }
    front = next;
  }
  return decided;
}

/**
 * Runs of the picture's border that an area meets; a body that continues there lies on both sides.
 */
function runsAtBorder(area: Uint8Array, border: readonly number[]) {
  const cellAt = (index: number) => border[(index + border.length) % border.length] ?? 0;
  const start = border.findIndex(
    (cell, index) => area[cell] !== 1 && area[cellAt(index + 1)] === 1,
  );
  const runs: { length: number; beyond: number[][] }[] = [];
  if (start < 0) return runs;
  for (let step = 1; step <= border.length; step++) {
    if (area[cellAt(start + step)] !== 1) continue;
    let length = 1;
    while (area[cellAt(start + step + length)] === 1) length += 1;
    const steps = Array.from({ length: RING }, (_, index) => index);
    runs.push({
      length,
      beyond: [
        steps.map(index => cellAt(start + step - 1 - index)),
        steps.map(index => cellAt(start + step + length + index)),
      ],
    });
    step += length;
  }
  return runs;
}

function borderCells({ width, height }: Size): number[] {
  const across = Array.from({ length: width }, (_, x) => x);
  const down = Array.from({ length: height }, (_, y) => y * width);
  return [
    ...new Set([
      ...across,
      ...down.map(cell => cell + width - 1),
      ...across.toReversed().map(x => (height - 1) * width + x),
      ...down.toReversed(),
    ]),
  ];
}
