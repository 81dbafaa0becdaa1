/** Events by their time in a binary heap. Ties keep their order. The queue awaits a promise. */

type Act = () => void | Promise<void>;

interface Event {
  readonly atMs: number;
  readonly order: number;
  readonly act: Act;
}

export class EventQueue {
  readonly #heap: Event[] = [];
  #asked = 0;
  #nowMs = 0;

  get nowMs(): number {
    return this.#nowMs;
  }

  at(atMs: number, act: Act): void {
    const entry = { atMs: Math.max(atMs, this.#nowMs), order: this.#asked++, act };
    const heap = this.#heap;
    let place = heap.length;
    heap.push(entry);
    // Indices below the length, here and in #sink, so that an entry is there.
    while (place > 0) {
      const above = (place - 1) >> 1;
      const parent = heap[above]!;
      if (!before(entry, parent)) break;
      heap[place] = parent;
      place = above;
    }
    heap[place] = entry;
  }

  in(ms: number, act: Act): void {
    this.at(this.#nowMs + ms, act);
  }

  cancellable(ms: number, act: () => void): () => void {
    let cancelled = false;
    this.in(ms, () => {
      if (!cancelled) act();
    });
    return () => {
      cancelled = true;
    };
  }

  async run(done: () => boolean): Promise<void> {
    for (let [first] = this.#heap; first !== undefined && !done(); [first] = this.#heap) {
      const last = this.#heap.pop();
      if (last !== undefined && this.#heap.length > 0) this.#sink(last);
      this.#nowMs = first.atMs;
      const acting = first.act();
      if (acting !== undefined) await acting;
    }
  }

  #sink(entry: Event): void {
    const heap = this.#heap;
    let place = 0;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && before(heap[child + 1]!, heap[child]!)) child += 1;
      const least = heap[child]!;
      if (!before(least, entry)) break;
      heap[place] = least;
      place = child;
    }
    heap[place] = entry;
  }
}

function before(a: Event, b: Event): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}
