/**
 * Delivers notifications: the loop behind every callback_url. A row of the outbox is claimed under
 * a lease when there is a place for its receiver, sent, and its attempt's end written. So it
 * arrives at least once whatever dies, and twice only where a process died, or the database stayed
 * away, between the receiver's answer and the row.
 *
 * | state    | entered by     | left by                                                             |
 * |----------|----------------|---------------------------------------------------------------------|
 * | idle     | construction   | start                                                               |
 * | running  | start          | stop                                                                |
 * | stopping | stop           | the last attempt ends; at the limit or on `hurry` they are cut off  |
 * |          |                | and given back                                                      |
 *
 * It reads the outbox when a job that ended here left a notification, when a place became free and
 * rows are known to wait, when an attempt is due again within POLL_MS, and every POLL_MS for what
 * other replicas left (services/round-loop.ts).
 */
import { type PlaceLimits, type PlaceUse, SharedPlaces } from '../../domain/shared-places.ts';
import type { CallbackSecrets } from '../../secrets/callback-secret.ts';
import { DUE_LISTED_MAX, LANE_TAKE_MAX } from '../../store/outbox/webhook-due.ts';
import type {
  DueNotification,
  NotificationClaim,
  WebhookOutboxStore,
} from '../../store/outbox/webhook-outbox-store.ts';
import type { JobEvents } from '../job-events.ts';
import { RoundLoop } from '../round-loop.ts';
import {
  attemptWebhook,
  type ClaimedNotification,
  type WebhookAttemptDependencies,
} from './webhook-attempt.ts';

/** A notification of another replica waits this long at most before it is seen here. */
const POLL_MS = 1000;
/** The contract's 15 s an attempt, and time to write its end. */
const LEASE_MS = 20_000;

/**
 * A place is a socket and about 20 KB, held by a receiver that hangs for the whole time-out. One
 * account alone has 64, 8 of them to one receiver, 32 to receivers that were slow.
 */
const PLACES: PlaceLimits = {
  max: 128,
  destinationMax: 2 * LANE_TAKE_MAX,
  slowMax: 64,
  slowDestinationsMax: 256,
};

export interface WebhookDeliveryDependencies
  extends Omit<WebhookAttemptDependencies, 'cutOff' | 'random'> {
  readonly outbox: WebhookAttemptDependencies['outbox'] &
    Pick<WebhookOutboxStore, 'listDue' | 'claim'>;
  readonly secrets: Pick<CallbackSecrets, 'open' | 'openText' | 'keyIds'>;
  readonly events: Pick<JobEvents, 'onNotificationDue'>;
  /** This replica, as the holder of its leases. */
  readonly holder: string;
  readonly places?: PlaceLimits;
  /** In [0, 1). */
  readonly random?: () => number;
}

export class WebhookDelivery {
  readonly #dependencies: WebhookDeliveryDependencies;
  readonly #attempting: WebhookAttemptDependencies;
  readonly #places: SharedPlaces;
  readonly #running = new Set<Promise<void>>();
  readonly #cutOff = new AbortController();
  /** Attempts due again before the next poll; at most one a row that failed in that time. */
  readonly #wakes = new Set<NodeJS.Timeout>();
  readonly #loop = new RoundLoop({ pollMs: POLL_MS, begin: () => void this.#round() });
  #unsubscribe: (() => void) | undefined;
  /** The last round left rows that wait for a place. */
  #waiting = false;

  constructor(dependencies: WebhookDeliveryDependencies) {
    this.#dependencies = dependencies;
    this.#places = new SharedPlaces(dependencies.places ?? PLACES);
    const random = dependencies.random ?? Math.random;
    this.#attempting = { ...dependencies, random, cutOff: this.#cutOff.signal };
  }

  start(): void {
    this.#unsubscribe = this.#dependencies.events.onNotificationDue(() => this.#loop.wake());
    this.#loop.start();
  }

  /** Attempts under way here. */
  get inFlight(): number {
    return this.#running.size;
  }

