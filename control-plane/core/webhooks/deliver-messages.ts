/**
 * Delivers messages of one kind: the loop behind every callback_url, and that of mails. A row of
 * the outbox is claimed under a lease when there is a place for its receiver, sent, and its
 * attempt's end written. So it arrives at least once whatever dies, and twice only where a process
 * died, or the database stayed away, between the receiver's answer and the row.
 *
 * | state    | entered by     | left by                                                             |
 * |----------|----------------|---------------------------------------------------------------------|
 * | idle     | construction   | start                                                               |
 * | running  | start          | stop                                                                |
 * | stopping | stop           | the last attempt ends; at the limit or on `hurry` they are cut off  |
 * |          |                | and given back                                                      |
 *
 * It reads the outbox when a job that ended here left a webhook, when a place became free and rows
 * are known to wait, when an attempt is due again before the next poll, and at each poll for what
 * other replicas left (core/round-loop.ts).
 */
import type { Logger } from 'pino';
import { pollingLoop, type RoundLoop } from '../round-loop.ts';
import { type PlaceLimits, type PlaceUse, SharedPlaces } from '../shared-places.ts';
import { DUE_LISTED_MAX, type DueMessage, type MessageKind } from './outbox-due.ts';
import type { MessageClaim, OutboxStore } from './outbox-store.ts';

export interface ClaimedMessage {
  readonly message: DueMessage;
  readonly claim: MessageClaim;
  /** When `message` was read, by performance.now(): no later than the answer came. */
  readonly listedAtMs: number;
}

export interface AttemptResult {
  /** No answer came, or late; undefined: unknown. */
  readonly slow: boolean | undefined;
  /** Undefined: there is no other attempt. */
  readonly nextInMs: number | undefined;
}

/** How messages of a kind are sent. */
export interface MessageWay {
  readonly kind: MessageKind;
  /** A message of another replica waits this long at most before it is seen here. */
  readonly pollMs: number;
  /** The longest an attempt takes, and time to write its end. */
  readonly leaseMs: number;
  readonly places: PlaceLimits;
  /** Keys that open here what is to be sent; nothing is asked of mails. */
  readonly secretKeyIds: readonly string[];
  /**
   * Sends it and writes the attempt's end. Rejects where the database stays away, or for a bug: the
   * lease runs out, and it is sent again.
   * @param cutOff aborts: give it back
   */
  attempt(claimed: ClaimedMessage, cutOff: AbortSignal): Promise<AttemptResult>;
  /** Log lines of what failed. */
  unreadable(err: unknown): void;
  left(err: unknown, id: string): void;
}

export interface DeliveryParts {
  readonly outbox: Pick<
    OutboxStore,
    'listDue' | 'claim' | 'release' | 'delivered' | 'retryLater' | 'failed'
  >;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  /** This replica, as the holder of its leases. */
  readonly holder: string;
  /** In [0, 1). */
  readonly random?: () => number;
  /** The way's own where absent; tests wait for less. */
  readonly pollMs?: number;
}

/** @returns how to subscribe no more */
type OnDue = (wake: () => void) => () => void;

export class MessageDelivery {
  readonly #parts: DeliveryParts;
  readonly #way: MessageWay;
  readonly #onDue: OnDue | undefined;
  readonly #places: SharedPlaces;
  readonly #running = new Set<Promise<void>>();
  readonly #cutOff = new AbortController();
  /** Attempts due again before the next poll; at most one a row that failed in that time. */
  readonly #wakes = new Set<NodeJS.Timeout>();
  readonly #loop: RoundLoop;
  #unsubscribe: (() => void) | undefined;
  /** The last round left rows that wait for a place. */
  #waiting = false;

  /** @param onDue what says that a message was written here */
  constructor(parts: DeliveryParts, way: MessageWay, onDue?: OnDue) {
    this.#parts = parts;
    this.#way = way;
    this.#onDue = onDue;
    this.#places = new SharedPlaces(way.places);
    const unreadable = (err: unknown) => way.unreadable(err);
    this.#loop = pollingLoop(way.pollMs, () => this.#round(), unreadable);
  }

  start(): void {
    this.#unsubscribe = this.#onDue?.(() => this.#loop.wake());
    this.#loop.start();
  }

  /** Attempts under way here. */
  get inFlight(): number {
    return this.#running.size;
  }

  /**
   * Claims nothing more, lets attempts end within the limit, gives the rest back. Resolves when
   * none is left. A webhook that a job's end has just left is begun before.
   */
  async stop(limitMs = 0): Promise<void> {
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

  async #round(): Promise<void> {
    this.#waiting = false;
    while (!this.#loop.stopping && (await this.#beginSome()));
  }

  /** True: there may be more that can be begun. */
  async #beginSome(): Promise<boolean> {
    const { kind, secretKeyIds } = this.#way;
    const limit = Math.min(DUE_LISTED_MAX, this.#places.free);
    if (limit <= 0) {
      this.#waiting = true;
      return false;
    }
    // Rows without a place are not listed: no backlog of one receiver hides another's row.
    const full = this.#places.full();
    const { destinations, accounts, uses, slow } = full;
    this.#waiting = [destinations, accounts, uses, slow.accounts].some(some => some.length > 0);
    const due = await this.#parts.outbox.listDue({ kind, limit, secretKeyIds, full });
    const listedAtMs = performance.now();
    const placed = due.filter(message => this.#places.take(useOf(message)));
    this.#waiting ||= placed.length < due.length;
    // Claimed before the next list, or it would find the same rows again.
    const claims = await Promise.allSettled(placed.map(one => this.#claim(one, listedAtMs)));
    const failed = claims.find(claim => claim.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    const begun = claims.some(claim => claim.status === 'fulfilled' && claim.value);
    return due.length === limit && begun;
  }

  /** Begins the attempt if the claim is won; the place is given back otherwise. */
  async #claim(message: DueMessage, listedAtMs: number): Promise<boolean> {
    const { outbox, holder } = this.#parts;
    const claim: MessageClaim = { id: message.id, holder, fence: message.fence + 1 };
    let won = false;
    try {
      won = await outbox.claim(claim, this.#way.leaseMs);
    } finally {
      if (!won) this.#places.end(useOf(message), undefined);
    }
    if (!won) return false;
    const run = this.#deliver({ message, claim, listedAtMs }).finally(() => {
      this.#running.delete(run);
      if (this.#waiting) this.#loop.wake();
    });
    this.#running.add(run);
    return true;
  }

  /** Never rejects. */
  async #deliver(claimed: ClaimedMessage): Promise<void> {
    let slow: boolean | undefined;
    try {
      const attempt = await this.#way.attempt(claimed, this.#cutOff.signal);
      slow = attempt.slow;
      if (attempt.nextInMs !== undefined) this.#wakeIn(attempt.nextInMs);
    } catch (err) {
      this.#way.left(err, claimed.claim.id);
      this.#loop.fault();
    } finally {
      this.#places.end(useOf(claimed.message), slow);
    }
  }

  /** The poll finds what is due later. */
  #wakeIn(waitMs: number): void {
    if (waitMs > this.#way.pollMs || this.#loop.stopping) return;
    const wake = setTimeout(() => {
      this.#wakes.delete(wake);
      this.#loop.wake();
    }, waitMs);
    this.#wakes.add(wake);
  }
}

function useOf({ accountId, receiver }: DueMessage): PlaceUse {
  return { accountId, destination: receiver };
}
