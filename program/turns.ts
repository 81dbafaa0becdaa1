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
