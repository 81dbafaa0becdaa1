/**
 * Decides whether a server answers at all. After a long wait of a statement, a new connection tests
 * the server. A loaded server accepts it, and the statement continues. A server that hangs or is
 * cut off does not: then the waiting statements end, and the pool begins nothing until the server
 * accepts a connection again.
 */
import { setTimeout as delay, setImmediate as immediate } from 'node:timers/promises';
import { type ConnectionOptions, createConnection } from 'mysql2';

/** Wait of a statement before the test. Most statements take milliseconds. */
export const SUSPECT_MS = 3_000;
const TEST_PAUSE_MS = 1_000;

export class ServerLiveness {
  isSilent = false;
  /** performance.now() of the last answer to any statement. */
  lastAnswerAtMs = 0;
  /** False: the pool has ended. */
  isPoolOpen = true;
  #isTesting = false;
  readonly #server: ConnectionOptions;
  readonly #waiting = new Set<() => void>();

  /** @param server its `connectTimeout` bounds the test */
  constructor(server: ConnectionOptions) {
    this.#server = server;
  }

  /** @param expire ends the statement if the server is silent */
  suspect(expire: () => void): void {
    if (!this.isPoolOpen) return;
    this.#waiting.add(expire);
    if (!this.#isTesting) void this.#test();
  }

  async #test(): Promise<void> {
    this.#isTesting = true;
    do {
      this.isSilent = !(await this.#takesConnection());
      if (this.isSilent) for (const expire of this.#waiting) expire();
      this.#waiting.clear();
      if (this.isSilent) await delay(TEST_PAUSE_MS, undefined, { ref: false });
    } while (this.isSilent && this.isPoolOpen);
    this.isSilent = false;
    this.#isTesting = false;
  }

  /** A refused connection is an answer too. */
  async #takesConnection(): Promise<boolean> {
    const beganAtMs = performance.now();
    const connection = createConnection(this.#server);
    const isInTime = await new Promise<boolean>(resolve => {
      connection.once('connect', () => resolve(true));
      connection.on('error', ({ code }) => resolve(code !== 'ETIMEDOUT'));
    });
    connection.destroy();
    // If this process was blocked, read the answers that came meanwhile first.
    await immediate();
    return isInTime || this.lastAnswerAtMs > beganAtMs;
  }
}
