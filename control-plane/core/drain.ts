/**
 * How a control plane ends. No job is lost: each is finished, or released for another replica.
 *
 * | step | does                                                    | at most                   |
 * |------|---------------------------------------------------------|---------------------------|
 * | 1    | /readyz answers 503, submissions are refused; reads and | at once                   |
 * |      | results get Connection: close                           |                           |
 * | 2    | finishes running attempts, releases the rest            | FINISH_MAX_MS (hurried:   |
 * |      |                                                         | 0), then GIVE_BACK_MAX_MS |
 * | 3    | answers the remaining waits with 202 and the job        | at once                   |
 * | 4    | closes the public port after answers in progress        | CLOSE_MAX_MS (hurried:    |
 * |      |                                                         | HURRIED_MAX_MS)           |
 * | 5    | finishes notifications in progress, releases the rest   | DELIVER_MAX_MS, or what   |
 * |      |                                                         | DRAIN_MS_MAX leaves       |
 * |      |                                                         | (hurried: 0), then        |
 * |      |                                                         | LET_GO_MAX_MS             |
 * | 6    | closes the registry: nodes go to another replica        | REGISTRY_MAX_MS           |
 * | 7    | closes the rest, the database and the traces last       | REST_MAX_MS in all        |
 *
 * A drain ends within 150 s, even if a database, a node or a receiver hangs. Waits end after the
 * attempts, so that callers whose image is being processed still get it.
 *
 * SIGTERM and SIGINT start the drain. A second signal within a second does nothing, because
 * terminals and npm send them twice. A later one hurries the drain, as does the end of the IPC
 * channel of the parent.
 */

import { addAbortListener } from 'node:events';
import { settledWithin } from '@matting/program/waiting.ts';
import type { Logger } from 'pino';

export const FINISH_MAX_MS = 130_000;
/** 15 s for an attempt to deliver, and time to write its outcome. */
const DELIVER_MAX_MS = 18_000;
/** The answers in progress include result downloads, which callers can repeat. */
const CLOSE_MAX_MS = 5000;
/** Time to write that jobs are released. */
const GIVE_BACK_MAX_MS = 5000;
const LET_GO_MAX_MS = 2000;
const REST_MAX_MS = 6000;
/** Enough for the short answers of the waits that just ended. */
const HURRIED_MAX_MS = 500;
/** Equal to the registry's SHUTDOWN_GRACE_MS. */
const REGISTRY_MAX_MS = 1000;
const AFTER_DELIVERIES_MS = LET_GO_MAX_MS + REGISTRY_MAX_MS + REST_MAX_MS;
/** Notifications add nothing: they get the time that earlier steps leave. */
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
  /** Counted from `limitMs` or the hurry. After it the leases must run out. */
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
