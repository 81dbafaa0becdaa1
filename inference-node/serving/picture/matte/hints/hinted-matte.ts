/**
 * Applies hints before refinement, so that edges follow the picture's colours instead of the
 * strokes. For a hint that the matte contradicts, a model runs on crops; if it finds nothing,
 * colours decide. All steps use a grid of bounded size (docs/adr/0061).
 */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import type { RgbaPicture } from '../../rgba-picture.ts';
import { createModelInput } from '../model-input.ts';
import { type Plane, resample } from '../resample.ts';
import {
  type Crop,
  type Found,
  findIn,
  nextCrop,
  SHOWN_FROM,
  type Target,
  widen,
} from './crop-search.ts';
import { type Cells, growStrokes } from './grow-strokes.ts';
import { type HintStroke, readStrokes, targetOf } from './hint-strokes.ts';
import { keeps } from './seeds.ts';
import { findShown, meansAll, meantGroups, type ShownGroups, touchedBy } from './shown-groups.ts';

/** At 1500 pixels a thing 3 pixels wide still has a cell. */
const GRID_SIDE = 512;
/** Largest piece that is removed with an object, relative to it. */
const PIECE_SHARE_MAX = 0.05;
/** Bounds the runs for all hints of a picture. */
export const CROP_RUNS_MAX = 6;
/** An object with a larger share of the shown alpha is the whole subject. */
const OBJECT_SHARE_MAX = 0.85;

interface BestCrop {
  readonly matte: Plane;
  readonly crop: Crop;
  /** On the grid, 0 outside of the crop. */
  readonly onGrid: Uint8Array;
  readonly found: Found;
}

export class HintedMatte {
  readonly #matte: Uint8Array;
  readonly #size: Size;
  readonly #seeds: Uint8Array;
  readonly grid: Size;
  readonly #colours: Uint8Array;
  readonly #strokes: readonly HintStroke[];
  /** How far the matte overrules a hint in each cell. */
  readonly #over: Uint8Array;
  #alpha: Uint8Array;
  readonly #tried = new Set<HintStroke>();
  /** `keep` strokes whose object was found in a crop. */
  readonly #found = new Set<HintStroke>();
  #target: Target<HintStroke> | undefined;
  #last: (Crop & { readonly cutOff: number }) | undefined;
  #best: BestCrop | undefined;
  #runs = 0;

