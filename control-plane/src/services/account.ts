/**
 * Who a caller is and what the account has: the use cases behind authentication and /v1/account.
 */
import type { ApiKeyOwner, ApiKeyStore } from '../store/api-key-store.ts';
import type { LedgerStore } from '../store/ledger-store.ts';

/** An API key that is known and not revoked. */
export type Caller = ApiKeyOwner;

export type Authenticator = Pick<ApiKeyStore, 'authenticate'>;

export interface Credits {
  /** What may still be reserved. */
  readonly available: number;
  /** Held by open jobs, one each. */
  readonly reserved: number;
}

/** What GET /v1/account answers. */
export interface AccountView {
  readonly credits: Credits;
}

export class ReadAccount {
  readonly #ledger: Pick<LedgerStore, 'balances'>;

  constructor(ledger: Pick<LedgerStore, 'balances'>) {
    this.#ledger = ledger;
  }

  async view(caller: Caller): Promise<AccountView> {
    return { credits: await this.credits(caller) };
  }

  async credits({ accountId }: Caller): Promise<Credits> {
    const balances = await this.#ledger.balances(accountId);
    // Accounts are never removed.
    if (balances === undefined) throw new Error(`the API key of an unknown account: ${accountId}`);
    return { available: balances.available, reserved: balances.reserved };
  }
}