  /**
   * Claims nothing more, lets attempts end within the limit, gives the rest back. Resolves when
   * none is left. A notification that a job's end has just left is begun before.
   */
  async stop(limitMs: number): Promise<void> {
    await this.#loop.roundUnderWay();
    this.#unsubscribe?.();
    for (const wake of this.#wakes) clearTimeout(wake);
    await this.#loop.stop();
    const limit = setTimeout(() => this.hurry(), limitMs);
    await Promise.all(this.#running);
    clearTimeout(limit);
  }

  /** What is under way is given back now. */
  hurry(): void {
    void this.#loop.stop();
    this.#cutOff.abort();
  }

  /** Never rejects. */
  async #round(): Promise<void> {
    this.#waiting = false;
    try {
      while (!this.#loop.stopping && (await this.#beginSome()));
      this.#loop.roundEnded();
    } catch (err) {
      this.#dependencies.log.warn({ err }, 'the webhook outbox is not readable');
      this.#loop.roundFailed();
    }
  }

  /** True: there may be more that can be begun. */
  async #beginSome(): Promise<boolean> {
    const { outbox, secrets } = this.#dependencies;
    const limit = Math.min(DUE_LISTED_MAX, this.#places.free);
    if (limit <= 0) {
      this.#waiting = true;
      return false;
    }
    // Rows without a place are not listed: no backlog of one receiver hides another's row.
    const full = this.#places.full();
    const { destinations, accounts, uses, slow } = full;
    this.#waiting = [destinations, accounts, uses, slow.accounts].some(some => some.length > 0);
    const due = await outbox.listDue({ limit, secretKeyIds: secrets.keyIds, full });
    const listedAtMs = performance.now();
    const placed = due.filter(notification => this.#places.take(useOf(notification)));
    this.#waiting ||= placed.length < due.length;
    // Claimed before the next list, or it would find the same rows again.
    const claims = await Promise.allSettled(placed.map(one => this.#claim(one, listedAtMs)));
    const failed = claims.find(claim => claim.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    const begun = claims.some(claim => claim.status === 'fulfilled' && claim.value);
    return due.length === limit && begun;
  }

  /** Begins the attempt if the claim is won; the place is given back otherwise. */
  async #claim(notification: DueNotification, listedAtMs: number): Promise<boolean> {
    const { outbox, holder } = this.#dependencies;
    const { jobId, fence } = notification;
    const claim: NotificationClaim = { jobId, holder, fence: fence + 1 };
    let won = false;
    try {
      won = await outbox.claim(claim, LEASE_MS);
    } finally {
      if (!won) this.#places.end(useOf(notification), undefined);
    }
    if (!won) return false;
    const run = this.#deliver({ notification, claim, listedAtMs }).finally(() => {
      this.#running.delete(run);
      if (this.#waiting) this.#loop.wake();
    });
    this.#running.add(run);
    return true;
  }

  /** Never rejects. */
  async #deliver(claimed: ClaimedNotification): Promise<void> {
    const { log } = this.#dependencies;
    let slow: boolean | undefined;
    try {
      const attempt = await attemptWebhook(this.#attempting, claimed);
      slow = attempt.slow;
      if (attempt.nextInMs !== undefined) this.#wakeIn(attempt.nextInMs);
    } catch (err) {
      log.error({ err, jobId: claimed.claim.jobId }, 'a notification is left to its lease');
      this.#loop.fault();
    } finally {
      this.#places.end(useOf(claimed.notification), slow);
    }
  }

  /** The poll finds what is due later. */
  #wakeIn(waitMs: number): void {
    if (waitMs > POLL_MS || this.#loop.stopping) return;
    const wake = setTimeout(() => {
      this.#wakes.delete(wake);
      this.#loop.wake();
    }, waitMs);
    this.#wakes.add(wake);
  }
}

function useOf({ accountId, receiver }: DueNotification): PlaceUse {
  return { accountId, destination: receiver };
}
