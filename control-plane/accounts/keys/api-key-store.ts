import { type Database, query } from '@matting/database/database.ts';
import { ApiKeyCache } from './api-key-cache.ts';
import {
  type ChangedBy,
  changeApiKey,
  createApiKey,
  createApiKeyBy,
  type KeyChange,
  type KeyRevokedStep,
  type NewKey,
  type NewKeyBy,
  revokeApiKey,
  rotateApiKey,
} from './change-api-keys.ts';
import { type KeyUse, writeKeyUses } from './key-uses.ts';
import {
  findApiKey,
  type KeyCursor,
  listApiKeys,
  listExpiringKeys,
  listNewestApiKeys,
} from './read-api-keys.ts';

export type ApiKeyStore = ReturnType<typeof createApiKeyStore>;

export function createApiKeyStore(database: Database, revoked: readonly KeyRevokedStep[]) {
  const cache = new ApiKeyCache(database);
  const changing = <T>(apiKeyId: string, change: Promise<T>) =>
    change.finally(() => cache.forget(apiKeyId));
  return {
    create: (accountId: string, name: string, settings: NewKey = {}) =>
      createApiKey(database, accountId, name, settings),
    createBy: (accountId: string, name: string, settings: NewKeyBy) =>
      createApiKeyBy(database, accountId, name, settings),
    /** Every replica notices a change of a key within API_KEY_CACHE_MS. */
    authenticate: cache.authenticate,
    /** Answers from the cache without a query; undefined: this secret is not cached. */
    recall: cache.recall,
    revoke: (id: string, by?: ChangedBy) => changing(id, revokeApiKey(database, id, revoked, by)),
    rotate: (id: string, by: ChangedBy & { readonly overlapMs: number }) =>
      changing(id, rotateApiKey(database, id, by)),
    change: (id: string, by: ChangedBy, change: KeyChange) =>
      changing(id, changeApiKey(database, id, by, change)),
    list: (accountId?: string) => listApiKeys(database, accountId),
    listNewest: (accountId: string, limit: number, after?: KeyCursor) =>
      listNewestApiKeys(database, accountId, limit, after),
    listExpiring: (page: { after: string; withinMs: number; limit: number }) =>
      listExpiringKeys(database, page),
    find: (id: string, accountId?: string) =>
      query(database, db => findApiKey(database, db, id, accountId)),
    noteUses: (uses: readonly KeyUse[]) => writeKeyUses(database, uses),
  };
}
