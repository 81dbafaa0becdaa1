/**
 * Memory that is used again, for pictures and mattes of models: they have the same few sizes, and
 * each image brings some megabytes of them. Left to the collector they cost more processor time
 * than all else that a node's main process did: V8 collects its whole heap at every 64 MB that
 * gather outside it.
 */

/** Smaller ones are not worth the bookkeeping. */
export const POOLED_BYTES_MIN = 64 * 1024;
/** What lies idle, at most: what V8 would let gather as garbage. */
export const IDLE_BYTES_MAX = 64 * 1024 * 1024;

export class BufferPool {
  /** By size. */
  readonly #idle = new Map<number, Buffer[]>();
  /** Handed out. One that its user forgets is the collector's. */
  readonly #lent = new WeakSet<Buffer>();
  #idleBytes = 0;

  /** A buffer of its own of just that size; what it holds is undefined. */
  take(bytes: number): Buffer {
    if (bytes < POOLED_BYTES_MIN) return Buffer.allocUnsafeSlow(bytes);
    const kept = this.#idle.get(bytes)?.pop();
    if (kept !== undefined) this.#idleBytes -= bytes;
    const buffer = kept ?? Buffer.allocUnsafeSlow(bytes);
    this.#lent.add(buffer);
    return buffer;
  }

  /**
   * The caller was the last to use it. What `take` did not hand out, or was given back before, is
   * left alone.
   */
  giveBack(buffer: Buffer): void {
    if (!this.#lent.delete(buffer)) return;
    const bytes = buffer.length;
    if (this.#idleBytes + bytes > IDLE_BYTES_MAX) return;
    const kept = this.#idle.get(bytes);
    if (kept === undefined) this.#idle.set(bytes, [buffer]);
    else kept.push(buffer);
    this.#idleBytes += bytes;
  }
}
