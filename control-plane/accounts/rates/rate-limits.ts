/**
 * Rate limits of accounts and keys. They lease blocks of the quota from the database
 * (rate-windows.ts); a request causes a statement only if its block is spent.
 */

import {
  type Database,
  type Db,
  OvertakenError,
  query,
  readNowMs,
} from '@matting/database/database.ts';
import { isInserted, matchesOne } from '@matting/database/statements.ts';
import { forgetOldest } from '@matting/program/caches.ts';
import { outsideRequests } from '@matting/program/request-owner.ts';
import {
  leaseQuota,
  type QuotaAsk,
  type QuotaLease,
  quotaBlockOf,
  quotaWindowStartMs,
  RATE_WINDOW_MS,
  type RateKind,
} from './rate-windows.ts';

type RateQuotaStore = ReturnType<typeof createRateQuotaStore>;

export function createRateQuotaStore(database: Database) {
  return {
    nowMs: () => readNowMs(database),
    lease: (accountId: string, kind: RateKind, ask: QuotaAsk) =>
      query(database, db => leaseFrom(database, db, accountId, kind, ask)),
  };
}

/**
 * After a lost answer it leases again: a block is lost, but none is granted twice.
 * @throws OvertakenError another replica was faster
 */
async function leaseFrom(
  database: Database,
  db: Db,
  accountId: string,
  kind: RateKind,
  ask: QuotaAsk,
): Promise<QuotaLease> {
  const row = await db
    .selectFrom('rate_quotas')
    .select(['window_start', 'leased', database.nowMs.as('now')])
    .where('account_id', '=', accountId)
    .where('kind', '=', kind)
    .executeTakeFirst();
  if (row === undefined) {
    const values = { account_id: accountId, kind, window_start: 0, leased: 0 };
    await isInserted(db.insertInto('rate_quotas').values(values).execute());
    throw new OvertakenError('the row of the quota was made just now');
  }
  const lease = leaseQuota({ windowStartMs: row.window_start, leased: row.leased }, ask, row.now);
  const { windowStartMs, leased } = lease;
  if (windowStartMs === row.window_start && leased === row.leased) return lease;
  const update = db
    .updateTable('rate_quotas')
    .set({ window_start: windowStartMs, leased })
    .where('account_id', '=', accountId)
    .where('kind', '=', kind)
    .where('window_start', '=', row.window_start)
    .where('leased', '=', row.leased);
  if (!(await matchesOne(update))) throw new OvertakenError('another replica leased of the quota');
  return lease;
}

/*
 * A share is an account's or a key's part of the current window at this replica:
 *
 * | state     | entered by                       | left by                                |
 * |-----------|----------------------------------|----------------------------------------|
 * | advance   | the first request of the window  | a block spent (to leasing)             |
 * | leasing   | a block spent                    | a block granted, or none (exhausted)   |
 * | granted   | the lease                        | the block spent (to leasing)           |
 * | exhausted | a lease of nothing               | the window's end                       |
 */

/** At the bound the oldest share of the window goes, and with it one block at most. */
const SHARES_MAX = 100_000;

export interface RateState {
  readonly allowed: boolean;
  readonly limit: number;
  readonly windowS: number;
  readonly remaining: number;
  /** Seconds until the window's end, from 1 to the window. */
  readonly resetS: number;
}

interface Quota {
  readonly ownerId: string;
  readonly kind: RateKind;
  /** Requests per window. A key's limit may change within one. */
  readonly limit: number;
}

interface Share {
  /** Requests that this replica may answer without a statement. */
  left: number;
  /** Requests granted in advance, which the database does not have yet. */
  advance: number;
  /** What all replicas had leased at the last lease. */
  leased: number;
  exhausted: boolean;
  leasing: Promise<void> | undefined;
}

interface Window {
  readonly startMs: number;
  endsAtMs: number;
  readonly shares: Map<string, Share>;
}

export class RateLimits {
  readonly #quotas: RateQuotaStore;
  readonly #limits: Readonly<Record<RateKind, number>>;
  #window: Window | undefined;
  #learning: Promise<void> | undefined;

  constructor(quotas: RateQuotaStore, limits: Readonly<Record<RateKind, number>>) {
    this.#quotas = quotas;
    this.#limits = limits;
  }

  take(accountId: string, kind: RateKind): Promise<RateState> {
    return this.#take({ ownerId: accountId, kind, limit: this.#limits[kind] });
  }

  takeOfKey(apiKeyId: string, limit: number): Promise<RateState> {
    return this.#take({ ownerId: apiKeyId, kind: 'submissions', limit });
  }

  async #take(quota: Quota): Promise<RateState> {
    for (;;) {
      const window = this.#window;
      if (window === undefined || performance.now() >= window.endsAtMs) {
        this.#learning ??= outsideRequests(() => this.#learnWindow()).finally(() => {
          this.#learning = undefined;
        });
        await this.#learning;
        continue;
      }
      const share = this.#shareOf(window, quota);
      if (share.left > 0) {
        share.left -= 1;
        return this.#stateOf(window, share, quota, true);
      }
      if (share.exhausted) return this.#stateOf(window, share, quota, false);
      share.leasing ??= outsideRequests(() => this.#lease(window, share, quota)).finally(() => {
        share.leasing = undefined;
      });
      await share.leasing;
    }
  }

  #shareOf(window: Window, { ownerId, kind, limit }: Quota): Share {
    const name = `${kind} ${ownerId}`;
    const known = window.shares.get(name);
    if (known !== undefined) return known;
    const block = quotaBlockOf(limit);
    const advanced = { left: block, advance: block, leased: block };
    const advance: Share = { ...advanced, exhausted: false, leasing: undefined };
    window.shares.set(name, advance);
    forgetOldest(window.shares, SHARES_MAX);
    return advance;
  }

  #stateOf({ endsAtMs }: Window, share: Share, { limit }: Quota, allowed: boolean): RateState {
    const windowS = RATE_WINDOW_MS / 1000;
    const resetS = Math.ceil((endsAtMs - performance.now()) / 1000);
    return {
      allowed,
      limit,
      windowS,
      remaining: Math.max(0, limit - share.leased) + share.left,
      resetS: Math.min(windowS, Math.max(1, resetS)),
    };
  }

  async #lease(window: Window, share: Share, { ownerId, kind, limit }: Quota): Promise<void> {
    const { startMs: windowStartMs } = window;
    const { advance } = share;
    const ask = { limit, block: quotaBlockOf(limit), advance, windowStartMs };
    const lease = await this.#quotas.lease(ownerId, kind, ask);
    if (lease.windowStartMs !== windowStartMs) {
      // The window ended, or somebody set the database's clock, so read the clock again.
      window.endsAtMs = 0;
      return;
    }
    share.advance = 0;
    share.left += lease.granted;
    share.leased = lease.leased;
    share.exhausted = lease.granted === 0;
  }

  async #learnWindow(): Promise<void> {
    const nowMs = await this.#quotas.nowMs();
    const startMs = quotaWindowStartMs(nowMs);
    // This end is late by the time that the answer took, never early. A lease notices if the window
    // ended before.
    const endsAtMs = performance.now() + startMs + RATE_WINDOW_MS - nowMs;
    if (this.#window?.startMs === startMs) this.#window.endsAtMs = endsAtMs;
    else this.#window = { startMs, endsAtMs, shares: new Map() };
  }
}
