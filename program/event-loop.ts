import { setImmediate as loopTick } from 'node:timers/promises';

/** Most characters between yields. Checking the worst (URLs of unusual letters) takes 10 ms. */
const WORK_MAX = 64 * 1024;
/** Inserting a row takes about as long as this many characters. */
export const ROW_WORK = 1024;

export class WorkSlices {
  #work = 0;

  /** @param work of the next step, in characters */
  async before(work: number): Promise<void> {
    if (this.#work > 0 && this.#work + work > WORK_MAX) {
      this.#work = 0;
      await loopTick();
    }
    this.#work += work;
  }
}

/** The longest yield while callers connect without a pause. */
const CONNECTING_MS_MAX = 50;
let connections = 0;

export function noteConnection(): void {
  connections += 1;
}

/**
 * Yields to the event loop, repeatedly while callers connect: Node accepts one connection a tick.
 * No transaction may be open.
 */
export async function yieldToEventLoop(): Promise<void> {
  const until = performance.now() + CONNECTING_MS_MAX;
  let before: number;
  do {
    before = connections;
    await loopTick();
  } while (connections > before && performance.now() < until);
}
