/**
 * Turns at sending, in the order in which they were asked for: what is being sent is in memory as
 * often as it may have to be sent again, so all of it together has a bound.
 */

interface Waiting {
  readonly bytes: number;
  readonly begin: () => void;
}

export class ByteTurns {
  readonly #bytesMax: number;
  readonly #waiting: Waiting[] = [];
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** Bytes that are being sent. */
  get bytes(): number {
    return this.#bytes;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /**
   * Runs the work when its bytes have room; rejects with the signal's reason where it aborts
   * before. Whoever waits holds a bounded place of its own already: an upload, a download, a job.
   */
  async take<T>(bytes: number, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    const counted = Math.min(bytes, this.#bytesMax);
    if (this.#waiting.length > 0 || this.#bytes + counted > this.#bytesMax) {
      await this.#wait(counted, signal);
    } else {
      this.#bytes += counted;
    }
    try {
      return await work();
    } finally {
      this.#bytes -= counted;
      this.#beginNext();
    }
  }

  #wait(bytes: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const giveUp = () => {
        this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
        reject(signal.reason);
        // What waited behind may be smaller.
        this.#beginNext();
      };
      const begin = () => {
        signal.removeEventListener('abort', giveUp);
        resolve();
      };
      const waiting: Waiting = { bytes, begin };
      this.#waiting.push(waiting);
      signal.addEventListener('abort', giveUp, { once: true });
    });
  }

  #beginNext(): void {
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      if (this.#bytes + next.bytes > this.#bytesMax) return;
      this.#waiting.shift();
      this.#bytes += next.bytes;
      next.begin();
    }
  }
}
