/**
 * Whether large images for the own plan, or engines of other models, have the memory next. Each
 * load would otherwise serve one image, or none.
 *
 *   state     entered                                  left
 *   nobody's  at first                                 an image is too large -> images'
 *   images'   `take`: engines give way, and none       the image enters -> nobody's
 *             loads into what the image needs          TURN_MS -> nobody's, or engines'
 *   engines'  `refuse`: an engine waited meanwhile     TURN_MS later -> nobody's
 */

/**
 * An image that had engines ended goes before loads for this time; then loads that it kept waiting.
 */
const TURN_MS = 10_000;

export class LargeImageTurn {
  /** The size of the largest image that waits. */
  #megapixels = 0;
  #endsAtMs = Number.NEGATIVE_INFINITY;
  #nextAtMs = Number.NEGATIVE_INFINITY;

  get isOpen(): boolean {
    return performance.now() < this.#endsAtMs;
  }

  /** Gives the megapixels that engines must leave to images. */
  get megapixelsKept(): number {
    return this.isOpen ? this.#megapixels : 0;
  }

  /** An engine was refused for the images' turn: the next one is the engines'. */
  refuse(): void {
    this.#nextAtMs = this.#endsAtMs + TURN_MS;
  }

  /**
   * Takes the turn for an image that is too large beside engines. False: the turn is the engines'.
   */
  take(megapixels: number): boolean {
    const nowMs = performance.now();
    if (nowMs < this.#endsAtMs) {
      this.#megapixels = Math.max(megapixels, this.#megapixels);
      return true;
    }
    if (nowMs < this.#nextAtMs) return false;
    this.#megapixels = megapixels;
    this.#endsAtMs = nowMs + TURN_MS;
    this.#nextAtMs = nowMs;
    return true;
  }

  /** An image was admitted. It ends the turn unless a larger one waits. */
  entered(megapixels: number): void {
    if (megapixels >= this.#megapixels) this.#endsAtMs = Number.NEGATIVE_INFINITY;
  }
}
