/**
 * Garbage collection of the main processes. With few allocations V8 runs a full collection after
 * little more than a tenth of growth, which took half of the processor time at two jobs a second.
 *
 * Buffers of files and model inputs are outside the heap. V8 runs a full collection for every 64 MB
 * of them, which YoungBuffers prevents. `--external-memory-accounted-in-global-limit` lets them
 * grow to half of the heap's limit: over 1 GB in a node of 4 GiB.
 */
import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** V8 ignores an unknown flag silently, so a test checks it. */
const GROWTH_FLAG = '--heap-growing-percent';
/** Young garbage is 1 to 2 MB: waking four threads for it costs more than they save. */
const YOUNG_FLAG = '--no-parallel-scavenge';

/** The heap may grow to four times the live 20 MB (node) or 35 MB (control plane), to save time. */
const GROWTH_PERCENT = 300;

export function letHeapGrow(): void {
  // V8 reads these flags at each collection, so they may be set at run time.
  setFlagsFromString(`${GROWTH_FLAG}=${GROWTH_PERCENT}`);
  setFlagsFromString(YOUNG_FLAG);
}
/** Below V8's 64 MB, since not all of these bytes are young. */
const GATHERED_BYTES_MAX = 16 * 1024 * 1024;
/** Check intervals while buffers arrive and at rest, where each check wakes the process. */
const BUSY_INTERVAL_MS = 100;
const REST_INTERVAL_MS = 250;
/**
 * After this many checks in a row with less than QUIET_BYTES_MAX new bytes, the process is at rest.
 */
const QUIET_CHECKS = 10;
const QUIET_BYTES_MAX = 1024 * 1024;

interface BufferHeap {
  externalBytes(): number;
  collectYoung(): void;
}

/**
 * Collects the young heap before V8 runs a full collection. Passing buffers die young, but V8
 * counts them as old. A full collection takes 20 to 30 ms of the main thread, a young one half a
 * millisecond; V8 runs that only when the young heap is full.
 */
export class YoungBuffers {
  readonly #heap: BufferHeap;
  #floorBytes: number;
  #seenBytes: number;
  #quietChecks = 0;

  constructor(heap: BufferHeap) {
    this.#heap = heap;
    this.#seenBytes = this.#floorBytes = heap.externalBytes();
  }

  /** @returns ms until the next check */
  check(): number {
    const bytes = this.#heap.externalBytes();
    const isQuiet = Math.abs(bytes - this.#seenBytes) < QUIET_BYTES_MAX;
    this.#quietChecks = isQuiet ? this.#quietChecks + 1 : 0;
    this.#seenBytes = bytes;
    // Fewer bytes mean that V8 has collected, or that buffers were released.
    this.#floorBytes = Math.min(this.#floorBytes, bytes);
    if (bytes - this.#floorBytes >= GATHERED_BYTES_MAX) {
      this.#heap.collectYoung();
      this.#seenBytes = this.#floorBytes = this.#heap.externalBytes();
    }
    return this.#quietChecks < QUIET_CHECKS ? BUSY_INTERVAL_MS : REST_INTERVAL_MS;
  }
}

export function collectYoungBuffers(): void {
  const buffers = new YoungBuffers(ownHeap());
  const checkAgain = () => void setTimeout(checkAgain, buffers.check()).unref();
  checkAgain();
}

function ownHeap(): BufferHeap {
  // A way to start a program could lack Node's own flag. A context created while the flag is set
  // has the function.
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as NodeJS.GCFunction;
  setFlagsFromString('--no-expose-gc');
  return {
    externalBytes: () => getHeapStatistics().external_memory,
    collectYoung: () => collect({ type: 'minor' }),
  };
}
