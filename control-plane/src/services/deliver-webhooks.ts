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
 * It looks at the outbox when a job that ended here left a notification, when a place became free
 * and rows are known to wait, when an attempt is due again within POLL_MS, and every POLL_MS for
 * what other replicas left.
 */
import type { Logger } from 'pino';
import { nextWaitMs, type WebhookSchedule } from '../domain/webhook-schedule.ts';
import type { GuardedPost } from '../sources/guarded-post.ts';
import type {
  AttemptEnd,
  DueNotification,
  NotificationClaim,
  WebhookOutboxStore,
} from '../store/webhook-outbox-store.ts';
import { ReceiverSlots } from '../webhooks/receiver-slots.ts';
import { type SendOutcome, sendNotification } from '../webhooks/send-notification.ts';
import type { CallbackSecrets } from './callback-secret.ts';
import { withDatabasePatience } from './database-patience.ts';
import type { JobEvents } from './job-events.ts';
import type { WebhookAttemptOutcome, WebhookObserver } from './webhook-observer.ts';

/** A notification of another replica waits this long at most before it is seen here. */
const POLL_MS = 1000;
/** The contract's 15 s an attempt, and time to write its end. */
const LEASE_MS = 20_000;
/** Rows of one look, each with a body of about a kilobyte. */
const LIST_MAX = 32;
/** A receiver that takes longer shares its places with others of its kind. */
const SLOW_MS = 5_000;
/** Between looks while the database does not answer, doubling. */
const BACKOFF_MIN_MS = 100;
const BACKOFF_MAX_MS = 2000;

export interface WebhookDeliveryDependencies {
  readonly outbox: Pick<
    WebhookOutboxStore,
    'listDue' | 'claim' | 'release' | 'delivered' | 'retryLater' | 'failed'
  >;
  readonly guardedPost: Pick<GuardedPost, 'post'>;
  readonly secrets: Pick<CallbackSecrets, 'open' | 'keyIds'>;
  readonly events: Pick<JobEvents, 'onNotificationDue'>;
  readonly observer: WebhookObserver;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  /** This replica, as the holder of its leases. */
  readonly holder: string;
  readonly scheduleMs: WebhookSchedule;
  readonly slots?: ReceiverSlots;
  /** In [0, 1). */
  readonly random?: () => number;
}

export class WebhookDelivery {
  readonly #dependencies: WebhookDeliveryDependencies;
  readonly #slots: ReceiverSlots;
  readonly #random: () => number;
  readonly #running = new Set<Promise<void>>();
  readonly #cutOff = new AbortController();
  /** Attempts due again before the next poll; at most one a row that failed in that time. */
  readonly #wakes = new Set<NodeJS.Timeout>();
  #unsubscribe: (() => void) | undefined;
  #poll: NodeJS.Timeout | undefined;
  #backoff: NodeJS.Timeout | undefined;
  #backoffMs = BACKOFF_MIN_MS;
  #looking: Promise<void> | undefined;
  #lookAgain = false;
  /** The last look left rows that a free place would let go. */
  #waiting = false;
  #stopping = false;

  constructor(dependencies: WebhookDeliveryDependencies) {
    this.#dependencies = dependencies;
    this.#slots = dependencies.slots ?? new ReceiverSlots();
    this.#random = dependencies.random ?? Math.random;
  }

  start(): void {
    this.#unsubscribe = this.#dependencies.events.onNotificationDue(() => this.#kick());
    this.#poll = setInterval(() => this.#kick(), POLL_MS);
    this.#kick();
  }

  /** Attempts under way here. */
  get inFlight(): number {
    return this.#running.size;
  }

  /**
   * Claims nothing more, lets attempts end within the limit, gives the rest back. Resolves when
   * none is left. What a job's end has just left is begun before.
   */
  async stop(limitMs: number): Promise<void> {
    await this.#looking;
    this.#stopping = true;
    this.#unsubscribe?.();
    clearInterval(this.#poll);
    clearTimeout(this.#backoff);
    for (const wake of this.#wakes) clearTimeout(wake);
    await this.#looking;
    const limit = setTimeout(() => this.hurry(), limitMs);
    await Promise.all(this.#running);
    clearTimeout(limit);
  }

  /** What is under way is given back now. */
  hurry(): void {
    this.#stopping = true;
    this.#cutOff.abort();
  }

  #kick(): void {
    if (this.#stopping || this.#backoff !== undefined) return;
    if (this.#looking !== undefined) {
      this.#lookAgain = true;
      return;
    }
    this.#looking = this.#look().finally(() => {
      this.#looking = undefined;
      if (this.#lookAgain) {
        this.#lookAgain = false;
        this.#kick();
      }
    });
  }

  /** Never rejects. */
  async #look(): Promise<void> {
    this.#waiting = false;
    try {
      while (!this.#stopping && (await this.#beginSome()));
      this.#backoffMs = BACKOFF_MIN_MS;
    } catch (err) {
      this.#dependencies.log.warn({ err }, 'the webhook outbox is not readable');
      this.#backOff();
    }
  }

  /** While the database is away looks are spaced out; what came meanwhile is found then. */
  #backOff(): void {
    if (this.#stopping || this.#backoff !== undefined) return;
    this.#backoff = setTimeout(() => {
      this.#backoff = undefined;
      this.#kick();
    }, this.#backoffMs);
    this.#backoffMs = Math.min(BACKOFF_MAX_MS, this.#backoffMs * 2);
  }

  /** True: there may be more that can be begun. */
  async #beginSome(): Promise<boolean> {
    const { outbox, secrets } = this.#dependencies;
    const limit = Math.min(LIST_MAX, this.#slots.free);
    if (limit <= 0) {
      this.#waiting = true;
      return false;
    }
    // Those there is no place for are left out of the look: no backlog of one hides another's row.
    const { receivers, accounts } = this.#slots.full();
    this.#waiting = receivers.length > 0 || accounts.length > 0;
    const due = await outbox.listDue({
      limit,
      secretKeyIds: secrets.keyIds,
      exceptReceivers: receivers,
      exceptAccounts: accounts,
    });
    const listedAtMs = performance.now();
    const placed = due.filter(notification => this.#slots.take(notification));
    // Claimed before the next look, or it would find the same rows again.
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
      if (!won) this.#slots.end(notification, undefined);
    }
    if (!won) return false;
    const run = this.#deliver(notification, claim, listedAtMs).finally(() => {
      this.#running.delete(run);
      if (this.#waiting) this.#kick();
    });
    this.#running.add(run);
    return true;
  }

