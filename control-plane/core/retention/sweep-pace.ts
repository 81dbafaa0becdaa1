/**
 * The sweeper rests as long as a page took, so it uses at most half of the process and the
 * database.
 */

/** Removing 10 rows takes SQLite about 2 ms. */
const PAGE_MAX = 200;
const PAGE_MIN = 10;
/** After a slower page, the size halves. */
const PAGE_MS = 16;
const REST_MS_MIN = 1;
const REST_MS_MAX = 1000;

export class SweepPace {
  #size = PAGE_MIN;

  get size(): number {
    return this.#size;
  }

  paged(tookMs: number): number {
    if (tookMs > PAGE_MS) this.#size = Math.max(PAGE_MIN, Math.floor(this.#size / 2));
    else if (tookMs < PAGE_MS / 2) this.#size = Math.min(PAGE_MAX, this.#size * 2);
    return Math.min(REST_MS_MAX, Math.max(REST_MS_MIN, tookMs));
  }
}
