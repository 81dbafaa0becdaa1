/** Reads of API keys for people: without their secrets, and without the service's own keys. */
import type { Kysely } from 'kysely';
import type { Database } from '../database/connect.ts';
import { ofAccount } from '../database/of-account.ts';
import type { Schema } from '../database/schema.ts';
import { query } from '../database/transact.ts';
import { isAsciiWord } from '../database/values.ts';
import { type ApiKey, apiKeyFromRow, selectApiKeys } from './api-key-rows.ts';

/** Keys of one statement. */
const KEYS_PAGE_ROWS = 500;

/** Behind which key a page begins. */
export type KeyPlace = Pick<ApiKey, 'id' | 'createdAtMs'>;

/** Oldest first, read in pages; all accounts' without one. */
export async function listApiKeys(database: Database, accountId?: string): Promise<ApiKey[]> {
  if (accountId !== undefined && !isAsciiWord(accountId)) return [];
  const keys: ApiKey[] = [];
  for (let more = true; more; ) {
    const last = keys.at(-1);
    const page = await query(database, db =>
      accountId === undefined
        ? selectPage(database, db, last)
        : selectPageOf(database, db, accountId, last),
    );
    keys.push(...page.map(apiKeyFromRow));
    more = page.length === KEYS_PAGE_ROWS;
  }
  // Those of all accounts are read by id: no index has them by age.
  return keys.sort((a, b) => a.createdAtMs - b.createdAtMs || (a.id < b.id ? -1 : 1));
}

/** Newest first. @param limit at least 1 */
export async function listNewestApiKeys(
  database: Database,
  accountId: string,
  limit: number,
  after?: KeyPlace,
): Promise<ApiKey[]> {
  if (!isAsciiWord(accountId) || (after !== undefined && !isAsciiWord(after.id))) return [];
  const rows = await query(database, db => {
    const newest = selectApiKeys(database, db)
      .where(ofAccount(database.dialect, accountId))
      .orderBy('account_id', 'desc')
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(limit);
    if (after === undefined) return newest.execute();
    return newest
      .where('created_at', '<=', after.createdAtMs)
      .where(eb => eb.or([eb('created_at', '<', after.createdAtMs), eb('id', '<', after.id)]))
      .execute();
  });
  return rows.map(apiKeyFromRow);
}

/** Undefined: no such key. @param accountId another's key is none; any account's without one */
export async function findApiKey(
  database: Database,
  db: Kysely<Schema>,
  apiKeyId: string,
  accountId?: string,
): Promise<ApiKey | undefined> {
  if (!isAsciiWord(apiKeyId)) return undefined;
  const row = await selectApiKeys(database, db).where('id', '=', apiKeyId).executeTakeFirst();
  if (row === undefined) return undefined;
  return accountId === undefined || row.account_id === accountId ? apiKeyFromRow(row) : undefined;
}

function selectPage(database: Database, db: Kysely<Schema>, last: ApiKey | undefined) {
  return selectApiKeys(database, db)
    .where('id', '>', last?.id ?? '')
    .orderBy('id')
    .limit(KEYS_PAGE_ROWS)
    .execute();
}

function selectPageOf(
  database: Database,
  db: Kysely<Schema>,
  accountId: string,
  last: ApiKey | undefined,
) {
  const { createdAtMs = 0, id = '' } = last ?? {};
  return selectApiKeys(database, db)
    .where(ofAccount(database.dialect, accountId))
    .where('created_at', '>=', createdAtMs)
    .where(eb => eb.or([eb('created_at', '>', createdAtMs), eb('id', '>', id)]))
    .orderBy('account_id')
    .orderBy('created_at')
    .orderBy('id')
    .limit(KEYS_PAGE_ROWS)
    .execute();
}
