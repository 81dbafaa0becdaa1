import { type Database, query } from '@matting/database/database.ts';
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
import { KnownKeys } from './known-keys.ts';
import {
  findApiKey,
  type KeyCursor,
  listApiKeys,
  listExpiringKeys,
  listNewestApiKeys,
} from './read-api-keys.ts';

export type ApiKeyStore = ReturnType<typeof createApiKeyStore>;

export function createApiKeyStore(database: Database, revoked: readonly KeyRevokedStep[]) {
  const known = new KnownKeys(database);
  const changing = <T>(apiKeyId: string, change: Promise<T>) =>
    change.finally(() => known.forget(apiKeyId));
  return {
    create: (accountId: string, name: string, asked: NewKey = {}) =>
      createApiKey(database, accountId, name, asked),
    createBy: (accountId: string, name: string, asked: NewKeyBy) =>
      createApiKeyBy(database, accountId, name, asked),
    /** Every replica notices a change of a key within API_KEY_MEMORY_MS. */
    authenticate: known.authenticate,
    /** Answers from the cache without a query; undefined: this secret is not cached. */
    recall: known.recall,
    revoke: (id: string, by?: ChangedBy) => changing(id, revokeApiKey(database, id, revoked, by)),
    rotate: (id: string, by: ChangedBy & { readonly overlapMs: number }) =>
      changing(id, rotateApiKey(database, id, by)),
    change: (id: string, by: ChangedBy, change: KeyChange) =>
      changing(id, changeApiKey(database, id, by, change)),
    list: (accountId?: string) => listApiKeys(database, accountId),
    listNewest: (accountId: string, limit: number, after?: KeyCursor) =>
      listNewestApiKeys(database, accountId, limit, after),
    listExpiring: (asked: { after: string; withinMs: number; limit: number }) =>
      listExpiringKeys(database, asked),
    find: (id: string, accountId?: string) =>
      query(database, db => findApiKey(database, db, id, accountId)),
    noteUses: (uses: readonly KeyUse[]) => writeKeyUses(database, uses),
  };
}
