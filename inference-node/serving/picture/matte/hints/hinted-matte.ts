/**
 * Follows hints before the matte is refined, so that edges follow the picture's colours and not the
 * strokes. For a hint that the matte does not follow, a model looks at crops of the picture; where
 * it finds nothing, colours decide. Pure arithmetic, on a grid of a bounded size. docs/adr/0061.
 */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import type { RgbaPicture } from '../../rgba-picture.ts';
import { createGuide } from '../model-input.ts';
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

/** Cells of the long side: a thing of 3 of 1500 pixels still has one. */
const GRID_SIDE = 512;
/** Pieces that an object leaves have at most this share of it. */
const PIECE_SHARE_MAX = 0.05;
/** Runs of a model for the hints of a picture, in all. */
export const CROP_RUNS_MAX = 6;
/** With more than this share of what the matte shows there, an object is all of it. */
const OBJECT_SHARE_MAX = 0.85;

/** A look that shows what the target means. */
interface BestLook {
  readonly look: Plane;
  readonly crop: Crop;
  /** The look on the grid, 0 outside of the crop. */
  readonly onGrid: Uint8Array;
  readonly found: Found;
}

export class HintedMatte {
  readonly #matte: Uint8Array;
  readonly #size: Size;
  readonly #seeds: Uint8Array;
  /** Crops are in its cells. */
  readonly grid: Size;
  readonly #colours: Uint8Array;
  readonly #strokes: readonly HintStroke[];
  /** By cell: how far the matte decides there although a hint covers it. */
  readonly #over: Uint8Array;
  #alpha: Uint8Array;
  /** Strokes that the model has looked for. */
  readonly #tried = new Set<HintStroke>();
  /** Strokes to keep whose object a look has found: it says what of them is background. */
  readonly #found = new Set<HintStroke>();
  #target: Target<HintStroke> | undefined;
  #last: (Crop & { readonly cutOff: number }) | undefined;
  #best: BestLook | undefined;
  #runs = 0;

  /**
   * @param matte one byte a pixel of `size`, as `seeds`. It is changed in place
   * @param picture that both show
   */
  constructor(matte: Uint8Array, seeds: Uint8Array, size: Size, picture: RgbaPicture) {
    this.#matte = matte;
    this.#seeds = seeds;
    this.#size = size;
    this.grid = gridOf(size);
    this.#colours = createGuide(picture, this.grid);
    this.#alpha = resample({ data: matte, ...size }, this.grid);
    const { strokes, over } = readStrokes(seeds, size, this.#cells);
    this.#strokes = strokes;
    this.#over = over;
  }

  get #cells(): Cells {
    return { colours: this.#colours, alpha: this.#alpha, ...this.grid };
  }

  /** Gives the next crop for a look of the model. Undefined: colours decide what is left. */
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

  /** @param look the model's matte of the last crop, of any size */
  takeLook(look: Plane): void {
    const target = this.#target;
    const crop = this.#last;
    if (target === undefined || crop === undefined) throw new Error('a look without a crop');
    const { left, top, width, height } = crop.box;
    const inCrop = resample(look, { width, height });
    const onGrid = new Uint8Array(this.#alpha.length);
    for (let y = 0; y < height; y++) {
      const row = inCrop.subarray(y * width, (y + 1) * width);
      onGrid.set(row, (top + y) * this.grid.width + left);
    }
    const found = findIn(onGrid, crop, target, this.#cells);
    this.#last = { ...crop, cutOff: found.cutOff };
    if (!found.isFollowed) return;
    if (found.fit > (this.#best?.found.fit ?? 0)) {
      // A copy: the caller frees its look, and a doubtful one waits for the next.
      this.#best = { look: { ...look, data: new Uint8Array(look.data) }, crop, onGrid, found };
    }
    if (!found.isDoubtful) this.#leave();
  }

  /** The target's best look counts, if there is one. */
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

  /** An erasing stroke means an object in what the matte shows, and never the whole subject. */
  #eraseObject(best: BestLook, target: Target<HintStroke>): void {
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

  /** Adds what the look shows to the matte, or takes it away. */
  #join(
    { look, crop: { box }, onGrid, found: { mask } }: BestLook,
    { kind }: Target<HintStroke>,
  ): void {
    const [x, y] = [this.#size.width / this.grid.width, this.#size.height / this.grid.height];
    const left = Math.round(box.left * x);
    const top = Math.round(box.top * y);
    const width = Math.min(this.#size.width, Math.round((box.left + box.width) * x)) - left;
    const height = Math.min(this.#size.height, Math.round((box.top + box.height) * y)) - top;
    const shown = resample(look, { width, height });
    const nearOthers = kind === 'erase' ? this.#nearOthers(onGrid) : undefined;
    for (let row = 0; row < height; row++) {
      const cellRow = Math.floor((top + row) / y) * this.grid.width;
      const to = (top + row) * this.#size.width + left;
      for (let column = 0; column < width; column++) {
        const cell = cellRow + Math.floor((left + column) / x);
        if (mask[cell] === 0) continue;
        const alpha = shown[row * width + column]!;
        const before = this.#matte[to + column]!;
        // Where nothing else is near, nothing is left of an object that goes.
        this.#matte[to + column] =
          nearOthers === undefined
            ? Math.max(before, alpha)
            : Math.max(0, before - alpha) * nearOthers[cell]!;
      }
    }
  }

  /** 1 for each cell beside what the matte shows and the look does not. */
  #nearOthers(onGrid: Uint8Array): Uint8Array {
    const others = this.#alpha.map((alpha, cell) => (alpha - onGrid[cell]! >= SHOWN_FROM ? 1 : 0));
    return widen(others, this.grid);
  }

  /** Pieces that an object leaves, such as ends of hair. @param before the groups with the object */
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

  /** Changes the matte: keeps, then erases, so that erase wins. */
  apply(): void {
    // An engine may have been lost while a doubtful look waited for a better one.
    this.#leave();
    const cells = this.#cells;
    // The look has decided in them: what of a box it does not show is background.
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
    // A cell that both win is the surer one's; erase wins a tie.
    for (let cell = 0; cell < kept.length; cell++) {
      if (kept[cell]! > erased[cell]!) erased[cell] = 0;
      else if (erased[cell]! > 0) kept[cell] = 0;
    }
    const more = resample({ data: kept, ...this.grid }, this.#size);
    const less = resample({ data: erased, ...this.grid }, this.#size);
    const rim = resample({ data: over, ...this.grid }, this.#size);
    const [matte, seeds] = [this.#matte, this.#seeds];
    // All planes have as many elements as `matte`.
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

/** Gives how much of each cell leaves: whole things that strokes mean, and what grows from others. */
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
    // With its faint edge, but nothing of another thing.
    for (const [cell, mark] of widen(taken, cells).entries()) {
      const isOther = shown.groupOf[cell]! >= 0 && taken[cell] === 0;
      if (mark === 1 && !isOther) whole[cell] = 255;
    }
  }
  for (const { cells: kept } of keep) for (const cell of kept) whole[cell] = 0;
  const grown = growStrokes(growing, 'erase', cells, barred(keep, over));
  return whole.map((all, cell) => Math.max(all, grown[cell]!));
}

/** Marks the cells of groups, and of small ones beside them: ends of hair. */
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

/** Nothing grows over strokes that say the opposite, from over a rim, or back over it. */
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
