/**
 * How many notifications are under way, in all and to whom. A receiver that hangs keeps its places
 * for the length of every time-out; these bounds leave the others theirs:
 *
 * - a receiver (host and port) has at most RECEIVER_MAX;
 * - an account has at most half of all, however many receivers its names stand for;
 * - receivers that were slow or silent the last time share half of all, so that one not known to be
 *   so always finds room beside any number of dead ones.
 */

export interface SlotLimits {
  readonly max: number;
  readonly receiverMax: number;
  readonly accountMax: number;
  /** Of all receivers remembered as slow together. */
  readonly slowMax: number;
  /** Receivers remembered as slow; the one longest remembered is forgotten first. */
  readonly slowReceiversMax: number;
}

/** A place is a socket and about 20 KB. */
export const SLOT_LIMITS: SlotLimits = {
  max: 128,
  receiverMax: 8,
  accountMax: 64,
  slowMax: 64,
  slowReceiversMax: 256,
};

export interface Destination {
  readonly receiver: string;
  readonly accountId: string;
}

class Counts {
  readonly #counts = new Map<string, number>();

  of(key: string): number {
    return this.#counts.get(key) ?? 0;
  }

  add(key: string, change: 1 | -1): void {
    const count = this.of(key) + change;
    if (count === 0) this.#counts.delete(key);
    else this.#counts.set(key, count);
  }

  atLeast(bound: number): string[] {
    return [...this.#counts].filter(([, count]) => count >= bound).map(([key]) => key);
  }
}

export class ReceiverSlots {
  readonly #limits: SlotLimits;
  readonly #receivers = new Counts();
  readonly #accounts = new Counts();
  readonly #slow = new Set<string>();
  #taken = 0;

  constructor(limits: SlotLimits = SLOT_LIMITS) {
    this.#limits = limits;
  }

  get free(): number {
    return this.#limits.max - this.#taken;
  }

  get taken(): number {
    return this.#taken;
  }

  /** False: there is no place for it now. */
  take({ receiver, accountId }: Destination): boolean {
    const { receiverMax, accountMax } = this.#limits;
    if (this.free <= 0 || this.#receivers.of(receiver) >= receiverMax) return false;
    if (this.#accounts.of(accountId) >= accountMax) return false;
    if (this.#slow.has(receiver) && this.#slowAreFull()) return false;
    this.#taken += 1;
    this.#receivers.add(receiver, 1);
    this.#accounts.add(accountId, 1);
    return true;
  }

  /** @param slow no answer came, or late; undefined where nobody can say */
  end({ receiver, accountId }: Destination, slow: boolean | undefined): void {
    this.#taken -= 1;
    this.#receivers.add(receiver, -1);
    this.#accounts.add(accountId, -1);
    if (slow !== undefined) this.#remember(receiver, slow);
  }

  /** Whom no place can be had for now. */
  full(): { readonly receivers: string[]; readonly accounts: string[] } {
    const { receiverMax, accountMax } = this.#limits;
    const receivers = this.#receivers.atLeast(receiverMax);
    if (this.#slowAreFull()) receivers.push(...this.#slow);
    return {
      receivers: [...new Set(receivers)],
      accounts: this.#accounts.atLeast(accountMax),
    };
  }

  #slowAreFull(): boolean {
    let taken = 0;
    for (const receiver of this.#slow) taken += this.#receivers.of(receiver);
    return taken >= this.#limits.slowMax;
  }

  #remember(receiver: string, slow: boolean): void {
    this.#slow.delete(receiver);
    if (!slow) return;
    this.#slow.add(receiver);
    if (this.#slow.size <= this.#limits.slowReceiversMax) return;
    for (const oldest of this.#slow) {
      this.#slow.delete(oldest);
      return;
    }
  }
}
