import type { Size } from '@matting/proto/contract/finishing.ts';

/** Weight of all earlier pictures against a new one, which has 1. */
const WEIGHT_OF_PAST = 0.8;

/** A quotient of sums, so that a tiny picture, which is all overhead, is not a slow megapixel. */
class MegapixelRate {
  #ms = 0;
  #megapixels = 0;

  get msPerMegapixel(): number {
    return this.#megapixels === 0 ? 0 : this.#ms / this.#megapixels;
  }

  add(ms: number, { width, height }: Size): void {
    this.#ms = WEIGHT_OF_PAST * this.#ms + ms;
    this.#megapixels = WEIGHT_OF_PAST * this.#megapixels + (width * height) / 1e6;
  }
}

export class FormatRates<F> {
  readonly all = new MegapixelRate();
  readonly #byFormat = new Map<F, MegapixelRate>();

  add(format: F, ms: number, size: Size): void {
    this.all.add(ms, size);
    let rate = this.#byFormat.get(format);
    if (rate === undefined) {
      rate = new MegapixelRate();
      this.#byFormat.set(format, rate);
    }
    rate.add(ms, size);
  }

  byFormat(): ReadonlyMap<F, number> {
    return new Map([...this.#byFormat].map(([format, rate]) => [format, rate.msPerMegapixel]));
  }
}
