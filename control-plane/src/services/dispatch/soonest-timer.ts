/** One timer for many wishes: it fires at the soonest of them, and once for all that are due. */

/** Wishes closer together than this are one. */
const WAIT_MS_MIN = 5;
/** Nobody needs it later: by then the poll has looked anyway. */
const WAIT_MS_MAX = 1000;

export class SoonestTimer {
  readonly #fire: () => void;
  #timer: NodeJS.Timeout | undefined;
  #atMs = Number.POSITIVE_INFINITY;

  constructor(fire: () => void) {
    this.#fire = fire;
  }

  /** @param ms undefined: no wish. */
  within(ms: number | undefined): void {
    if (ms === undefined || ms > WAIT_MS_MAX) return;
    const waitMs = Math.max(WAIT_MS_MIN, ms);
    const atMs = performance.now() + waitMs;
    if (atMs >= this.#atMs) return;
    clearTimeout(this.#timer);
    this.#atMs = atMs;
    this.#timer = setTimeout(() => {
      this.#atMs = Number.POSITIVE_INFINITY;
      this.#fire();
    }, waitMs);
  }

  clear(): void {
    clearTimeout(this.#timer);
    this.#atMs = Number.POSITIVE_INFINITY;
  }
}
