/** Changes of API keys. One that is tried again, since its answer was lost, changes nothing more. */
import type { Kysely } from 'kysely';
import { type KeyPolicy, NO_POLICY } from '../../domain/account/key-policy.ts';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { databaseErrorKind } from '../database/database-errors.ts';
import type { Schema } from '../database/schema.ts';
import { query, readBack } from '../database/transact.ts';
import { isAsciiWord } from '../database/values.ts';
import { requireName } from './account-store.ts';
import { findApiKey } from './api-key-lists.ts';
import { type ApiKey, apiKeyFromRow, policyColumns, selectApiKeys } from './api-key-rows.ts';
import { type ApiKeyToken, createApiKeyToken, hashSecret } from './api-key-token.ts';

export interface NewKey {
  readonly policy?: KeyPolicy;
  /** Absent: it does not expire. */
  readonly expiresInMs?: number;
}

export async function createApiKey(
  database: Database,
  accountId: string,
  name: string,
  asked: NewKey,
): Promise<{ key: ApiKey; token: string }> {
  // Made once, however often the insert is tried: an answer that was lost leaves no second key.
  const made = createApiKeyToken();
  try {
    await query(database, db => insertApiKey(database, db, accountId, name, made, asked));
  } catch (error) {
    if (databaseErrorKind(error) !== 'duplicate') throw error;
  }
  const row = await readBack(database, db =>
    selectApiKeys(database, db)
      .where('id', '=', made.id)
      .where('secret_hash', '=', hashSecret(made.secret))
      .executeTakeFirst(),
  );
  if (row === undefined) throw new Error(`another API key has the id ${made.id}`);
  return { key: apiKeyFromRow(row), token: made.text };
}

export async function revokeApiKey(
  database: Database,
  apiKeyId: string,
): Promise<ApiKey | undefined> {
  if (!isAsciiWord(apiKeyId)) return undefined;
  return query(database, async db => {
    await db
      .updateTable('api_keys')
      .set({ revoked_at: database.nowMs })
      .where('id', '=', apiKeyId)
      .where('revoked_at', 'is', null)
      .where('purpose', 'is', null)
      .execute();
    return findApiKey(database, db, apiKeyId);
  });
}

/** `db` is the database or a transaction of it; `made` is the caller's, who may try again. */
export async function insertApiKey(
  database: Database,
  db: Kysely<Schema>,
  accountId: string,
  name: string,
  made: ApiKeyToken,
  { policy = NO_POLICY, expiresInMs }: NewKey = {},
): Promise<void> {
  requireName(name);
  await db
    .insertInto('api_keys')
    .values({
      id: made.id,
      account_id: accountId,
      name,
      secret_hash: hashSecret(made.secret),
      created_at: database.nowMs,
      expires_at: expiresInMs === undefined ? null : nowPlusMs(database.nowMs, expiresInMs),
      ...policyColumns(policy),
    })
    .execute();
}
