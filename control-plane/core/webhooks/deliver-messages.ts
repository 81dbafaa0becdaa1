/**
 * Leases a row of the outbox once its receiver has a free slot, sends it and writes the attempt's
 * end. So a message arrives at least once; it arrives twice only if the process died, or the
 * database was away, between the answer and the write.
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
  /** null: no HTTP answer came. */
  readonly statusCode: number | null;
  readonly error?: string | undefined;
  readonly durationMs: number;
}

/**
 * Each method resolves with false, and changes nothing, if the claim was lost. `giveUp`: as in
 * database.ts.
 */
export interface MessageLeases {
  /** False: another replica has the message, or it is not due. */
  claim(claim: MessageClaim, leaseMs: number): Promise<boolean>;
  /** The message stays due. */
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
  /** By performance.now(), taken after the database answered. */
  readonly listedAtMs: number;
}

export interface AttemptResult {
  /** The receiver answered late or not at all; undefined: unknown. */
  readonly slow: boolean | undefined;
  readonly nextInMs: number | undefined;
}

interface MessageChannel {
  readonly kind: MessageKind;
  /** Longest delay of a message that another replica wrote. */
  readonly pollMs: number;
  /** The longest attempt and time to write its outcome. */
  readonly leaseMs: number;
  readonly slots: SlotLimits;
  readonly secretKeyIds: readonly string[];
  /**
   * If it rejects, the lease runs out and the message is sent again.
   * @param cutOff if it aborts, the attempt releases the message
   */
  attempt(claimed: ClaimedMessage, cutOff: AbortSignal): Promise<AttemptResult>;
  unreadable(err: unknown): void;
  attemptLost(err: unknown, id: string): void;
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
  readonly #channel: MessageChannel;
  readonly #onDue: OnDue | undefined;
  readonly #slots: SharedSlots;
  readonly #running = new Set<Promise<void>>();
  readonly #cutOff = new AbortController();
  /** Timers of retries due before the next poll; at most one for each row that failed meanwhile. */
  readonly #wakes = new Set<NodeJS.Timeout>();
  readonly #loop: RoundLoop;
  #unsubscribe: (() => void) | undefined;
  #waiting = false;

  /** @param onDue subscribes to messages that this process writes */
  constructor(parts: DeliveryParts, channel: MessageChannel, onDue?: OnDue) {
    this.#parts = parts;
    this.#channel = channel;
    this.#onDue = onDue;
    this.#slots = new SharedSlots(channel.slots);
    const unreadable = (err: unknown) => channel.unreadable(err);
    this.#loop = pollingLoop(channel.pollMs, () => this.#round(), unreadable);
  }

  start(): void {
    this.#unsubscribe = this.#onDue?.(() => this.#loop.wake());
    this.#loop.start();
  }

  get inFlight(): number {
    return this.#running.size;
  }

  /** Claims nothing more, and releases what is left at the limit. */
  async stop(limitMs = 0): Promise<void> {
    await this.#loop.roundUnderWay();
    this.#unsubscribe?.();
    for (const wake of this.#wakes) clearTimeout(wake);
    await this.#loop.stop();
    const limit = setTimeout(() => this.hurry(), limitMs);
    await Promise.all(this.#running);
    clearTimeout(limit);
  }

  hurry(): void {
    void this.#loop.stop();
    this.#cutOff.abort();
  }

  async #round(): Promise<void> {
    this.#waiting = false;
    while (!this.#loop.stopping && (await this.#beginSome()));
  }

  /** True: there may be more to begin. */
  async #beginSome(): Promise<boolean> {
    const { kind, secretKeyIds } = this.#channel;
    const limit = Math.min(DUE_LISTED_MAX, this.#slots.free);
    if (limit <= 0) {
      this.#waiting = true;
      return false;
    }
    // Leaves out full receivers, so that their backlog hides no other row.
    const full = this.#slots.full();
    const { destinations, accounts, uses, slow } = full;
    this.#waiting = [destinations, accounts, uses, slow.accounts].some(some => some.length > 0);
    const due = await this.#parts.outbox.listDue({ kind, limit, secretKeyIds, full });
    const listedAtMs = performance.now();
    const admitted = due.filter(message => this.#slots.take(useOf(message)));
    this.#waiting ||= admitted.length < due.length;
    // The claims precede the next listing, which would find the same rows.
    const claims = await Promise.allSettled(admitted.map(one => this.#claim(one, listedAtMs)));
    const failed = claims.find(claim => claim.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    const begun = claims.some(claim => claim.status === 'fulfilled' && claim.value);
    return due.length === limit && begun;
  }

  async #claim(message: DueMessage, listedAtMs: number): Promise<boolean> {
    const { outbox, holder } = this.#parts;
    const claim: MessageClaim = { id: message.id, holder, fence: message.fence + 1 };
    let won = false;
    try {
      won = await outbox.claim(claim, this.#channel.leaseMs);
    } finally {
      if (!won) this.#slots.end(useOf(message), undefined);
    }
    if (!won) return false;
    const run = this.#deliver({ message, claim, listedAtMs }).finally(() => {
      this.#running.delete(run);
      if (this.#waiting) this.#loop.wake();
    });
    this.#running.add(run);
    return true;
  }

  async #deliver(claimed: ClaimedMessage): Promise<void> {
    let slow: boolean | undefined;
    try {
      const attempt = await this.#channel.attempt(claimed, this.#cutOff.signal);
      slow = attempt.slow;
      if (attempt.nextInMs !== undefined) this.#wakeIn(attempt.nextInMs);
    } catch (err) {
      this.#channel.attemptLost(err, claimed.claim.id);
      this.#loop.fault();
    } finally {
      this.#slots.end(useOf(claimed.message), slow);
    }
  }

  #wakeIn(waitMs: number): void {
    if (waitMs > this.#channel.pollMs || this.#loop.stopping) return;
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
