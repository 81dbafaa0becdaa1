/**
 * Sums of an account's entries up to a point of their order, and where such points are set. Pure.
 *
 * A checkpoint holds the sums of all of an account's entries that were created before `closedToMs`.
 * Points are set at the end of every UTC day that has entries, and within a day after
 * CHECKPOINT_ENTRIES_MAX of them, always between two milliseconds: entries of one millisecond are
 * never on two sides.
 */
import { type LedgerKind, type LedgerSums, NO_ENTRIES } from './ledger.ts';

const DAY_MS = 86_400_000;

/** Entries between two checkpoints of an account; more only where one millisecond holds more. */
export const CHECKPOINT_ENTRIES_MAX = 50_000;

export interface LedgerCheckpoint {
  /** UTC milliseconds; entries of this very millisecond are not counted. */
  readonly closedToMs: number;
  /** How many entries are counted, and their amounts by kind: from the account's first on. */
  readonly entries: number;
  readonly sums: LedgerSums;
}

/** Before an account's first entry. */
export const NOTHING_CLOSED: LedgerCheckpoint = { closedToMs: 0, entries: 0, sums: NO_ENTRIES };

/** The end of the UTC day that holds an instant: the first millisecond of the next. */
export function endOfDayMs(atMs: number): number {
  return (Math.floor(atMs / DAY_MS) + 1) * DAY_MS;
}

export function sameSums(one: LedgerCheckpoint, other: LedgerCheckpoint): boolean {
  return one.entries === other.entries && describeSums(one) === describeSums(other);
}

/** For a sentence: `12 entries: grant 10, reserve 6, …`. */
export function describeSums({ entries, sums }: LedgerCheckpoint): string {
  const { grant, reserve, charge, release, revoke } = sums;
  return (
    `${entries} entries: grant ${grant}, reserve ${reserve}, charge ${charge}, ` +
    `release ${release}, revoke ${revoke}`
  );
}

/** Counts an account's entries in their order, from a checkpoint on. */
export class LedgerTally {
  readonly #sums: Record<LedgerKind, number>;
  readonly #spanEntriesMax: number;
  #entries: number;
  /** Entries at the last checkpoint. */
  #closedEntries: number;
  #lastAtMs: number;

  /** @param spanEntriesMax entries between two checkpoints; CHECKPOINT_ENTRIES_MAX but in tests */
  constructor(from: LedgerCheckpoint, spanEntriesMax = CHECKPOINT_ENTRIES_MAX) {
    this.#sums = { ...from.sums };
    this.#entries = from.entries;
    this.#closedEntries = from.entries;
    this.#lastAtMs = from.closedToMs;
    this.#spanEntriesMax = spanEntriesMax;
  }

  /** The next entry in order. */
  add(entry: {
    readonly kind: LedgerKind;
    readonly amount: number;
    readonly createdAtMs: number;
  }): void {
    this.#sums[entry.kind] += entry.amount;
    this.#entries += 1;
    this.#lastAtMs = entry.createdAtMs;
  }

  /**
   * The checkpoint to set once it is known that the next entry is not from before `nextAtMs`.
   * Undefined: none is due.
   */
  due(nextAtMs: number): LedgerCheckpoint | undefined {
    const span = this.#entries - this.#closedEntries;
    if (span === 0) return undefined;
    const dayEndMs = endOfDayMs(this.#lastAtMs);
    if (nextAtMs >= dayEndMs) return this.at(dayEndMs);
    const full = span >= this.#spanEntriesMax && nextAtMs > this.#lastAtMs;
    return full ? this.at(nextAtMs) : undefined;
  }

  /** There is a checkpoint here, ours or another's: the next one's entries count from here. */
  closed(): void {
    this.#closedEntries = this.#entries;
  }

  /** What was counted, as a checkpoint; all of it must be from before `closedToMs`. */
  at(closedToMs: number): LedgerCheckpoint {
    return { closedToMs, entries: this.#entries, sums: { ...this.#sums } };
  }
}
