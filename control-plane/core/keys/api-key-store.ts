/** API keys: made once, shown once, stored as a hash, found by the part that is no secret. */
import type { Database } from '../database/connect.ts';
import { query } from '../database/transact.ts';
import {
  type ChangedBy,
  changeApiKey,
  createApiKey,
  createApiKeyBy,
  type KeyChange,
  type NewKey,
  type NewKeyBy,
  revokeApiKey,
  rotateApiKey,
} from './api-key-changes.ts';
import { findApiKey, type KeyPlace, listApiKeys, listNewestApiKeys } from './api-key-rows.ts';
import { type KeyUse, KnownKeys, writeKeyUses } from './known-keys.ts';

export type { KeyChange, MadeKey, NewKey, NewKeyBy } from './api-key-changes.ts';
export type { ApiKey, KeyPlace } from './api-key-rows.ts';
export { API_KEY_MEMORY_MS, type ApiKeyOwner } from './known-keys.ts';

export type ApiKeyStore = ReturnType<typeof createApiKeyStore>;

export function createApiKeyStore(database: Database) {
  const known = new KnownKeys(database);
  /** What this replica remembers of a key ends with its change. */
  const changing = <T>(apiKeyId: string, change: Promise<T>) =>
    change.finally(() => known.forget(apiKeyId));
  return {
    /** The key's text is in `token` this once and nowhere else. The account must exist. */
    create: (accountId: string, name: string, asked: NewKey = {}) =>
      createApiKey(database, accountId, name, asked),
    /** The same by somebody, in the account's log. 'too-many': the account has as many as it may. */
    createBy: (accountId: string, name: string, asked: NewKeyBy) =>
      createApiKeyBy(database, accountId, name, asked),
    /**
     * 'malformed': no key of ours by its form; the database was not asked. 'unknown': no such key,
     * a wrong secret, or revoked. A change of a key is seen within API_KEY_MEMORY_MS by every
     * replica.
     */
    authenticate: (token: string) => known.authenticate(token),
    /** What is remembered of a key, without asking the database; undefined: nothing of this secret. */
    recall: (token: string) => known.recall(token),
    /** Undefined: no such key. The key as it is now; revoking again changes nothing. */
    revoke: (id: string, by?: ChangedBy) => changing(id, revokeApiKey(database, id, by)),
    /**
     * A new secret, beside which the old one goes on for `overlapMs`; at 0 it ends now. Undefined: no
     * such key, or it is revoked.
     */
    rotate: (id: string, by: ChangedBy & { readonly overlapMs: number }) =>
      changing(id, rotateApiKey(database, id, by)),
    /** Undefined: no such key, or it is revoked. The key as it is now. */
    change: (id: string, by: ChangedBy, change: KeyChange) =>
      changing(id, changeApiKey(database, id, by, change)),
    /** Oldest first, read in pages; all accounts' without one. Never the service's own. */
    list: (accountId?: string) => listApiKeys(database, accountId),
    /** A page of an account's, newest first. */
    listNewest: (accountId: string, limit: number, after?: KeyPlace) =>
      listNewestApiKeys(database, accountId, limit, after),
    /** Undefined: no such key, or another account's than the one given. */
    find: (id: string, accountId?: string) =>
      query(database, db => findApiKey(database, db, id, accountId)),
    /** Raises when keys were used last. */
    noteUses: (uses: readonly KeyUse[]) => writeKeyUses(database, uses),
  };
}
