/**
 * The order in which a node ends:
 *
 * | step | does                                                    | at most                  |
 * |------|---------------------------------------------------------|--------------------------|
 * | 1    | announces: capacity DRAINING, health NOT_SERVING,       | at once                  |
 * |      | /readyz 503; new images are refused UNAVAILABLE         |                          |
 * | 2    | finishes the images that are in                         | FINISH_MAX_MS; hurried 0 |
 * | 3    | ends the calls still open, UNAVAILABLE                  | ABORT_MAX_MS             |
 * | 4    | gives engines and picture workers time to end,          | CLOSE_GRACE_MS; hurried 0|
 * |      | then kills them and leaves behind what does not die     | KILL_MAX_MS              |
 * | 5    | deregisters                                             | DEREGISTER_MAX_MS        |
 * | 6    | closes the gRPC server, then HTTP                       | SERVERS_MAX_MS           |
 *
 * In all 149 s, hurried 14 s: within the 150 s that a supervisor gives. The listener closes last,
 * so that a probe or a caller during the drain gets an answer. Hurrying ends step 2 and the grace
 * of step 4.
 */

import { settledWithin } from '@matting/program/waiting.ts';
import type { Logger } from 'pino';

export const FINISH_MAX_MS = 130_000;
const ABORT_MAX_MS = 1000;
const CLOSE_GRACE_MS = 5000;
/** From SIGKILL on. Then the child hangs in the kernel, and cannot be ended from here. */
export const KILL_MAX_MS = 3000;
const DEREGISTER_MAX_MS = 5000;
/** Includes 4 s for open calls of the gRPC server. */
const SERVERS_MAX_MS = 5000;

export interface ChildLeft {
  readonly kind: 'engine' | 'picture worker';
  readonly pid: number;
}

export interface DrainSteps {
  announce(): void;
  untilIdle(): Promise<void>;
  abortCalls(): void;
  /** A second call with less time hurries the first. */
  closeChildren(graceMs: number): Promise<void>;
  childrenLeft(): readonly ChildLeft[];
  deregister(): Promise<void>;
  closeServers(): Promise<void>;
}

export interface DrainOptions {
  /** May be aborted already. */
  readonly hurry: AbortSignal;
  readonly log: Logger;
  readonly finishMaxMs?: number;
  readonly killMaxMs?: number;
  readonly serversMaxMs?: number;
}

/** Tries every step, even if earlier ones failed. */
export async function drainNode(steps: DrainSteps, options: DrainOptions): Promise<void> {
  const { hurry, log, finishMaxMs = FINISH_MAX_MS } = options;
  const { killMaxMs = KILL_MAX_MS, serversMaxMs = SERVERS_MAX_MS } = options;
  log.info('draining');
  steps.announce();
  if (!hurry.aborted && !(await settledWithin(steps.untilIdle(), finishMaxMs, hurry))) {
    log.warn(hurry.aborted ? 'hurried: open calls are ended' : 'open calls are ended: too long');
  }
  steps.abortCalls();
  await settledWithin(steps.untilIdle(), ABORT_MAX_MS);
  const attempt = async (name: string, step: () => Promise<boolean>) => {
    try {
      if (!(await step())) log.error(`${name} took too long: it is left`);
    } catch (error) {
      log.error({ err: error }, `${name} failed`);
    }
  };
  await attempt('closing engines and picture workers', async () => {
    if (!hurry.aborted) {
      const closed = steps.closeChildren(CLOSE_GRACE_MS);
      if (await settledWithin(closed, CLOSE_GRACE_MS, hurry)) return true;
    }
    return await settledWithin(steps.closeChildren(0), killMaxMs);
  });
  for (const child of steps.childrenLeft()) {
    log.error(child, 'a process was killed and does not die: it is left behind');
  }
  await attempt('deregistering', () => settledWithin(steps.deregister(), DEREGISTER_MAX_MS));
  await attempt('closing the servers', () => settledWithin(steps.closeServers(), serversMaxMs));
  log.info('drained');
}
