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
 * | either again within a second of the last       | nothing: terminals and npm send one twice    |
 * | either again later                             | hurry                                        |
 * | the parent's IPC channel closes                | hurry: nobody waits for the node any more    |
 */
import type { Logger } from 'pino';
import { settledWithin } from '#contract/settled-within.ts';

export const FINISH_MAX_MS = 130_000;
const ABORT_MAX_MS = 1000;
export const CLOSE_GRACE_MS = 5000;
const DEREGISTER_MAX_MS = 5000;

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
