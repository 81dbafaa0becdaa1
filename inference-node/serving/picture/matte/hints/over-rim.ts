/**
 * Finds where strokes go a little over a rim: most of a stroke says what the matte shows, and a
 * thin part of it lies on the other side. The matte decides there, unless the colours are those of
 * the stroke's own side. Pure.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { type Cells, findGroups, findStrokes, likenessOf, wrongOf } from './grow-strokes.ts';

/** What the matte has of the other side, of 255: the surest first, then the rest of a soft rim. */
const OTHER_FROM = [230, 128, 64];
/** A deeper part is no mistake: it is this share of half the stroke's breadth. */
const DEPTH_SHARE = 0.5;
/** A colour is of the stroke's own side from this likeness on. */
const OWN_FROM = 0.9;
/** Values of cells over a rim. The matte decides in the first; the stroke does in the second. */
const [MATTE, STROKE] = [255, 1];

/**
 * Gives for each cell over a rim how far the matte decides there; 0: it is not over a rim.
 * @param marked 1 for each cell of the strokes
 */
export function findOverRim(marked: Uint8Array, kind: 'keep' | 'erase', cells: Cells): Uint8Array {
  const over = new Uint8Array(marked.length);
  const wrong = wrongOf(kind, cells);
  const depths = distancesFrom(cell => marked[cell] !== 1, cells);
  const strokes = findStrokes(marked, cells).map(stroke => {
    const breadth = stroke.cells.reduce((most, cell) => Math.max(most, depths[cell]!), 0);
    return { stroke, depthMax: DEPTH_SHARE * breadth };
  });
  const strokeOf = new Int32Array(marked.length).fill(-1);
  for (const [at, { stroke }] of strokes.entries()) {
    for (const cell of stroke.cells) strokeOf[cell] = at;
  }
  for (const from of strokes.length === 0 ? [] : OTHER_FROM) {
    const isOwn = (cell: number) => marked[cell] === 1 && wrong[cell]! < from;
    const isOther = (cell: number) =>
      marked[cell] === 1 && wrong[cell]! >= from && over[cell] === 0;
    const away = distancesFrom(isOwn, cells);
    // A stroke can have thousands of parts: its colours are counted once.
    const colours = new Map<number, (cell: number) => number>();
    for (const part of findGroups(isOther, cells)) {
      const index = strokeOf[part.cells[0]!]!;
      const of = strokes[index];
      if (of === undefined || part.cells.some(cell => away[cell]! > of.depthMax)) continue;
      const likeness =
        colours.get(index) ??
        likenessOf(of.stroke, of.stroke.cells.filter(isOwn), wrong, undefined, cells, of.depthMax);
      colours.set(index, likeness);
      for (const cell of part.cells) over[cell] = likeness(cell) < OWN_FROM ? MATTE : STROKE;
    }
  }
  return over;
}

/** Distance of each cell from the nearest that is in, in cells (chamfers: Borgefors 1986). */
function distancesFrom(isIn: (cell: number) => boolean, { width, height }: Size): Float32Array {
  // A frame of one cell that is never in saves all tests of borders.
  const stride = width + 2;
  const far = new Float32Array(stride * (height + 2)).fill(1e6);
  const framed = (cell: number) => cell + stride + 1 + 2 * Math.floor(cell / width);
  for (let cell = 0; cell < width * height; cell++) if (isIn(cell)) far[framed(cell)] = 0;
  const last = far.length - stride - 2;
  for (const step of [1, -1]) {
    for (let at = step === 1 ? stride + 1 : last; at > stride && at <= last; at += step) {
      const beside = Math.min(far[at - step]!, far[at - step * stride]!) + 1;
      const across = Math.min(far[at - step * (stride - 1)]!, far[at - step * (stride + 1)]!);
      far[at] = Math.min(far[at]!, beside, across + 4 / 3);
    }
  }
  return Float32Array.from({ length: width * height }, (_none, cell) => far[framed(cell)]!);
}
