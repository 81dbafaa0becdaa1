export interface Waiting<Value> {
  readonly sinceMs: number;
  readonly resolve: (value: Value) => void;
  readonly reject: (reason: unknown) => void;
}

/** Bounded by the node's admission: an image waits with its permit. */
export class LeaseQueue<Value> {
  readonly #waiting = { sync: new Set<Waiting<Value>>(), async: new Set<Waiting<Value>>() };

  get length(): number {
    return this.#waiting.sync.size + this.#waiting.async.size;
  }

  wait(priority: 'sync' | 'async', signal: AbortSignal): Promise<Value> {
    const queue = this.#waiting[priority];
    return new Promise((resolve, reject) => {
      const leave = () => {
        signal.removeEventListener('abort', onAbort);
        queue.delete(waiting);
      };
      const onAbort = () => {
        leave();
        reject(signal.reason);
      };
      const waiting: Waiting<Value> = {
        sinceMs: performance.now(),
        resolve: value => {
          leave();
          resolve(value);
        },
        reject: reason => {
          leave();
          reject(reason);
        },
      };
      signal.addEventListener('abort', onAbort);
      queue.add(waiting);
    });
  }

  shift(): Waiting<Value> | undefined {
    for (const queue of [this.#waiting.sync, this.#waiting.async]) {
      for (const waiting of queue) {
        queue.delete(waiting);
        return waiting;
      }
    }
    return undefined;
  }

  drain(): Waiting<Value>[] {
    const all = [...this.#waiting.sync, ...this.#waiting.async];
    this.#waiting.sync.clear();
    this.#waiting.async.clear();
    return all;
  }
}
