/**
 * Finds the areas of which the looks at a picture do not agree what they are, or that they leave
 * half transparent, away from edges: pure arithmetic over small planes of cells. An edge, fur or
 * hair has the ground on one side; an area inside of a body has the body around it.
 */
import type { Size } from '#contract/finishing.ts';

/** What one model saw, one byte a cell. */
export interface Look {
  readonly alpha: Uint8Array;
  /** False: an opinion. */
  readonly decides: boolean;
}

export interface Area {
  /** Indices of cells. */
  readonly cells: readonly number[];
  /** Of the decided cells around it, the share that is the subject; 0 where there are none. */
  readonly enclosed: number;
  /** For each look the value (0 to 255) that a quarter of the cells are below. */
  readonly quarters: readonly number[];
  /** For each look the value that half of the cells are below. */
  readonly middles: readonly number[];
}

/** A cell between these (0 to 255) in a look that decides is undecided. */
const CLEAR_TO = 25;
const WHOLE_FROM = 230;
/** Looks that differ by more (0 to 255) do not agree. */
const DIFFER = 100;
/** Cells. What is not twice as wide is an edge. */
const REACH = 1;
/** Smaller areas are not described: fur and trees are full of them. */
const CELLS_MIN = 40;
/** Cells around an area in which decided ones are looked for: edges are undecided too. */
const RING = 4;

/** @param looks of one size; the first decides. */
export function findAreas(looks: readonly Look[], size: Size): Area[] {
  const undecided = markUndecided(looks);
  const labels = labelCores(undecided, size);
  for (let step = 0; step < REACH; step++) grow(labels, undecided, size);
  const cells = new Map<number, number[]>();
  for (const [cell, label] of labels.entries()) {
    if (label === 0) continue;
    const own = cells.get(label);
    if (own === undefined) cells.set(label, [cell]);
    else own.push(cell);
  }
  const border = borderCells(size);
  return [...cells.values()]
    .filter(own => own.length >= CELLS_MIN)
    .map(own => describe(own, border, undecided, looks, size));
}

function markUndecided(looks: readonly Look[]): Uint8Array {
  const [subject] = looks;
  if (subject === undefined) throw new Error('areas without a look');
  return subject.alpha.map((_, cell) => {
    let least = 255;
    let most = 0;
    let half = false;
    for (const { alpha, decides } of looks) {
      const value = alpha[cell] ?? 0;
      least = Math.min(least, value);
      most = Math.max(most, value);
      if (decides && value > CLEAR_TO && value < WHOLE_FROM) half = true;
    }
    return half || most - least > DIFFER ? 1 : 0;
  });
}

/** Labels from 1 on; 0 outside. A core is undecided in all its square of REACH. */
function labelCores(undecided: Uint8Array, size: Size): Int32Array {
  const core = erode(undecided, size);
  const labels = new Int32Array(core.length);
  const stack: number[] = [];
  let label = 0;
  for (let seed = 0; seed < core.length; seed++) {
    if (core[seed] !== 1 || labels[seed] !== 0) continue;
    label += 1;
    labels[seed] = label;
    stack.push(seed);
    for (let from = stack.pop(); from !== undefined; from = stack.pop()) {
      for (const to of neighbours(from, size)) {
        if (core[to] !== 1 || labels[to] !== 0) continue;
        labels[to] = label;
        stack.push(to);
      }
    }
  }
  return labels;
}

/** Outside of the picture a body goes on. */
function erode(marked: Uint8Array, { width, height }: Size): Uint8Array {
  return marked.map((_, cell) => {
    const x = cell % width;
    const y = Math.floor(cell / width);
    for (let row = Math.max(0, y - REACH); row <= Math.min(height - 1, y + REACH); row++) {
      const right = Math.min(width - 1, x + REACH);
      for (let column = Math.max(0, x - REACH); column <= right; column++) {
        if (marked[row * width + column] !== 1) return 0;
      }
    }
    return 1;
  });
}

export function neighbours(cell: number, { width, height }: Size): number[] {
  const x = cell % width;
  const found: number[] = [];
  if (x > 0) found.push(cell - 1);
  if (x < width - 1) found.push(cell + 1);
  if (cell >= width) found.push(cell - width);
  if (cell + width < width * height) found.push(cell + width);
  return found;
}

/** One step with corners, in place, into undecided cells that have no label. */
function grow(labels: Int32Array, undecided: Uint8Array, { width, height }: Size): void {
  for (const [cell, label] of labels.slice().entries()) {
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
  looks: readonly Look[],
  size: Size,
): Area {
  const area = new Uint8Array(undecided.length);
  for (const cell of cells) area[cell] = 1;
  const around = decidedAround(cells, area, undecided, size);
  let all = around.length;
  let subject = around.filter(cell => isSubject(looks, cell)).length;
  // What goes around a body has it on its inner side, and is not inside of it.
  if (border.filter(cell => area[cell] === 1).length > border.length / 2) subject = 0;
  for (const run of runsAtBorder(area, border)) {
    const ends = run.beyond.map(line => line.find(cell => undecided[cell] === 0));
    // A shoulder that is cut off by the border has the ground beside it: that says nothing.
    if (!ends.every(end => end !== undefined && isSubject(looks, end))) continue;
    all += run.length;
    subject += run.length;
  }
  const sorted = looks.map(({ alpha }) =>
    Uint8Array.from(cells, cell => alpha[cell] ?? 0).toSorted(),
  );
  const valueAt = (share: number) =>
    sorted.map(values => values[Math.floor(values.length * share)] ?? 0);
  return {
    cells,
    enclosed: all === 0 ? 0 : subject / all,
    quarters: valueAt(0.25),
    middles: valueAt(0.5),
  };
}

/** By the looks that decide. */
function isSubject(looks: readonly Look[], cell: number): boolean {
  const deciding = looks.filter(({ decides }) => decides);
  return deciding.reduce((sum, { alpha }) => sum + (alpha[cell] ?? 0), 0) > 127 * deciding.length;
}

/** The first decided cells outwards; what lies behind them is not around the area. */
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

interface BorderRun {
  readonly length: number;
  /** The cells of the border after each of its ends, nearest first. */
  readonly beyond: readonly (readonly number[])[];
}

/** Where an area meets the picture's border; a body that goes on there has itself on both sides. */
function runsAtBorder(area: Uint8Array, border: readonly number[]): BorderRun[] {
  const cellAt = (index: number) => border[(index + border.length) % border.length] ?? 0;
  const start = border.findIndex(
    (cell, index) => area[cell] !== 1 && area[cellAt(index + 1)] === 1,
  );
  const runs: BorderRun[] = [];
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

/** In order around the picture, each once. */
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
