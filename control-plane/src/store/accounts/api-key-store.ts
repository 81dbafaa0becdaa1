/** API keys: made once, shown once, stored as a hash, found by the part that is no secret. */
import type { Database } from '../database/connect.ts';
import { query } from '../database/transact.ts';
import {
  type ChangedBy,
  changeApiKey,
  createApiKey,
  createApiKeyBy,
  type KeyChange,
  type MadeKey,
  type NewKey,
  type NewKeyBy,
  revokeApiKey,
  rotateApiKey,
} from './api-key-changes.ts';
import type { ApiKey } from './api-key-rows.ts';
import { findApiKey, type KeyPlace, listApiKeys, listNewestApiKeys } from './api-key-rows.ts';
import {
  type Authentication,
  type KeyUse,
  KnownKeys,
  type RecalledKey,
  writeKeyUses,
} from './known-keys.ts';

export type { KeyChange, MadeKey, NewKey, NewKeyBy } from './api-key-changes.ts';
export type { ApiKey, KeyPlace } from './api-key-rows.ts';
export { API_KEY_MEMORY_MS, type ApiKeyOwner } from './known-keys.ts';

export interface ApiKeyStore {
  /** The key's text is in `token` this once and nowhere else. The account must exist. */
  create(accountId: string, name: string, asked?: NewKey): Promise<MadeKey>;
  /** The same by somebody, in the account's log. 'too-many': the account has as many as it may. */
  createBy(accountId: string, name: string, asked: NewKeyBy): Promise<MadeKey | 'too-many'>;
  /**
   * 'malformed': no key of ours by its form; the database was not asked. 'unknown': no such key, a
   * wrong secret, or revoked. A change of a key is seen within API_KEY_MEMORY_MS by every replica.
   */
  authenticate(token: string): Promise<Authentication>;
  /** What is remembered of a key, without asking the database; undefined: nothing of this secret. */
  recall(token: string): RecalledKey | 'malformed' | undefined;
  /** Undefined: no such key. The key as it is now; revoking again changes nothing. */
  revoke(apiKeyId: string, by?: ChangedBy): Promise<ApiKey | undefined>;
  /**
   * A new secret, beside which the old one goes on for `overlapMs`; at 0 it ends now. Undefined: no
   * such key, or it is revoked.
   */
  rotate(
    apiKeyId: string,
    by: ChangedBy & { readonly overlapMs: number },
  ): Promise<MadeKey | undefined>;
  /** Undefined: no such key, or it is revoked. The key as it is now. */
  change(apiKeyId: string, by: ChangedBy, change: KeyChange): Promise<ApiKey | undefined>;
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
  /** What this replica remembers of a key ends with its change. */
  const changing = <T>(apiKeyId: string, change: Promise<T>) =>
    change.finally(() => known.forget(apiKeyId));
  return {
    create: (accountId, name, asked = {}) => createApiKey(database, accountId, name, asked),
    createBy: (accountId, name, asked) => createApiKeyBy(database, accountId, name, asked),
    authenticate: token => known.authenticate(token),
    recall: token => known.recall(token),
    revoke: (id, by) => changing(id, revokeApiKey(database, id, by)),
    rotate: (id, by) => changing(id, rotateApiKey(database, id, by)),
    change: (id, by, change) => changing(id, changeApiKey(database, id, by, change)),
    list: accountId => listApiKeys(database, accountId),
    listNewest: (accountId, limit, after) => listNewestApiKeys(database, accountId, limit, after),
    find: (id, accountId) => query(database, db => findApiKey(database, db, id, accountId)),
    noteUses: uses => writeKeyUses(database, uses),
  };
}
