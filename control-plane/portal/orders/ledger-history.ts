/** An account's balance, its ledger by page, and the entries of a period as CSV. */

import { type Balances, LEDGER_KINDS, type LedgerKind } from '@matting/accounts/ledger/ledger.ts';
import type { CoreStores } from '@matting/core/package.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import { yieldToEventLoop } from '@matting/program/event-loop.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { csvLine } from '../page/csv.ts';
import { cursorText, type PageCursor, pageOf } from '../page/paging.ts';

const LINES_PAGE_ROWS = 50;
/** SQLite reads these in about a millisecond. */
const EXPORT_PAGE_ROWS = 500;
/** Exports that a replica runs at once. An account has one. */
const EXPORTS_AT_ONCE_MAX = 4;
/** After this time without a read, an export can lose its slot to another account's. */
const EXPORT_READER_MS_MAX = 5000;
const RETRY_AFTER_S = 10;

/** Days are UTC (`2026-01-31`), both included. */
interface LedgerFilter {
  readonly kind: LedgerKind | undefined;
  readonly from: string | undefined;
  readonly to: string | undefined;
}

export type LedgerLine = Awaited<ReturnType<CoreStores['ledger']['lines']>>[number];

export interface LedgerPage {
  readonly lines: readonly LedgerLine[];
  /** The cursor of the next page. Undefined: there is none. */
  readonly next: string | undefined;
}

type ListedEntry = Awaited<ReturnType<CoreStores['ledger']['list']>>[number];

interface Export {
  /** Since when the lines wait for their reader. Undefined: it is reading. */
  waitsSinceMs: number | undefined;
  ended: boolean;
}

export class LedgerHistory {
  readonly #ledger: CoreStores['ledger'];
  readonly #exportPageRows: number;
  readonly #clockMs: () => number;
  readonly #exporting = new Map<string, Export>();

  constructor(
    { ledger }: { readonly ledger: CoreStores['ledger'] },
    { exportPageRows = EXPORT_PAGE_ROWS, clockMs = () => performance.now() } = {},
  ) {
    this.#ledger = ledger;
    this.#exportPageRows = exportPageRows;
    this.#clockMs = clockMs;
  }

  async balance(accountId: string): Promise<Balances> {
    const balances = await this.#ledger.balances(accountId);
    if (balances === undefined) throw new Error(`the ledger of an unknown account: ${accountId}`);
    return { available: balances.available, reserved: balances.reserved };
  }

  /** @param withReservations includes reservations and releases, if no kind is chosen */
  async page(
    accountId: string,
    { filter, withReservations }: { filter: LedgerFilter; withReservations: boolean },
    after: PageCursor | undefined,
  ): Promise<LedgerPage> {
    const all = withReservations ? LEDGER_KINDS : undefined;
    const found = await this.#ledger.lines(accountId, {
      kinds: filter.kind === undefined ? all : [filter.kind],
      fromMs: 0,
      ...instantsOf(filter),
      after,
      limit: LINES_PAGE_ROWS + 1,
    });
    const { rows: lines, last } = pageOf(found, LINES_PAGE_ROWS);
    return { lines, next: last && cursorText(last) };
  }

  /**
   * Exports CSV (RFC 4180), the latest entries first, without later entries. The export holds a
   * slot until its last line or until `end`, which the caller must call when the reader is gone. If
   * another export needs the slot of a slow reader, the lines break off.
   * @throws ContractError RATE_LIMITED if the account has an export already, SERVICE_UNAVAILABLE if
   * all slots are taken
   */
  export(accountId: string, filter: LedgerFilter) {
    const options = { retryAfterS: RETRY_AFTER_S };
    if (this.#exporting.has(accountId)) {
      throw new ContractError(
        'RATE_LIMITED',
        'Another export of this account is running. Try again later.',
        options,
      );
    }
    if (this.#exporting.size >= EXPORTS_AT_ONCE_MAX && !this.#endLatest()) {
      throw new ContractError(
        'SERVICE_UNAVAILABLE',
        'Too many exports run at once. Try again later.',
        options,
      );
    }
    const own: Export = { waitsSinceMs: this.#clockMs(), ended: false };
    this.#exporting.set(accountId, own);
    const end = () => {
      if (!own.ended) this.#exporting.delete(accountId);
      own.ended = true;
    };
    return { lines: this.#watched(own, this.#csvLines(accountId, filter), end), end };
  }

  /** Ends the export whose reader is slowest. False: all readers read in time. */
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

  /** Releases the slot before the last line, after which a reader may want another export. */
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

  async *#csvLines(accountId: string, filter: LedgerFilter): AsyncGenerator<string, void, void> {
    yield csvLine(['time', 'kind', 'credits', 'reference']);
    let after: PageCursor | undefined;
    for (;;) {
      const page = await this.#list(accountId, filter, after, this.#exportPageRows);
      if (page.length > 0) yield page.map(lineOf).join('');
      if (page.length < this.#exportPageRows) return;
      await yieldToEventLoop();
      after = page.at(-1);
    }
  }

  #list(
    accountId: string,
    filter: LedgerFilter,
    after: PageCursor | undefined,
    limit: number,
  ): Promise<ListedEntry[]> {
    const listing = { kind: filter.kind, ...instantsOf(filter), after, limit };
    return this.#ledger.list(accountId, listing);
  }
}

function instantsOf({ from, to }: LedgerFilter) {
  return {
    ...(from === undefined ? {} : { fromMs: Date.parse(from) }),
    beforeMs: to === undefined ? undefined : Date.parse(to) + DAY_MS,
  };
}

function lineOf({ atMs, kind, amount, reference }: ListedEntry): string {
  return csvLine([new Date(atMs).toISOString(), kind, amount, reference]);
}
