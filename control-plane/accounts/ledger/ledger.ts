/**
 * The rules of the ledger. One unit is one credit. Every entry moves a positive whole number of
 * them between two of an account's four sides, so at every instant
 *
 *     available + reserved + charged = granted - revoked
 *
 * | kind    | from -> to             | slot    | reference            | written with            |
 * |---------|------------------------|---------|----------------------|-------------------------|
 * | grant   | (issued) -> available  | grant   | the operator's       | a purchase, a gift,     |
 * |         |                        |         |                      | a lost result           |
 * | revoke  | available -> (issued)  | revoke  | the operator's       | a correction            |
 * | reserve | available -> reserved  | reserve | the job              | the job's row           |
 * | charge  | reserved -> (charged)  | settle  | the job              | state = succeeded       |
 * | release | reserved -> available  | settle  | the job              | state = failed          |
 *
 * A job not yet created has its reserve under its id (docs/adr/0054). (account, slot, reference) is
 * unique, so a job is reserved once and either charged or released once, and a grant cannot be
 * entered twice.
 */
export const LEDGER_KINDS = ['grant', 'reserve', 'charge', 'release', 'revoke'] as const;
export type LedgerKind = (typeof LEDGER_KINDS)[number];
export type LedgerSlot = 'grant' | 'revoke' | 'reserve' | 'settle';

export const SLOT_OF: Readonly<Record<LedgerKind, LedgerSlot>> = {
  grant: 'grant',
  revoke: 'revoke',
  reserve: 'reserve',
  charge: 'settle',
  release: 'settle',
};

/** The price of every job, so `accounts.reserved` is also a number of jobs. */
export const CREDITS_PER_JOB = 1;

/** This bound of one entry keeps sums of millions of entries exact as JavaScript numbers. */
export const CREDITS_AMOUNT_MAX = 1_000_000_000;

type LedgerSums = Readonly<Record<LedgerKind, number>>;

export interface Balances {
  readonly available: number;
  readonly reserved: number;
}

export function balancesFrom(sums: LedgerSums): Balances {
  return {
    available: sums.grant - sums.revoke - sums.reserve + sums.release,
    reserved: sums.reserve - sums.charge - sums.release,
  };
}

/** @returns the differences between stored balances, entries and open paid jobs */
export function imbalances(stored: Balances, sums: LedgerSums, openJobs: number): string[] {
  const derived = balancesFrom(sums);
  const problems: string[] = [];
  for (const side of ['available', 'reserved'] as const) {
    if (stored[side] !== derived[side]) {
      problems.push(`${side} is ${stored[side]}, its ledger says ${derived[side]}`);
    }
    if (derived[side] < 0) problems.push(`its ledger makes ${side} negative (${derived[side]})`);
  }
  if (stored.reserved !== openJobs * CREDITS_PER_JOB) {
    problems.push(`reserved is ${stored.reserved}, its open jobs hold ${openJobs}`);
  }
  return problems;
}

/**
 * The reference of the grant that returns the credit of a lost result. A charge is never released.
 */
export function lostReferenceOf(jobId: string): string {
  return `lost:${jobId}`;
}

export function isCreditAmount(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 1 && value <= CREDITS_AMOUNT_MAX;
}

/**
 * True for 1 to 128 printable ASCII characters without spaces at the ends: all collations compare
 * those alike.
 */
export function isLedgerReference(value: string): boolean {
  return /^[\x21-\x7e](?:[\x20-\x7e]{0,126}[\x21-\x7e])?$/.test(value);
}

const RESERVED = [
  /^(?:order|lost):[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/,
  /^(?:refund|released):[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}:/,
];

export function isReservedReference(reference: string): boolean {
  return RESERVED.some(form => form.test(reference));
}
