/**
 * How a control plane ends, and what tells it to. No job is lost: what runs here is finished, or
 * given back for another replica or for the next start.
 *
 * | step | does                                                    | at most                   |
 * |------|---------------------------------------------------------|---------------------------|
 * | 1    | announces: /readyz 503, submissions refused; reads,     | at once                   |
 * |      | joins and results are served on, each with              |                           |
 * |      | Connection: close                                       |                           |
 * | 2    | claims nothing more, finishes the attempts that run,    | FINISH_MAX_MS, hurried 0, |
 * |      | gives back the rest                                     | and GIVE_BACK_MAX_MS      |
 * | 3    | hands over the waits that are left: 202 with the job    | at once                   |
 * | 4    | closes the public port: no new callers, then answers to | CLOSE_MAX_MS;             |
 * |      | those on their way and under way, then connections      | hurried: HURRIED_MAX_MS   |
 * | 5    | begins no notification more, finishes those under way,  | DELIVER_MAX_MS or what is |
 * |      | gives back the rest                                     | left of DRAIN_MS_MAX,     |
 * |      |                                                         | hurried 0, and            |
 * |      |                                                         | LET_GO_MAX_MS             |
 * | 6    | closes the registry: nodes go to another replica        | the server's own 1 s      |
 * | 7    | closes the rest, the database last                      | REST_MAX_MS in all        |
 *
 * That is DRAIN_MS_MAX at most, whatever a database, a node or a receiver that hangs does to it: a
 * supervisor that gives 150 s need not kill. What is not closed by then ends with the process, and
 * what could not be given back is taken over when its lease ends.
 *
 * Waits are handed over after the attempts: callers whose image is processed still get it.
 *
 * | told by                                        | means                                   |
 * |------------------------------------------------|-----------------------------------------|
 * | SIGTERM, SIGINT                                | drain                                   |
 * | either again within a second of the last       | nothing: terminals and npm send it twice |
 * | either again later                             | hurry                                   |
 * | the parent's IPC channel closes                | hurry: the parent is gone               |
 */

import { addAbortListener } from 'node:events';
import { settledWithin } from '@matting/program/waiting.ts';
import type { Logger } from 'pino';

export const FINISH_MAX_MS = 130_000;
/** An attempt's 15 s, and time to write its end. */
const DELIVER_MAX_MS = 18_000;
/** Answers under way have this time; result downloads are among them, and can be started again. */
const CLOSE_MAX_MS = 5000;
/** The replica needs this time to write that jobs are free again. */
const GIVE_BACK_MAX_MS = 5000;
/** The replica needs this time for notifications, after callers have been answered. */
const LET_GO_MAX_MS = 2000;
const REST_MAX_MS = 6000;
/** Enough for the short answers of the waits just handed over. */
const HURRIED_MAX_MS = 500;
/** The registry's own, see its SHUTDOWN_GRACE_MS. */
const REGISTRY_MAX_MS = 1000;
/** The steps after the deliveries, and giving deliveries back, may take this time. */
const AFTER_DELIVERIES_MS = LET_GO_MAX_MS + REGISTRY_MAX_MS + REST_MAX_MS;
/** The whole drain. Deliveries get what the runs and the answers have left. */
export const DRAIN_MS_MAX = FINISH_MAX_MS + GIVE_BACK_MAX_MS + CLOSE_MAX_MS + AFTER_DELIVERIES_MS;

export interface DrainSteps {
  announce(): void;
  finishRuns(limitMs: number): Promise<void>;
  giveRunsBack(): void;
  handOverWaits(): void;
  finishDeliveries(limitMs: number): Promise<void>;
  giveDeliveriesBack(): void;
  closePublic(): Promise<void>;
  closePublicConnections(): void;
  closeRegistry(): Promise<void>;
  readonly closeRest: readonly (() => Promise<void>)[];
}

export interface DrainOptions {
  readonly hurry: AbortSignal;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  readonly finishMaxMs?: number;
  readonly giveBackMaxMs?: number;
  readonly deliverMaxMs?: number;
  readonly restMaxMs?: number;
}

export async function drainControlPlane(steps: DrainSteps, options: DrainOptions): Promise<void> {
  const { hurry, log, finishMaxMs = FINISH_MAX_MS } = options;
  const beganMs = performance.now();
  const attempt = async (name: string, step: () => Promise<void>) => {
    await step().catch((err: unknown) => log.error({ err }, `${name} failed`));
  };
  log.info('draining');
  steps.announce();
  await finish(options, {
    name: 'the runs',
    work: limitMs => steps.finishRuns(limitMs),
    giveBack: () => steps.giveRunsBack(),
    limitMs: finishMaxMs,
    giveBackMaxMs: options.giveBackMaxMs ?? GIVE_BACK_MAX_MS,
  });
  steps.handOverWaits();
  await attempt('closing the public port', () => closePublic(steps, hurry));
  const leftMs = DRAIN_MS_MAX - AFTER_DELIVERIES_MS - (performance.now() - beganMs);
  await finish(options, {
    name: 'the deliveries',
    work: limitMs => steps.finishDeliveries(limitMs),
    giveBack: () => steps.giveDeliveriesBack(),
    limitMs: Math.min(options.deliverMaxMs ?? DELIVER_MAX_MS, Math.max(0, leftMs)),
    giveBackMaxMs: options.giveBackMaxMs ?? LET_GO_MAX_MS,
  });
  await attempt('closing the registry', () => steps.closeRegistry());
  const closingRest = async () => {
    for (const close of steps.closeRest) await attempt('closing', close);
  };
  const closed = await settledWithin(closingRest(), options.restMaxMs ?? REST_MAX_MS);
  if (!closed) log.warn('not everything is closed: left to the end of the process');
  log.info('drained');
}

interface Finishing {
  readonly name: string;
  readonly work: (limitMs: number) => Promise<void>;
  readonly giveBack: () => void;
  readonly limitMs: number;
  /** The time counts from the limit, or from being hurried, until the run is abandoned. */
  readonly giveBackMaxMs: number;
}

/** Never rejects. */
async function finish({ hurry, log }: DrainOptions, finishing: Finishing): Promise<void> {
  const { name, work, giveBack, limitMs, giveBackMaxMs } = finishing;
  if (hurry.aborted) giveBack();
  else hurry.addEventListener('abort', giveBack, { once: true });
  const finished = work(limitMs).catch((err: unknown) => {
    log.error({ err }, `finishing ${name} failed`);
  });
  // First until they must be given back, then as long as giving back may take.
  const inTime = await settledWithin(finished, limitMs, hurry);
  if (!inTime && !(await settledWithin(finished, giveBackMaxMs))) {
    log.warn(`${name} are left to the end of their leases: they could not be given back`);
  }
  hurry.removeEventListener('abort', giveBack);
}

async function closePublic(steps: DrainSteps, hurry: AbortSignal): Promise<void> {
  const cut = () => steps.closePublicConnections();
  using timers = new DisposableStack();
  timers.use(setTimeout(cut, CLOSE_MAX_MS));
  using _hurrying = addAbortListener(hurry, () => timers.use(setTimeout(cut, HURRIED_MAX_MS)));
  await steps.closePublic();
}