  /** @param matte one byte a pixel of `size`, as `seeds`; changed in place */
  constructor(matte: Uint8Array, seeds: Uint8Array, size: Size, picture: RgbaPicture) {
    this.#matte = matte;
    this.#seeds = seeds;
    this.#size = size;
    this.grid = gridOf(size);
    this.#colours = createModelInput(picture, this.grid, 4);
    this.#alpha = resample({ data: matte, ...size }, this.grid);
    const { strokes, over } = readStrokes(seeds, size, this.#cells);
    this.#strokes = strokes;
    this.#over = over;
  }

  get #cells(): Cells {
    return { colours: this.#colours, alpha: this.#alpha, ...this.grid };
  }

  /** Undefined: colours decide the other strokes. */
  nextCrop(): Box | undefined {
    while (this.#runs < CROP_RUNS_MAX) {
      this.#target ??= this.#nextTarget();
      if (this.#target === undefined) return undefined;
      const crop = nextCrop(this.#target, this.grid, this.#last, this.#best !== undefined);
      if (crop !== undefined) {
        this.#runs += 1;
        this.#last = { ...crop, cutOff: 0 };
        return crop.box;
      }
      this.#leave();
    }
    this.#leave();
    return undefined;
  }

  #nextTarget(): Target<HintStroke> | undefined {
    const cells = this.#cells;
    let found: ShownGroups | undefined;
    const shown = () => {
      found ??= findShown(cells);
      return found;
    };
    let next: Target<HintStroke> | undefined;
    for (const stroke of this.#strokes) {
      if (this.#tried.has(stroke) || this.#found.has(stroke)) continue;
      const target = targetOf(stroke, shown, cells);
      if (target !== undefined && target.cells.length > (next?.cells.length ?? 0)) next = target;
    }
    if (next !== undefined) this.#tried.add(next.stroke);
    return next;
  }

  /** @param matte the model's matte of the last crop, of any size */
  takeCrop(matte: Plane): void {
    const target = this.#target;
    const crop = this.#last;
    if (target === undefined || crop === undefined) throw new Error('a matte without a crop');
    const { left, top, width, height } = crop.box;
    const inCrop = resample(matte, { width, height });
    const onGrid = new Uint8Array(this.#alpha.length);
    for (let y = 0; y < height; y++) {
      const row = inCrop.subarray(y * width, (y + 1) * width);
      onGrid.set(row, (top + y) * this.grid.width + left);
    }
    const found = findIn(onGrid, crop, target, this.#cells);
    this.#last = { ...crop, cutOff: found.cutOff };
    if (!found.isFollowed) return;
    if (found.fit > (this.#best?.found.fit ?? 0)) {
      // A copy: the caller frees the matte, and a doubtful one waits for the next crop's.
      this.#best = { matte: { ...matte, data: new Uint8Array(matte.data) }, crop, onGrid, found };
    }
    if (!found.isDoubtful) this.#leave();
  }

  #leave(): void {
    const [target, best] = [this.#target, this.#best];
    this.#target = undefined;
    this.#last = undefined;
    this.#best = undefined;
    if (target === undefined || best === undefined) return;
    if (target.kind === 'erase') {
      this.#eraseObject(best, target);
      return;
    }
    this.#join(best, target);
    this.#readAlpha();
    this.#found.add(target.stroke);
  }

  /** An erasing stroke means an object within the shown subject, never the whole subject. */
  #eraseObject(best: BestCrop, target: Target<HintStroke>): void {
    const { onGrid, found } = best;
    const shown = findShown(this.#cells);
    const touched = touchedBy(target.cells, shown);
    let all = 0;
    for (const group of touched) all += shown.sums[group]!;
    let object = 0;
    for (const [cell, alpha] of this.#alpha.entries()) {
      if (found.mask[cell] === 1 && touched.has(shown.groupOf[cell]!))
        object += Math.min(onGrid[cell]!, alpha);
    }
    const isWhole = object > OBJECT_SHARE_MAX * all;
    if (isWhole && !meansAll(target.stroke, touched, shown)) return;
    this.#join(best, target);
    this.#readAlpha();
    this.#clearPieces(shown, object, touched);
  }

  #join(
    { matte, crop: { box }, onGrid, found: { mask } }: BestCrop,
    { kind }: Target<HintStroke>,
  ): void {
    const [x, y] = [this.#size.width / this.grid.width, this.#size.height / this.grid.height];
    const left = Math.round(box.left * x);
    const top = Math.round(box.top * y);
    const width = Math.min(this.#size.width, Math.round((box.left + box.width) * x)) - left;
    const height = Math.min(this.#size.height, Math.round((box.top + box.height) * y)) - top;
    const shown = resample(matte, { width, height });
    const nearOthers = kind === 'erase' ? this.#nearOthers(onGrid) : undefined;
    for (let row = 0; row < height; row++) {
      const cellRow = Math.floor((top + row) / y) * this.grid.width;
      const to = (top + row) * this.#size.width + left;
      for (let column = 0; column < width; column++) {
        const cell = cellRow + Math.floor((left + column) / x);
        if (mask[cell] === 0) continue;
        const alpha = shown[row * width + column]!;
        const before = this.#matte[to + column]!;
        // Away from other things nothing remains of a removed object.
        this.#matte[to + column] =
          nearOthers === undefined
            ? Math.max(before, alpha)
            : Math.max(0, before - alpha) * nearOthers[cell]!;
      }
    }
  }

  /** Marks cells near something that the crop's matte does not show. */
  #nearOthers(onGrid: Uint8Array): Uint8Array {
    const others = this.#alpha.map((alpha, cell) => (alpha - onGrid[cell]! >= SHOWN_FROM ? 1 : 0));
    return widen(others, this.grid);
  }

  /** Removes pieces such as ends of hair. @param before the groups with the object */
  #clearPieces(before: ShownGroups, objectSum: number, touched: ReadonlySet<number>): void {
    const { groupOf, sums } = findShown(this.#cells);
    const isPiece = (cell: number) =>
      groupOf[cell]! >= 0 &&
      sums[groupOf[cell]!]! <= PIECE_SHARE_MAX * objectSum &&
      touched.has(before.groupOf[cell]!);
    const pieces = this.#alpha.map((_alpha, cell) => (isPiece(cell) ? 255 : 0));
    if (!pieces.includes(255)) return;
    const less = resample({ data: pieces, ...this.grid }, this.#size);
    for (let i = 0; i < less.length; i++) {
      this.#matte[i] = Math.min(this.#matte[i]!, 255 - less[i]!);
    }
    this.#readAlpha();
  }

  #readAlpha(): void {
    this.#alpha = resample({ data: this.#matte, ...this.#size }, this.grid);
  }

  /** Keeps, then erases, so that erase wins. */
  apply(): void {
    // Uses the doubtful matte if an engine died before a better one came.
    this.#leave();
    const cells = this.#cells;
    // In a box everything that the crop's matte omits is background.
    for (const { isBox, cells: covered } of this.#found) {
      for (const cell of covered) {
        if (isBox || this.#alpha[cell]! < SHOWN_FROM) this.#over[cell] = 255;
      }
    }
    const over = this.#over;
    const open = this.#strokes.filter(stroke => !this.#found.has(stroke));
    const keep = open.filter(({ kind }) => kind === 'keep');
    const erase = open.filter(({ kind }) => kind === 'erase');
    const kept = growStrokes(keep, 'keep', cells, barred(erase, over));
    const lines = erase.filter(({ isBox }) => !isBox);
    const erased = eraseThings(lines, cells, keep, over);
    // The surer kind of hint wins a cell; erase wins a tie.
    for (let cell = 0; cell < kept.length; cell++) {
      if (kept[cell]! > erased[cell]!) erased[cell] = 0;
      else if (erased[cell]! > 0) kept[cell] = 0;
    }
    const more = resample({ data: kept, ...this.grid }, this.#size);
    const less = resample({ data: erased, ...this.grid }, this.#size);
    const rim = resample({ data: over, ...this.grid }, this.#size);
    const [matte, seeds] = [this.#matte, this.#seeds];
    for (let i = 0; i < matte.length; i++) {
      const most = 255 - less[i]!;
      const seed = seeds[i]!;
      let alpha = matte[i]!;
      if (more[i]! > alpha) alpha = more[i]!;
      if (alpha > most) alpha = most;
      if (keeps(seed)) alpha = Math.max(alpha, 255 - rim[i]!);
      else if (seed !== 0) alpha = Math.min(alpha, rim[i]!);
      matte[i] = alpha;
    }
  }
}

/** How much of each cell is erased: whole things that strokes mean, and other strokes' growth. */
function eraseThings(
  strokes: readonly HintStroke[],
  cells: Cells,
  keep: readonly HintStroke[],
  over: Uint8Array,
): Uint8Array {
  const whole = new Uint8Array(cells.alpha.length);
  if (strokes.length === 0) return whole;
  const shown = findShown(cells);
  const meant = new Set<number>();
  const growing = strokes.filter(stroke => {
    const groups = meantGroups(stroke, shown, cells);
    for (const group of groups ?? []) meant.add(group);
    return groups === undefined;
  });
  if (meant.size > 0) {
    const taken = withPieces(meant, shown, cells);
    // Includes the faint edge, but nothing of another thing.
    for (const [cell, mark] of widen(taken, cells).entries()) {
      const isOther = shown.groupOf[cell]! >= 0 && taken[cell] === 0;
      if (mark === 1 && !isOther) whole[cell] = 255;
    }
  }
  for (const { cells: kept } of keep) for (const cell of kept) whole[cell] = 0;
  const grown = growStrokes(growing, 'erase', cells, barred(keep, over));
  return whole.map((all, cell) => Math.max(all, grown[cell]!));
}

/** Adds small groups nearby, such as ends of hair. */
function withPieces(groups: ReadonlySet<number>, shown: ShownGroups, size: Size): Uint8Array {
  const { groupOf, sums } = shown;
  let sum = 0;
  for (const group of groups) sum += sums[group]!;
  const own = Uint8Array.from(groupOf, group => (groups.has(group) ? 1 : 0));
  const pieces = new Set<number>();
  for (const [cell, mark] of widen(own, size).entries()) {
    const group = groupOf[cell]!;
    if (mark === 1 && group >= 0 && sums[group]! <= PIECE_SHARE_MAX * sum) pieces.add(group);
  }
  return own.map((mark, cell) => (mark === 1 || pieces.has(groupOf[cell]!) ? 1 : 0));
}

function barred(opposite: readonly HintStroke[], over: Uint8Array): Uint8Array {
  const barred = over.slice();
  for (const { cells } of opposite) for (const cell of cells) barred[cell] = 1;
  return barred;
}

function gridOf({ width, height }: Size): Size {
  const scale = Math.min(1, GRID_SIDE / Math.max(width, height));
  const side = (pixels: number) => Math.max(1, Math.round(pixels * scale));
  return { width: side(width), height: side(height) };
}
