/**
 * How much garbage a main process lets gather. V8 lets a heap grow by little more than a tenth
 * before it collects it whole wherever little is allocated a second. At two jobs a second that was
 * a collection every second job and more than half of the processor time of both main processes.
 *
 * Files and model inputs lie outside the heap; for those V8 collects at every 64 MB, whatever the
 * heap holds, which YoungBuffers forestalls. `--external-memory-accounted-in-global-limit` would
 * end it, and lets them gather to half of the heap's limit: 1 GB and more in a node of 4 GiB.
 */
import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** V8 says nothing about a flag it does not know; a test asks it. */
const GROWTH_FLAG = '--heap-growing-percent';
/** Young garbage is a megabyte or two: waking four threads for it costs more than they save. */
const YOUNG_FLAG = '--no-parallel-scavenge';

/**
 * Collected whole at four times what lived last time: live are some 20 MB in a node and 35 MB in a
 * control plane, and processor time is worth more than the megabytes between.
 */
const GROWTH_PERCENT = 300;

export function letHeapGrow(): void {
  // V8 reads these flags at each collection, so that they may be set while it runs.
  setFlagsFromString(`${GROWTH_FLAG}=${GROWTH_PERCENT}`);
  setFlagsFromString(YOUNG_FLAG);
}
/** Far less than V8's bound: not all of it is young any more. */
const GATHERED_BYTES_MAX = 16 * 1024 * 1024;
/** Time between looks while buffers come, and at rest, where each look wakes the process. */
const BUSY_INTERVAL_MS = 100;
const REST_INTERVAL_MS = 250;
/** A process is at rest after so many looks that found less than this gathered since the one before. */
const QUIET_LOOKS = 10;
const QUIET_BYTES_MAX = 1024 * 1024;

interface BufferHeap {
  externalBytes(): number;
  collectYoung(): void;
}

/**
 * Collects what passed through a main process (files, frames, messages) before V8 does. It lies
 * outside the heap and dies young, but V8 counts it with the old: at every 64 MB it collects the
 * whole heap, 20 to 30 ms of the main thread and as much of others, where a collection of the young
 * frees nearly all of it in half a millisecond. V8 makes that one only when the young heap is full.
 */
export class YoungBuffers {
  readonly #heap: BufferHeap;
  #floorBytes: number;
  #seenBytes: number;
  #quietLooks = 0;

  constructor(heap: BufferHeap) {
    this.#heap = heap;
    this.#seenBytes = this.#floorBytes = heap.externalBytes();
  }

  /** @returns ms until the next look */
  look(): number {
    const bytes = this.#heap.externalBytes();
    const isQuiet = Math.abs(bytes - this.#seenBytes) < QUIET_BYTES_MAX;
    this.#quietLooks = isQuiet ? this.#quietLooks + 1 : 0;
    this.#seenBytes = bytes;
    // V8 has collected, or somebody has let go.
    this.#floorBytes = Math.min(this.#floorBytes, bytes);
    if (bytes - this.#floorBytes >= GATHERED_BYTES_MAX) {
      this.#heap.collectYoung();
      this.#seenBytes = this.#floorBytes = this.#heap.externalBytes();
    }
    return this.#quietLooks < QUIET_LOOKS ? BUSY_INTERVAL_MS : REST_INTERVAL_MS;
  }
}

/** Starts the collections for a program's main. It does not keep a process running. */
export function collectYoungBuffers(): void {
  const buffers = new YoungBuffers(ownHeap());
  const lookAgain = () => void setTimeout(lookAgain, buffers.look()).unref();
  lookAgain();
}

function ownHeap(): BufferHeap {
  // Node's own flag for this, at the start, would have to stand in every way of starting a program,
  // and one that lacks it would be slow without a word. V8 gives the function to a context that is
  // made while the flag is set, and has no other way to collect the young alone.
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as NodeJS.GCFunction;
  setFlagsFromString('--no-expose-gc');
  return {
    externalBytes: () => getHeapStatistics().external_memory,
    collectYoung: () => collect({ type: 'minor' }),
  };
}
