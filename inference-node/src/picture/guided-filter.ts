/**
 * The guided filter with a colour guide (He, Sun and Tang, "Guided Image Filtering", TPAMI 2013,
 * section 3.4): in every window alpha is the linear function of the picture's colour that fits best,
 * a pixel's answer is the mean of the functions of all windows it lies in. Computed patch by patch,
 * in the memory of one: only the few patches with an edge in them are ever looked at.
 */
import { boxMean } from './box-mean.ts';
import type { Size } from './picture-pool.ts';

export interface Region extends Size {
  readonly left: number;
  readonly top: number;
}

/** What the filter reads: one size. */
export interface Guided extends Size {
  /** RGB bytes, interleaved. */
  readonly guide: Uint8Array;
  /** One byte a pixel. */
  readonly alpha: Uint8Array;
}

/** alpha = red * R + green * G + blue * B + offset, colours and alpha in [0, 1], in each pixel. */
export interface LinearModels {
  readonly region: Region;
  /** Of `region` and row by row, as the others. */
  readonly red: Float32Array;
  readonly green: Float32Array;
  readonly blue: Float32Array;
  readonly offset: Float32Array;
}

/** Of colours in [0, 1]: variance below it is noise. 1e-5 and 1e-3 were a little worse. */
const EPSILON = 1e-4;

/** Bytes in [0, 1]: four divisions a pixel less. */
const UNITS = Float32Array.from({ length: 256 }, (_, byte) => byte / 255);

/** Sums of products that the fit needs: R G B a, Ra Ga Ba, RR RG RB GG GB BB. */
const PLANES = 13;

/** The memory of one patch, for regions up to `side` a side. Reused from patch to patch. */
export class GuidedFilter {
  readonly #rows: Float32Array;
  readonly #sums: Float64Array;
  readonly #product: Float32Array;
  readonly #inputs: readonly Float32Array[];
  readonly #means: readonly Float32Array[];
  readonly #models: readonly Float32Array[];
  readonly #radius: number;

  /** @param radius of a window, pixels. */
  constructor(side: number, radius: number) {
    this.#radius = radius;
    // What a pixel's answer depends on lies up to two radii away.
    const patch = side + 4 * radius;
    const plane = () => new Float32Array(patch * patch);
    this.#rows = plane();
    this.#sums = new Float64Array(patch);
    this.#product = plane();
    this.#inputs = Array.from({ length: 4 }, plane);
    this.#means = Array.from({ length: PLANES }, plane);
    this.#models = Array.from({ length: 4 }, plane);
  }

  /** The result lives until the next call. */
  fit(source: Guided, wanted: Region): LinearModels {
    const seen = expand(wanted, 2 * this.#radius, source);
    // An answer is the mean of the functions of a window: further away none is needed.
    const region = expand(wanted, this.#radius, source);
    this.#load(source, seen);
    this.#average(seen, within(region, seen));
    this.#solve(region.width * region.height);
    const [red, green, blue, offset] = this.#means;
    const whole = within(region, region);
    for (const [index, model] of this.#models.entries()) {
      this.#boxMean(model, this.#means[index], region, whole);
    }
    return { region, red, green, blue, offset };
  }

  #load({ guide, alpha, width }: Guided, { left, top, ...size }: Region): void {
    const [red, green, blue, opacity] = this.#inputs;
    for (let y = 0, to = 0; y < size.height; y++) {
      let from = (top + y) * width + left;
      for (let x = 0; x < size.width; x++, from++, to++) {
        red[to] = UNITS[guide[3 * from]];
        green[to] = UNITS[guide[3 * from + 1]];
        blue[to] = UNITS[guide[3 * from + 2]];
        opacity[to] = UNITS[alpha[from]];
      }
    }
  }

  #average(size: Size, part: Region): void {
    const [red, green, blue, alpha] = this.#inputs;
    const product = this.#product;
    const pixels = size.width * size.height;
    const pairs = [
      [red, alpha],
      [green, alpha],
      [blue, alpha],
      [red, red],
      [red, green],
      [red, blue],
      [green, green],
      [green, blue],
      [blue, blue],
    ];
    for (const [index, input] of this.#inputs.entries()) {
      this.#boxMean(input, this.#means[index], size, part);
    }
    for (const [index, [one, other]] of pairs.entries()) {
      for (let i = 0; i < pixels; i++) product[i] = one[i] * other[i];
      this.#boxMean(product, this.#means[index + this.#inputs.length], size, part);
    }
  }

  #boxMean(from: Float32Array, out: Float32Array, size: Size, part: Region): void {
    boxMean(from, out, size, part, this.#radius, this.#rows, this.#sums);
  }

  /** (covariance of the colours + EPSILON) times (red, green, blue) = their covariance with alpha. */
  #solve(pixels: number): void {
    const [mr, mg, mb, ma, mra, mga, mba, mrr, mrg, mrb, mgg, mgb, mbb] = this.#means;
    const [red, green, blue, offset] = this.#models;
    for (let i = 0; i < pixels; i++) {
      const r = mr[i];
      const g = mg[i];
      const b = mb[i];
      const a = ma[i];
      const rr = Math.max(0, mrr[i] - r * r) + EPSILON;
      const gg = Math.max(0, mgg[i] - g * g) + EPSILON;
      const bb = Math.max(0, mbb[i] - b * b) + EPSILON;
      const rg = mrg[i] - r * g;
      const rb = mrb[i] - r * b;
      const gb = mgb[i] - g * b;
      const ra = mra[i] - r * a;
      const ga = mga[i] - g * a;
      const ba = mba[i] - b * a;
      // Cofactors of the symmetric matrix.
      const c0 = gg * bb - gb * gb;
      const c1 = rb * gb - rg * bb;
      const c2 = rg * gb - rb * gg;
      const scale = 1 / (rr * c0 + rg * c1 + rb * c2);
      const wr = (c0 * ra + c1 * ga + c2 * ba) * scale;
      const wg = (c1 * ra + (rr * bb - rb * rb) * ga + (rg * rb - rr * gb) * ba) * scale;
      const wb = (c2 * ra + (rg * rb - rr * gb) * ga + (rr * gg - rg * rg) * ba) * scale;
      red[i] = wr;
      green[i] = wg;
      blue[i] = wb;
      offset[i] = a - wr * r - wg * g - wb * b;
    }
  }
}

/** `inner` as a part of `outer`. */
function within({ left, top, ...size }: Region, outer: Region): Region {
  return { left: left - outer.left, top: top - outer.top, ...size };
}

/** `region` with `by` more on each side, inside `bounds`. */
export function expand({ left, top, width, height }: Region, by: number, bounds: Size): Region {
  const x = Math.max(0, left - by);
  const y = Math.max(0, top - by);
  return {
    left: x,
    top: y,
    width: Math.min(bounds.width, left + width + by) - x,
    height: Math.min(bounds.height, top + height + by) - y,
  };
}
