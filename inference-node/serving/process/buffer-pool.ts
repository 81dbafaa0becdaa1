/**
 * Reuses memory of pictures and mattes: left to the collector, it costs more than everything else
 * in a node's main process, since V8 collects its heap for every 64 MB outside it.
 */

const POOLED_BYTES_MIN = 64 * 1024;
/** Idle memory. Without the pool V8 would leave as much uncollected. */
const IDLE_BYTES_MAX = 64 * 1024 * 1024;

export class BufferPool {
  readonly #idle = new Map<number, Buffer[]>();
  readonly #lent = new WeakSet<Buffer>();
  #idleBytes = 0;

  take(bytes: number): Buffer {
    if (bytes < POOLED_BYTES_MIN) return Buffer.allocUnsafeSlow(bytes);
    const kept = this.#idle.get(bytes)?.pop();
    if (kept !== undefined) this.#idleBytes -= bytes;
    const buffer = kept ?? Buffer.allocUnsafeSlow(bytes);
    this.#lent.add(buffer);
    return buffer;
  }

  /** Ignores a buffer that `take` did not hand out, or that already came back. */
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