  /** Never rejects. */
  async #deliver(
    notification: DueNotification,
    claim: NotificationClaim,
    listedAtMs: number,
  ): Promise<void> {
    const { log, guardedPost, secrets } = this.#dependencies;
    const { jobId, callbackUrl, body, secret, secretKeyId } = notification;
    const startedAtMs = performance.now();
    let slow: boolean | undefined;
    try {
      const key = secrets.open(jobId, { secret, secretKeyId });
      if (key === undefined) return await this.#unsignable(claim);
      const message = { jobId, callbackUrl, body, key };
      const outcome = await sendNotification(guardedPost, message, this.#cutOff.signal);
      const durationMs = performance.now() - startedAtMs;
      if (outcome.kind !== 'aborted') {
        slow = outcome.kind === 'unanswered' || durationMs > SLOW_MS;
      }
      if (outcome.kind === 'delivered') {
        const { createdAtMs, readAtMs } = notification;
        const delayMs = readAtMs - createdAtMs + (performance.now() - listedAtMs);
        this.#dependencies.observer.webhookDelivered(Math.max(0, delayMs));
      }
      await this.#write(notification, claim, outcome, durationMs);
    } catch (err) {
      // Its lease runs out, and it is sent again.
      log.error({ err, jobId }, 'a notification is left to its lease');
      this.#backOff();
    } finally {
      this.#slots.end(notification, slow);
    }
  }

  async #unsignable(claim: NotificationClaim): Promise<void> {
    const { outbox, log } = this.#dependencies;
    log.error({ jobId: claim.jobId }, 'a callback secret does not open: it was altered');
    this.#dependencies.observer.webhookAttempted('unsignable');
    const end = { statusCode: null, durationMs: 0 };
    await this.#patiently(() => outbox.failed(claim, end, { eraseSecret: false }));
  }

  async #write(
    notification: DueNotification,
    claim: NotificationClaim,
    outcome: SendOutcome,
    durationMs: number,
  ): Promise<void> {
    const { outbox, observer } = this.#dependencies;
    const statusCode = 'status' in outcome ? outcome.status : null;
    const end: AttemptEnd = { statusCode, durationMs };
    const attempts = notification.attempts + 1;
    observer.webhookAttempted(outcome.kind satisfies WebhookAttemptOutcome);
    let waitMs: number | undefined;
    let held: boolean;
    switch (outcome.kind) {
      case 'aborted':
        held = await outbox.release(claim);
        break;
      case 'delivered':
        held = await this.#patiently(() => outbox.delivered(claim, end));
        break;
      case 'gone':
        held = await this.#patiently(() => outbox.failed(claim, end, { eraseSecret: true }));
        break;
      default: {
        const wishMs = outcome.kind === 'refused' ? outcome.retryAfterMs : 0;
        const next = nextWaitMs(this.#dependencies.scheduleMs, attempts, wishMs, this.#random());
        waitMs = next;
        held = await this.#patiently(() =>
          next === undefined
            ? outbox.failed(claim, end, { eraseSecret: false })
            : outbox.retryLater(claim, end, next),
        );
        if (next !== undefined) this.#wakeIn(next);
      }
    }
    this.#logAttempt(claim, outcome, { attempts, durationMs, waitMs, held });
  }

  /** Of the receiver not a word: its address is the caller's. */
  #logAttempt(
    { jobId }: NotificationClaim,
    outcome: SendOutcome,
    more: { attempts: number; durationMs: number; waitMs: number | undefined; held: boolean },
  ): void {
    const { attempts, durationMs, waitMs, held } = more;
    const line = { jobId, attempt: attempts, ...outcome, durationMs: Math.round(durationMs) };
    const { log } = this.#dependencies;
    if (!held) log.warn(line, 'notification taken over meanwhile');
    else log.info({ ...line, nextInMs: waitMs }, 'notification');
  }

  #patiently(write: () => Promise<boolean>): Promise<boolean> {
    return withDatabasePatience(write, this.#cutOff.signal);
  }

  /** The poll finds what is due later. */
  #wakeIn(waitMs: number): void {
    if (waitMs > POLL_MS || this.#stopping) return;
    const wake = setTimeout(() => {
      this.#wakes.delete(wake);
      this.#kick();
    }, waitMs);
    this.#wakes.add(wake);
  }
}
