/**
 * Collects what passed through a main process (files, frames, messages) before V8 does. It lies
 * outside the heap and dies young, but V8 counts it with the old: at every 64 MB it collects the
 * whole heap, 20 to 30 ms of the main thread and as much of others, where a collection of the young
 * frees nearly all of it in half a millisecond. That one V8 makes only when the young heap is full,
 * which small objects beside large buffers seldom do.
 */
import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Far less than V8's bound: not all of it is young any more. */
export const GATHERED_BYTES_MAX = 16 * 1024 * 1024;
/** Each look takes a microsecond. */
const LOOK_INTERVAL_MS = 100;

export interface BufferHeap {
  /** Outside of the heap and held by it. */
  externalBytes(): number;
  collectYoung(): void;
}

/** Looks once: collects where much has gathered since it last did. */
export class YoungBuffers {
  readonly #heap: BufferHeap;
  #floorBytes: number;

  constructor(heap: BufferHeap) {
    this.#heap = heap;
    this.#floorBytes = heap.externalBytes();
  }

  look(): void {
    const bytes = this.#heap.externalBytes();
    // V8 has collected, or somebody has let go.
    this.#floorBytes = Math.min(this.#floorBytes, bytes);
    if (bytes - this.#floorBytes < GATHERED_BYTES_MAX) return;
    this.#heap.collectYoung();
    this.#floorBytes = this.#heap.externalBytes();
  }
}

/** For a program's main. Holds no process back from its end. */
export function collectYoungBuffers(): void {
  const buffers = new YoungBuffers(ownHeap());
  setInterval(() => buffers.look(), LOOK_INTERVAL_MS).unref();
}

function ownHeap(): BufferHeap {
  // A context gets the function where the flag is set as it is made.
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as NodeJS.GCFunction;
  setFlagsFromString('--no-expose-gc');
  return {
    externalBytes: () => getHeapStatistics().external_memory,
    collectYoung: () => collect({ type: 'minor' }),
  };
}
