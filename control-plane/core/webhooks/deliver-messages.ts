/**
 * Delivers messages of one kind: the loop behind every callback_url, and that of mails. A row of
 * the outbox is claimed under a lease when there is a place for its receiver, sent, and its
 * attempt's end written. So it arrives at least once whatever dies, and twice only where a process
 * died, or the database stayed away, between the receiver's answer and the row.
 *
 * It reads the outbox when a job that ended here left a webhook, when a place became free and rows
 * are known to wait, when an attempt is due again before the next poll, and at each poll for what
 * other replicas left (database/round-loop.ts).
 */

import { pollingLoop, type RoundLoop } from '@matting/database/round-loop.ts';
import { SharedSlots, type SlotLimits, type SlotUse } from '@matting/http/outgoing/shared-slots.ts';
import type { Logger } from 'pino';
import { DUE_LISTED_MAX, type DueMessage, type dueMessages } from './due-messages.ts';
import type { MessageKind } from './lane-walk.ts';

export interface MessageClaim {
  readonly id: string;
  readonly holder: string;
  readonly fence: number;
}

export interface AttemptEnd {
  /** null: there was no answer, or it was no HTTP. */
  readonly statusCode: number | null;
  /** Why the message was not delivered; absent if it was. */
  readonly error?: string | undefined;
  readonly durationMs: number;
}

/** Each is false, and changes nothing, where the claim was lost. `giveUp`: as in JobStore. */
export interface MessageLeases {
  /** False: somebody else has it, or its time is not now. */
  claim(claim: MessageClaim, leaseMs: number): Promise<boolean>;
  /** Gives it back: its time is still now. */
  release(claim: MessageClaim, giveUp?: AbortSignal): Promise<boolean>;
  delivered(claim: MessageClaim, end: AttemptEnd, giveUp?: AbortSignal): Promise<boolean>;
  retryLater(
    claim: MessageClaim,
    end: AttemptEnd,
    waitMs: number,
    giveUp?: AbortSignal,
  ): Promise<boolean>;
  failed(
    claim: MessageClaim,
    end: AttemptEnd,
    how: { readonly eraseSecret: boolean },
    giveUp?: AbortSignal,
  ): Promise<boolean>;
}

export interface ClaimedMessage {
  readonly message: DueMessage;
  readonly claim: MessageClaim;
  /** The message was read then, by performance.now(): no later than the answer came. */
  readonly listedAtMs: number;
}

export interface AttemptResult {
  /** No answer came, or late; undefined: unknown. */
  readonly slow: boolean | undefined;
  readonly nextInMs: number | undefined;
}

interface MessageWay {
  readonly kind: MessageKind;
  /** A message of another replica waits this long at most before it is seen here. */
  readonly pollMs: number;
  /** The longest an attempt takes, and time to write its end. */
  readonly leaseMs: number;
  readonly places: SlotLimits;
  /** Keys that open here the secrets of deliveries; mails need none. */
  readonly secretKeyIds: readonly string[];
  /**
   * Sends it and writes the attempt's end. Rejects where the database stays away, or for a bug: the
   * lease runs out, and it is sent again.
   * @param cutOff aborts: give it back
   */
  attempt(claimed: ClaimedMessage, cutOff: AbortSignal): Promise<AttemptResult>;
  unreadable(err: unknown): void;
  left(err: unknown, id: string): void;
}

export interface DeliveryParts {
  readonly outbox: Pick<ReturnType<typeof dueMessages>, 'listDue'> & MessageLeases;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  readonly holder: string;
  readonly random?: () => number;
  readonly pollMs?: number;
}

type OnDue = (wake: () => void) => () => void;

export class MessageDelivery {
  readonly #parts: DeliveryParts;
  readonly #way: MessageWay;
  readonly #onDue: OnDue | undefined;
  readonly #places: SharedSlots;
  readonly #running = new Set<Promise<void>>();
  readonly #cutOff = new AbortController();
  /** Attempts due again before the next poll; at most one a row that failed in that time. */
  readonly #wakes = new Set<NodeJS.Timeout>();
  readonly #loop: RoundLoop;
  #unsubscribe: (() => void) | undefined;
  #waiting = false;

  /** @param onDue what says that a message was written here */
  constructor(parts: DeliveryParts, way: MessageWay, onDue?: OnDue) {
    this.#parts = parts;
    this.#way = way;
    this.#onDue = onDue;
    this.#places = new SharedSlots(way.places);
    const unreadable = (err: unknown) => way.unreadable(err);
    this.#loop = pollingLoop(way.pollMs, () => this.#round(), unreadable);
  }

  start(): void {
    this.#unsubscribe = this.#onDue?.(() => this.#loop.wake());
    this.#loop.start();
  }

  get inFlight(): number {
    return this.#running.size;
  }

  /** Begins what a job's end just left, claims nothing more, gives back the rest at the limit. */
  async stop(limitMs = 0): Promise<void> {
    await this.#loop.roundUnderWay();
    this.#unsubscribe?.();
    for (const wake of this.#wakes) clearTimeout(wake);
    await this.#loop.stop();
    const limit = setTimeout(() => this.hurry(), limitMs);
    await Promise.all(this.#running);
    clearTimeout(limit);
  }

  /** Gives back now what is under way. */
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

  #wakeIn(waitMs: number): void {
    if (waitMs > this.#way.pollMs || this.#loop.stopping) return;
    const wake = setTimeout(() => {
      this.#wakes.delete(wake);
      this.#loop.wake();
    }, waitMs);
    this.#wakes.add(wake);
  }
}

function useOf({ accountId, receiver }: DueMessage): SlotUse {
  return { accountId, destination: receiver };
}
