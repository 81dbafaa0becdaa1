import { forgetOldest } from '@matting/program/caches.ts';

/** The rule of program/semaphore.ts. */
function mayTakeSlot(held: number, free: number): boolean {
  return held < free;
}

export interface SlotLimits {
  readonly max: number;
  readonly destinationMax: number;
  /** Slots of all slow destinations together. */
  readonly slowMax: number;
  /** The oldest is forgotten first. */
  readonly slowDestinationsMax: number;
}

export interface SlotUse {
  readonly accountId: string;
  readonly destination: string;
}

export interface FullSlots {
  /** Destinations without a free slot for any account. */
  readonly destinations: readonly string[];
  /** Accounts without a free slot to any destination. */
  readonly accounts: readonly string[];
  /** Destinations without a free slot for this account. */
  readonly uses: readonly SlotUse[];
  /** These accounts have no free slot to these slow destinations. */
  readonly slow: {
    readonly accounts: readonly string[];
    readonly destinations: readonly string[];
  };
}

export function roomOutside(full: FullSlots) {
  const destinations = new Set(full.destinations);
  const accounts = new Set(full.accounts);
  const uses = new Set(full.uses.map(useKey));
  const slowAccounts = new Set(full.slow.accounts);
  const slow = new Set(full.slow.destinations);
  return {
    forUse: (use: SlotUse) =>
      !destinations.has(use.destination) &&
      !accounts.has(use.accountId) &&
      !uses.has(useKey(use)) &&
      !(slowAccounts.has(use.accountId) && slow.has(use.destination)),
    toDestination: (destination: string) => !destinations.has(destination),
  };
}

function useKey({ accountId, destination }: SlotUse): string {
  return JSON.stringify([accountId, destination]);
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

  keys(): string[] {
    return [...this.#counts.keys()];
  }
}

/**
 * Slots (sockets or files) that accounts share. The rule applies to all slots, to those of one
 * destination, and to those of destinations that were slow or silent last time. So neither an
 * account nor a hanging destination blocks the others.
 */
export class SharedSlots {
  readonly #limits: SlotLimits;
  readonly #accounts = new Counts();
  readonly #destinations = new Counts();
  readonly #uses = new Map<string, Counts>();
  readonly #slow = new Set<string>();
  #taken = 0;

  constructor(limits: SlotLimits) {
    this.#limits = limits;
  }

  get free(): number {
    return this.#limits.max - this.#taken;
  }

  get taken(): number {
    return this.#taken;
  }

  hasRoom(use: SlotUse): boolean {
    const { accountId, destination } = use;
    if (!this.hasRoomFor(accountId) || !this.#destinationHasRoom(use)) return false;
    return !this.#slow.has(destination) || this.#slowHasRoom(accountId);
  }

  hasRoomFor(accountId: string): boolean {
    return mayTakeSlot(this.#accounts.of(accountId), this.free);
  }

  take(use: SlotUse): boolean {
    if (!this.hasRoom(use)) return false;
    this.#count(use, 1);
    return true;
  }

  /** @param slow late or no answer; undefined: unknown */
  end(use: SlotUse, slow: boolean | undefined): void {
    this.#count(use, -1);
    if (slow !== undefined) this.#remember(use.destination, slow);
  }

  full(): FullSlots {
    const accounts = this.#accounts.keys();
    const slowIsFull = this.#slowTaken() >= this.#limits.slowMax;
    const isFull = (destination: string) =>
      this.#destinations.of(destination) >= this.#limits.destinationMax ||
      (slowIsFull && this.#slow.has(destination));
    const destinations = new Set([...this.#destinations.keys(), ...this.#slow]);
    return {
      destinations: [...destinations].filter(isFull),
      accounts: accounts.filter(accountId => !this.hasRoomFor(accountId)),
      uses: this.#allUses().filter(use => !this.#destinationHasRoom(use)),
      slow: {
        accounts: accounts.filter(accountId => !this.#slowHasRoom(accountId)),
        destinations: [...this.#slow],
      },
    };
  }

  fullFor(accountId: string): string[] {
    const slow = this.#slowHasRoom(accountId) ? [] : this.#slow;
    const used = this.#destinations
      .keys()
      .filter(destination => !this.#destinationHasRoom({ accountId, destination }));
    return [...new Set([...used, ...slow])];
  }

  #destinationHasRoom({ accountId, destination }: SlotUse): boolean {
    const free = this.#limits.destinationMax - this.#destinations.of(destination);
    return mayTakeSlot(this.#uses.get(accountId)?.of(destination) ?? 0, free);
  }

  #slowHasRoom(accountId: string): boolean {
    const uses = this.#uses.get(accountId);
    let held = 0;
    for (const destination of this.#slow) held += uses?.of(destination) ?? 0;
    return mayTakeSlot(held, this.#limits.slowMax - this.#slowTaken());
  }

  #slowTaken(): number {
    let taken = 0;
    for (const destination of this.#slow) taken += this.#destinations.of(destination);
    return taken;
  }

  #allUses(): SlotUse[] {
    return [...this.#uses].flatMap(([accountId, counts]) =>
      counts.keys().map(destination => ({ accountId, destination })),
    );
  }

  #count({ accountId, destination }: SlotUse, change: 1 | -1): void {
    this.#taken += change;
    this.#accounts.add(accountId, change);
    this.#destinations.add(destination, change);
    const uses = this.#uses.get(accountId) ?? new Counts();
    uses.add(destination, change);
    if (this.#accounts.of(accountId) === 0) this.#uses.delete(accountId);
    else this.#uses.set(accountId, uses);
  }

  #remember(destination: string, slow: boolean): void {
    this.#slow.delete(destination);
    if (!slow) return;
    this.#slow.add(destination);
    forgetOldest(this.#slow, this.#limits.slowDestinationsMax);
  }
}
