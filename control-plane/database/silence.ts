/**
 * Whether a server answers anybody. If a statement waits for long, a connection of its own asks. A
 * loaded server takes that connection, and the statement goes on. A server that hangs, or that the
 * network cut off, does not: then the statements that wait end, and the pool begins nothing until
 * the server takes a connection again.
 */
import { setTimeout as delay, setImmediate as immediate } from 'node:timers/promises';
import { type ConnectionOptions, createConnection } from 'mysql2';

/** A statement asks after so long, and again and again. Most take milliseconds. */
export const SUSPECT_MS = 3_000;
const ASK_AGAIN_MS = 1_000;

export class Silence {
  isSilent = false;
  /** The time by performance.now() of the last answer to anybody. */
  heardAtMs = 0;
  /** False: the pool has ended. */
  isLookedFor = true;
  #isAsking = false;
  readonly #place: ConnectionOptions;
  readonly #waiting = new Set<() => void>();

  /** @param place has the time in which the server must take a connection, `connectTimeout` */
  constructor(place: ConnectionOptions) {
    this.#place = place;
  }

  /** @param expire ends a statement, unless it has ended; called if the server is silent */
  suspect(expire: () => void): void {
    if (!this.isLookedFor) return;
    this.#waiting.add(expire);
    if (!this.#isAsking) void this.#ask();
  }

  async #ask(): Promise<void> {
    this.#isAsking = true;
    do {
      this.isSilent = !(await this.#takesConnection());
      if (this.isSilent) for (const expire of this.#waiting) expire();
      this.#waiting.clear();
      if (this.isSilent) await delay(ASK_AGAIN_MS, undefined, { ref: false });
    } while (this.isSilent && this.isLookedFor);
    this.isSilent = false;
    this.#isAsking = false;
  }

  /** True also where the server, or the machine, refuses the connection: that is an answer. */
  async #takesConnection(): Promise<boolean> {
    const askedAtMs = performance.now();
    const connection = createConnection(this.#place);
    const isInTime = await new Promise<boolean>(resolve => {
      connection.once('connect', () => resolve(true));
      connection.on('error', ({ code }) => resolve(code !== 'ETIMEDOUT'));
    });
    connection.destroy();
    // If this process stood still, answers that came meanwhile are read first.
    await immediate();
    return isInTime || this.heardAtMs > askedAtMs;
  }
}
