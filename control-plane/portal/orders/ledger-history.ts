/** An account's ledger for its people: a balance, pages, and all of a period as CSV. */
import { ContractError } from '#contract/errors.ts';
import type { Credits } from '../../core/accounts/account.ts';
import type { LedgerKind } from '../../core/ledger/ledger.ts';
import type { PagePlace } from '../../core/ledger/ledger-pages.ts';
import type { LedgerStore, ListedEntry } from '../../core/ledger/ledger-store.ts';

/** Entries of one page. */
export const ENTRIES_PAGE_ROWS = 50;
/** Entries of one statement of an export: about a millisecond on SQLite. */
const EXPORT_PAGE_ROWS = 500;
/** Exports of a replica at once; an account has one. */
export const EXPORTS_AT_ONCE_MAX = 4;
/** One whose reader has asked for nothing for as long gives its place to another account's. */
export const EXPORT_READER_MS_MAX = 5000;
const RETRY_AFTER_S = 10;

const DAY_MS = 86_400_000;

/** Which entries: of a kind, of days (UTC, `2026-01-31`), both ends included. */
export interface LedgerFilter {
  readonly kind: LedgerKind | undefined;
  readonly from: string | undefined;
  readonly to: string | undefined;
}

export interface LedgerPage {
  readonly entries: readonly ListedEntry[];
  /** Where the next page begins; undefined: there is none. */
  readonly next: string | undefined;
}

interface Export {
  /** Since when its lines wait for their reader; undefined: they are being read. */
  waitsSinceMs: number | undefined;
  ended: boolean;
}

export class LedgerHistory {
  readonly #ledger: LedgerStore;
  readonly #exportPageRows: number;
  readonly #clockMs: () => number;
  /** By account. */
  readonly #exporting = new Map<string, Export>();

  /** @param clockMs milliseconds of a clock that never goes back */
  constructor(
    ledger: LedgerStore,
    { exportPageRows = EXPORT_PAGE_ROWS, clockMs = () => performance.now() } = {},
  ) {
    this.#ledger = ledger;
    this.#exportPageRows = exportPageRows;
    this.#clockMs = clockMs;
  }

  async balance(accountId: string): Promise<Credits> {
    const balances = await this.#ledger.balances(accountId);
    // Accounts are never removed.
    if (balances === undefined) throw new Error(`the ledger of an unknown account: ${accountId}`);
    return { available: balances.available, reserved: balances.reserved };
  }

  /** The latest entries first. */
  async page(
    accountId: string,
    filter: LedgerFilter,
    after: PagePlace | undefined,
  ): Promise<LedgerPage> {
    const page = await this.#list(accountId, filter, after, ENTRIES_PAGE_ROWS + 1);
    const entries = page.slice(0, ENTRIES_PAGE_ROWS);
    const last = page.length > ENTRIES_PAGE_ROWS ? entries.at(-1) : undefined;
    return { entries, next: last && placeText(last) };
  }

  /**
   * Begins an export: `lines` are CSV (RFC 4180), the latest entries first, as they are read; what
   * is entered meanwhile is not among them. Its place is held until the last line or `end`, to be
   * called when its reader is gone, whatever it has read; or until another's needs it and this one's
   * reader is late: its lines then break off.
   * @throws ContractError RATE_LIMITED while the account has another, SERVICE_UNAVAILABLE while
   * others have all places
   */
  export(accountId: string, filter: LedgerFilter) {
    const options = { retryAfterS: RETRY_AFTER_S };
    if (this.#exporting.has(accountId)) {
      throw new ContractError('RATE_LIMITED', 'another export is under way', options);
    }
    if (this.#exporting.size >= EXPORTS_AT_ONCE_MAX && !this.#endLatest()) {
      throw new ContractError('SERVICE_UNAVAILABLE', 'too many exports at once', options);
    }
    const own: Export = { waitsSinceMs: this.#clockMs(), ended: false };
    this.#exporting.set(accountId, own);
    const end = () => {
      if (!own.ended) this.#exporting.delete(accountId);
      own.ended = true;
    };
    return { lines: this.#watched(own, this.#lines(accountId, filter), end), end };
  }

  /** Takes the place of the export whose reader is latest; false: all of them are read. */
  #endLatest(): boolean {
    const lateMs = this.#clockMs() - EXPORT_READER_MS_MAX;
    let latest: [string, Export] | undefined;
    for (const entry of this.#exporting) {
      const sinceMs = entry[1].waitsSinceMs ?? Number.POSITIVE_INFINITY;
      if (sinceMs <= (latest?.[1].waitsSinceMs ?? lateMs)) latest = entry;
    }
    if (latest === undefined) return false;
    latest[1].ended = true;
    return this.#exporting.delete(latest[0]);
  }

  /** The place is given back before the reader knows that there is no more, who may ask again. */
  async *#watched(
    own: Export,
    lines: AsyncGenerator<string, void, void>,
    end: () => void,
  ): AsyncGenerator<string, void, void> {
    own.waitsSinceMs = undefined;
    try {
      for await (const text of lines) {
        own.waitsSinceMs = this.#clockMs();
        yield text;
        own.waitsSinceMs = undefined;
        if (own.ended) throw new Error('the reader of an export was late, and others waited');
      }
    } finally {
      end();
    }
  }

  async *#lines(accountId: string, filter: LedgerFilter): AsyncGenerator<string, void, void> {
    yield csvLine(['time', 'kind', 'credits', 'reference']);
    let after: PagePlace | undefined;
    for (;;) {
      const page = await this.#list(accountId, filter, after, this.#exportPageRows);
      if (page.length > 0) yield page.map(lineOf).join('');
      if (page.length < this.#exportPageRows) return;
      after = page.at(-1);
    }
  }

  #list(
    accountId: string,
    { kind, from, to }: LedgerFilter,
    after: PagePlace | undefined,
    limit: number,
  ): Promise<ListedEntry[]> {
    const fromMs = from === undefined ? undefined : Date.parse(from);
    const beforeMs = to === undefined ? undefined : Date.parse(to) + DAY_MS;
    const listing = { kind, fromMs, beforeMs, after, limit };
    return this.#ledger.list(accountId, listing);
  }
}

function lineOf({ atMs, kind, amount, reference }: ListedEntry): string {
  return csvLine([new Date(atMs).toISOString(), kind, amount, reference]);
}

/**
 * What a spreadsheet takes for the beginning of a formula, as OWASP lists it: the signs of full
 * width too, which it reads as those of ASCII where its language is Chinese or Japanese.
 */
const FORMULA = /^[=+\-@\t\r\n＝＋－＠]/;

/**
 * Numbers stay numbers. Text is quoted; where it begins like a formula, an apostrophe goes before
 * it (OWASP, CSV injection).
 */
export function csvLine(cells: readonly (string | number)[]): string {
  const text = cells.map(cell => {
    if (typeof cell === 'number') return String(cell);
    const safe = FORMULA.test(cell) ? `'${cell}` : cell;
    return `"${safe.replaceAll('"', '""')}"`;
  });
  return `${text.join(',')}\r\n`;
}

const PLACE = /^(\d{1,15})-([0-9a-z]{1}[0-9a-f]{7}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

export function placeText({ atMs, id }: PagePlace): string {
  return `${atMs}-${id}`;
}

/** Undefined: it is none. */
export function parsePlace(text: string): PagePlace | undefined {
  const [, atMs, id] = PLACE.exec(text) ?? [];
  return id === undefined ? undefined : { atMs: Number(atMs), id };
}
