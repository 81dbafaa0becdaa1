import { type Balances, CREDITS_PER_JOB } from '../ledger/ledger.ts';
import type { LedgerStore } from '../ledger/ledger-store.ts';
import type { ApiKeyOwner } from './api-key-cache.ts';
import type { ApiKeyStore } from './api-key-store.ts';
import { capReached } from './key-policy.ts';
import { keyView } from './manage-keys.ts';

export type Caller = ApiKeyOwner;

export type Authenticator = Pick<ApiKeyStore, 'authenticate'>;

export type ReadAccount = ReturnType<typeof accountViews>;

export function accountViews(
  ledger: Pick<LedgerStore, 'balances' | 'inFlight'>,
  apiKeys: Pick<ApiKeyStore, 'find' | 'list'>,
) {
  const credits = async ({ accountId }: Caller): Promise<Balances> => {
    const balances = await ledger.balances(accountId);
    // Accounts are never removed.
    if (balances === undefined) throw new Error(`the API key of an unknown account: ${accountId}`);
    return balances;
  };
  const capOf = async ({ apiKeyId, policy }: Caller) => {
    if (policy?.cap === undefined) return undefined;
    const key = await apiKeys.find(apiKeyId);
    if (key?.policy.cap === undefined || key.capUse === null) return undefined;
    return { cap: key.policy.cap, ...key.capUse };
  };
  return {
    credits,
    /** Available credits, at most the rest of the key's cap. */
    spendable: async (caller: Caller) => {
      const { available } = await credits(caller);
      const capped = await capOf(caller);
      if (capped === undefined) return available;
      return Math.min(available, Math.max(0, capped.cap.credits - capped.used));
    },
    inFlight: ({ accountId }: Caller) => ledger.inFlight(accountId),
    /** @returns undefined: the key's cap is not used up, or it has none */
    capRefusal: async (caller: Caller) => {
      const capped = await capOf(caller);
      if (capped === undefined) return undefined;
      const { cap, used, resetsAtMs } = capped;
      return used + CREDITS_PER_JOB > cap.credits ? capReached(cap, resetsAtMs) : undefined;
    },
    view: async (caller: Caller) => ({ credits: await credits(caller) }),
    /** Oldest first, including revoked keys. Contains no secret. */
    keys: async ({ accountId }: Caller) => {
      const keys = await apiKeys.list(accountId);
      return { keys: keys.map(keyView) };
    },
  };
}
