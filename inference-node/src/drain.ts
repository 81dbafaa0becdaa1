/**
 * How a node ends, and what counts as being told to.
 *
 * | step | does                                                    | at most                  |
 * |------|---------------------------------------------------------|--------------------------|
 * | 1    | announces: capacity DRAINING, health NOT_SERVING,       | at once                  |
 * |      | /readyz 503; new images are refused UNAVAILABLE         |                          |
 * | 2    | finishes the images that are in                         | FINISH_MAX_MS; hurried 0 |
 * | 3    | ends the calls still open, UNAVAILABLE                  | ABORT_MAX_MS             |
 * | 4    | closes engines and picture workers                      | CLOSE_GRACE_MS; hurried 0 |
 * | 5    | deregisters                                             | DEREGISTER_MAX_MS        |
 * | 6    | closes the gRPC server, then HTTP                       | the server's own 5 s     |
 *
 * The listener closes last: a probe or a caller that comes during the drain is told so, not refused
 * a connection. Hurrying ends step 2 wherever it is.
 *
 * | told by                                        | means                                        |
 * |------------------------------------------------|----------------------------------------------|
 * | SIGTERM, SIGINT                                | drain                                        |
 * | either again within SAME_SIGNAL_MS of the last | nothing: terminals and npm send one twice    |
 * | either again later                             | hurry                                        |
 * | the parent's IPC channel closes                | hurry: nobody waits for the node any more    |
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';

export const FINISH_MAX_MS = 130_000;
const ABORT_MAX_MS = 1000;
export const CLOSE_GRACE_MS = 5000;
const DEREGISTER_MAX_MS = 5000;
const SAME_SIGNAL_MS = 1000;

export interface DrainSteps {
  announce(): void;
  /** Resolves when no call is open. */
  untilIdle(): Promise<void>;
  abortCalls(): void;
  closeChildren(graceMs: number): Promise<void>;
  deregister(): Promise<void>;
  closeServers(): Promise<void>;
}

export interface DrainOptions {
  /** Aborted: hurry. May be aborted already. */
  readonly hurry: AbortSignal;
  readonly log: Logger;
  /** FINISH_MAX_MS where absent. */
  readonly finishMaxMs?: number;
}

/** Ends the node. Every step is tried, whatever became of the ones before it. */
export async function drainNode(steps: DrainSteps, options: DrainOptions): Promise<void> {
  const { hurry, log, finishMaxMs = FINISH_MAX_MS } = options;
  log.info('draining');
  steps.announce();
  if (!hurry.aborted && !(await settledWithin(steps.untilIdle(), finishMaxMs, hurry))) {
    log.warn(hurry.aborted ? 'hurried: open calls are ended' : 'open calls are ended: too long');
  }
  steps.abortCalls();
  await settledWithin(steps.untilIdle(), ABORT_MAX_MS);
  const attempt = async (name: string, step: () => Promise<unknown>) => {
    await step().catch((error: unknown) => log.error({ err: error }, `${name} failed`));
  };
  await attempt('closing engines and picture workers', () =>
    steps.closeChildren(hurry.aborted ? 0 : CLOSE_GRACE_MS),
  );
  await attempt('deregistering', () => settledWithin(steps.deregister(), DEREGISTER_MAX_MS));
  await attempt('closing the servers', () => steps.closeServers());
  log.info('drained');
}

/** Whether `work` settled before the time was over or the signal aborted. */
async function settledWithin(
  work: Promise<void>,
  waitMs: number,
  signal?: AbortSignal,
): Promise<boolean> {
  const stop = new AbortController();
  const both = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
  const timeUp = delay(waitMs, false, { signal: both }).catch(() => false);
  try {
    return await Promise.race([work.then(() => true), timeUp]);
  } finally {
    stop.abort();
  }
}

export type SignalMeaning = 'drain' | 'repeat' | 'hurry';

/** Tells one request to end from the next. */
export class SignalGate {
  #lastMs: number | undefined;

  /** @param nowMs of a monotonic clock. */
  read(nowMs: number): SignalMeaning {
    const lastMs = this.#lastMs;
    this.#lastMs = nowMs;
    if (lastMs === undefined) return 'drain';
    return nowMs - lastMs < SAME_SIGNAL_MS ? 'repeat' : 'hurry';
  }
}
