/** The use cases behind /v1/account. */
import type { ApiKeyStore } from '../keys/api-key-store.ts';
import type { ApiKeyOwner } from '../keys/authenticate.ts';
import { keyView } from '../keys/manage-keys.ts';
import type { LedgerStore } from '../ledger/ledger-store.ts';

/** An API key that is known and not revoked. */
export type Caller = ApiKeyOwner;

export type Authenticator = Pick<ApiKeyStore, 'authenticate'>;

export interface Credits {
  /** What may still be reserved. */
  readonly available: number;
  /** Held by open jobs, one each. */
  readonly reserved: number;
}

export class ReadAccount {
  readonly #ledger: Pick<LedgerStore, 'balances'>;
  readonly #apiKeys: Pick<ApiKeyStore, 'list'>;

  constructor(ledger: Pick<LedgerStore, 'balances'>, apiKeys: Pick<ApiKeyStore, 'list'>) {
    this.#ledger = ledger;
    this.#apiKeys = apiKeys;
  }

  async view(caller: Caller) {
    return { credits: await this.credits(caller) };
  }

  async credits({ accountId }: Caller): Promise<Credits> {
    const balances = await this.#ledger.balances(accountId);
    // Accounts are never removed.
    if (balances === undefined) throw new Error(`the API key of an unknown account: ${accountId}`);
    return { available: balances.available, reserved: balances.reserved };
  }

  /** Those of the caller's account, oldest first, revoked ones too; none can be used as a key. */
  async keys({ accountId }: Caller) {
    const keys = await this.#apiKeys.list(accountId);
    return { keys: keys.map(keyView) };
  }
}
