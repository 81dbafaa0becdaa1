/**
 * How a control plane ends, and what counts as being told to. No job is lost by it: what runs here
 * is finished, or given back for another replica, or for the next start.
 *
 * | step | does                                                    | at most                   |
 * |------|---------------------------------------------------------|---------------------------|
 * | 1    | announces: /readyz 503, submissions refused; reads,     | at once                   |
 * |      | joins and results are served on                         |                           |
 * | 2    | claims nothing more, finishes the attempts that run,    | FINISH_MAX_MS;            |
 * |      | gives back the rest                                     | hurried: gives back all   |
 * | 3    | hands over the waits that are left: 202 with the job    | at once                   |
 * | 4    | closes the public port: answers under way, then         | CLOSE_MAX_MS;             |
 * |      | connections                                             | hurried: HURRIED_MAX_MS   |
 * | 5    | begins no notification more, finishes those under way,  | DELIVER_MAX_MS;           |
 * |      | gives back the rest                                     | hurried: gives back all   |
 * | 6    | closes the registry: nodes go to another replica        | the server's own 1 s      |
 * | 7    | closes the rest, the database last                      | -                         |
 *
 * Waits are handed over after the attempts, so that callers whose image is being cut out still get
 * it.
 *
 * | told by                                        | means                                   |
 * |------------------------------------------------|-----------------------------------------|
 * | SIGTERM, SIGINT                                | drain                                   |
 * | either again within SAME_SIGNAL_MS of the last | nothing: terminals and npm send it twice |
 * | either again later                             | hurry                                   |
 * | the parent's IPC channel closes                | hurry: nobody waits any more            |
 */
import type { Logger } from 'pino';

export const FINISH_MAX_MS = 130_000;
/** An attempt's 15 s, and time to write its end. */
const DELIVER_MAX_MS = 18_000;
/** For answers under way: result downloads among them, which can be begun again. */
const CLOSE_MAX_MS = 5000;
/** Enough for the short answers of the waits just handed over. */
const HURRIED_MAX_MS = 500;
const SAME_SIGNAL_MS = 1000;

export interface DrainSteps {
  announce(): void;
  /** Resolves when nothing runs any more, at the limit at the latest. */
  finishRuns(limitMs: number): Promise<void>;
  giveRunsBack(): void;
  handOverWaits(): void;
  /** Resolves when no notification is under way any more, at the limit at the latest. */
  finishDeliveries(limitMs: number): Promise<void>;
  giveDeliveriesBack(): void;
  /** Resolves when every answer has gone out. */
  closePublic(): Promise<void>;
  closePublicConnections(): void;
  closeRegistry(): Promise<void>;
  /** In the order they are to be closed. */
  readonly closeRest: readonly (() => Promise<void>)[];
}

export interface DrainOptions {
  /** Aborted: hurry. May be aborted already. */
  readonly hurry: AbortSignal;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  readonly finishMaxMs?: number;
}

/** Every step is tried, whatever became of the ones before it. */
export async function drainControlPlane(steps: DrainSteps, options: DrainOptions): Promise<void> {
  const { hurry, log, finishMaxMs = FINISH_MAX_MS } = options;
  const attempt = async (name: string, step: () => Promise<void>) => {
    await step().catch((err: unknown) => log.error({ err }, `${name} failed`));
  };
  log.info('draining');
  steps.announce();
  await attempt('finishing the runs', () =>
    hurriedBy(
      hurry,
      () => steps.giveRunsBack(),
      () => steps.finishRuns(finishMaxMs),
    ),
  );
  steps.handOverWaits();
  await attempt('closing the public port', () => closePublic(steps, hurry));
  await attempt('finishing the deliveries', () =>
    hurriedBy(
      hurry,
      () => steps.giveDeliveriesBack(),
      () => steps.finishDeliveries(DELIVER_MAX_MS),
    ),
  );
  await attempt('closing the registry', () => steps.closeRegistry());
  for (const close of steps.closeRest) await attempt('closing', close);
  log.info('drained');
}

async function hurriedBy(
  hurry: AbortSignal,
  giveBack: () => void,
  step: () => Promise<void>,
): Promise<void> {
  if (hurry.aborted) giveBack();
  else hurry.addEventListener('abort', giveBack, { once: true });
  try {
    await step();
  } finally {
    hurry.removeEventListener('abort', giveBack);
  }
}

async function closePublic(steps: DrainSteps, hurry: AbortSignal): Promise<void> {
  const cut = () => steps.closePublicConnections();
  let hurried: NodeJS.Timeout | undefined;
  const onHurry = () => {
    hurried = setTimeout(cut, HURRIED_MAX_MS);
  };
  const timeUp = setTimeout(cut, CLOSE_MAX_MS);
  if (hurry.aborted) onHurry();
  else hurry.addEventListener('abort', onHurry, { once: true });
  try {
    await steps.closePublic();
  } finally {
    clearTimeout(timeUp);
    clearTimeout(hurried);
    hurry.removeEventListener('abort', onHurry);
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
