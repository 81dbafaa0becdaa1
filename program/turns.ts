/** Work of one request that gives others a turn of the event loop after so much of it. */
import { setImmediate as loopTick } from 'node:timers/promises';

/** The most expensive texts, URLs of unusual letters, take some 10 ms for so many characters. */
const WORK_MAX = 64 * 1024;
/** An inserted row takes about as long as so many characters. */
export const ROW_WORK = 1024;

export class Turns {
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

/** Work waits no longer than this for callers who connect without end. */
const CONNECTING_MS_MAX = 50;
let connections = 0;

export function noteConnection(): void {
  connections += 1;
}

/**
 * Gives others a turn of the event loop, and more of them while callers connect: Node takes one
 * connection in each, so that short turns let all of them in. No transaction may be open.
 */
export async function letOthersIn(): Promise<void> {
  const until = performance.now() + CONNECTING_MS_MAX;
  let before: number;
  do {
    before = connections;
    await loopTick();
  } while (connections > before && performance.now() < until);
}
