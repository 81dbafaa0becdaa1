/**
 * Engines of one GPU open one after the other: TensorRT chooses its kernels by timing them while it
 * builds, and beside another engine's work it would time that too. CUDA's provider times nothing:
 * with cuDNN 9 its exhaustive search is a question to cuDNN's heuristics. As long as a line as
 * there are engines on the GPU.
 */
export class OpeningTurns {
  #holder: object | undefined;
  readonly #waiting: { readonly who: object; readonly begin: () => void }[] = [];

  /** `begin` is called once, now or when those before have left; never after `leave(who)`. */
  take(who: object, begin: () => void): void {
    this.leave(who);
    this.#waiting.push({ who, begin });
    this.#next();
  }

  /** Gives the turn on, or leaves the line. Does nothing for one that has neither. */
  leave(who: object): void {
    const index = this.#waiting.findIndex(waiting => waiting.who === who);
    if (index !== -1) this.#waiting.splice(index, 1);
    if (this.#holder !== who) return;
    this.#holder = undefined;
    this.#next();
  }

  #next(): void {
    if (this.#holder !== undefined) return;
    const next = this.#waiting.shift();
    if (next === undefined) return;
    this.#holder = next.who;
    next.begin();
  }
}
