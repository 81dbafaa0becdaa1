/** API keys: made once, shown once, stored as a hash, found by the part that is no secret. */
import type { Database } from '../database/connect.ts';
import { query } from '../database/transact.ts';
import { createApiKey, type NewKey, revokeApiKey } from './api-key-changes.ts';
import { findApiKey, type KeyPlace, listApiKeys, listNewestApiKeys } from './api-key-lists.ts';
import type { ApiKey } from './api-key-rows.ts';
import { type KeyUse, writeKeyUses } from './key-uses.ts';
import { type Authentication, KnownKeys, type RecalledKey } from './known-keys.ts';

export type { ApiKey } from './api-key-rows.ts';
export { API_KEY_MEMORY_MS, type ApiKeyOwner } from './known-keys.ts';

export interface ApiKeyStore {
  /** The key's text is in `token` this once and nowhere else. The account must exist. */
  create(
    accountId: string,
    name: string,
    asked?: NewKey,
  ): Promise<{ readonly key: ApiKey; readonly token: string }>;
  /**
   * 'malformed': no key of ours by its form; the database was not asked. 'unknown': no such key, a
   * wrong secret, or revoked. A change of a key is seen within API_KEY_MEMORY_MS by every replica.
   */
  authenticate(token: string): Promise<Authentication>;
  /** What is remembered of a key, without asking the database; undefined: nothing of this secret. */
  recall(token: string): RecalledKey | 'malformed' | undefined;
  /** Undefined: no such key. The key as it is now; revoking again changes nothing. */
  revoke(apiKeyId: string): Promise<ApiKey | undefined>;
  /** Oldest first, read in pages; all accounts' without one. Never the service's own. */
  list(accountId?: string): Promise<ApiKey[]>;
  /** A page of an account's, newest first. */
  listNewest(accountId: string, limit: number, after?: KeyPlace): Promise<ApiKey[]>;
  /** Undefined: no such key, or another account's than the one given. */
  find(apiKeyId: string, accountId?: string): Promise<ApiKey | undefined>;
  /** Raises when keys were used last. */
  noteUses(uses: readonly KeyUse[]): Promise<void>;
}

export function createApiKeyStore(database: Database): ApiKeyStore {
  const known = new KnownKeys(database);
  return {
    create: (accountId, name, asked = {}) => createApiKey(database, accountId, name, asked),
    authenticate: token => known.authenticate(token),
    recall: token => known.recall(token),
    revoke: apiKeyId => revokeApiKey(database, apiKeyId).finally(() => known.forget(apiKeyId)),
    list: accountId => listApiKeys(database, accountId),
    listNewest: (accountId, limit, after) => listNewestApiKeys(database, accountId, limit, after),
    find: (apiKeyId, accountId) =>
      query(database, db => findApiKey(database, db, apiKeyId, accountId)),
    noteUses: uses => writeKeyUses(database, uses),
  };
}
