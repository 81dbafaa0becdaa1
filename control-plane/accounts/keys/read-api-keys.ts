import { type Database, type Db, query, type Schema } from '@matting/database/database.ts';
import { isAsciiWord, ofAccount } from '@matting/database/statements.ts';
import { yieldToEventLoop } from '@matting/program/event-loop.ts';
import { publicPrefix } from './api-key-token.ts';
import { capCountAt, capResetsAtMs, type KeyCap } from './key-policy.ts';
import { POLICY_COLUMNS, policyFromRow } from './policy-columns.ts';

export type ApiKey = ReturnType<typeof apiKeyFromRow>;

const LISTED_COLUMNS = [
  'id',
  'account_id',
  'name',
  'created_at',
  'revoked_at',
  'expires_at',
  'last_used_at',
  'previous_expires_at',
  'previous_last_used_at',
  'cap_window_start',
  'cap_used',
  'made_by',
  ...POLICY_COLUMNS,
] as const;

/** Leaves out the keys of packages. */
export function selectApiKeys(database: Database, db: Db) {
  return db
    .selectFrom('api_keys')
    .select(LISTED_COLUMNS)
    .select(database.nowMs.as('read_at'))
    .where('purpose', 'is', null);
}

type ListedRow = Pick<Schema['api_keys'], (typeof LISTED_COLUMNS)[number]> & {
  readonly read_at: number;
};

export function apiKeyFromRow(row: ListedRow) {
  const policy = policyFromRow(row);
  const endsAtMs = row.previous_expires_at;
  return {
    id: row.id,
    accountId: row.account_id,
    prefix: publicPrefix(row.id),
    name: row.name,
    createdAtMs: row.created_at,
    revokedAtMs: row.revoked_at,
    expiresAtMs: row.expires_at,
    /** Last use of either secret, up to a minute old. null: never used. */
    lastUsedAtMs: row.last_used_at,
    /** The secret before the last rotation, while it is valid. */
    previousSecret:
      endsAtMs === null || endsAtMs <= row.read_at
        ? null
        : { endsAtMs, lastUsedAtMs: row.previous_last_used_at },
    policy,
    capUse: policy.cap === undefined ? null : capUseOf(policy.cap, row),
    /** The person who created the latest secret; null: the operator. */
    madeBy: row.made_by,
    state: stateOf(row),
  };
}

function stateOf({ revoked_at, expires_at, read_at }: ListedRow) {
  if (revoked_at !== null) return 'revoked';
  return expires_at !== null && expires_at <= read_at ? 'expired' : 'active';
}

function capUseOf(cap: KeyCap, row: ListedRow) {
  const count = { windowStartMs: row.cap_window_start, used: row.cap_used ?? 0 };
  return {
    used: capCountAt(cap, count, row.read_at).used,
    resetsAtMs: capResetsAtMs(cap.period, row.read_at),
  };
}

/** Keys per statement and per turn of the event loop: a few milliseconds. */
const KEYS_PAGE_ROWS = 250;

export type KeyCursor = Pick<ApiKey, 'id' | 'createdAtMs'>;

/** Oldest first; without an account, the keys of all. */
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
    if (more) await yieldToEventLoop();
  }
  // Without an account, the read is by id: no index has all keys by age.
  return keys.sort((a, b) => a.createdAtMs - b.createdAtMs || (a.id < b.id ? -1 : 1));
}

export async function listNewestApiKeys(
  database: Database,
  accountId: string,
  limit: number,
  after?: KeyCursor,
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

/** @returns undefined: no such key, or another account has it */
export async function findApiKey(
  database: Database,
  db: Db,
  apiKeyId: string,
  accountId?: string,
): Promise<ApiKey | undefined> {
  if (!isAsciiWord(apiKeyId)) return undefined;
  const row = await selectApiKeys(database, db).where('id', '=', apiKeyId).executeTakeFirst();
  if (row === undefined) return undefined;
  return accountId === undefined || row.account_id === accountId ? apiKeyFromRow(row) : undefined;
}

/**
 * Reads `limit` keys after the id `after`, and lists those that expire within the time. `next`: the
 * last id read; undefined: there are no more keys.
 */
export async function listExpiringKeys(
  database: Database,
  { after, withinMs, limit }: { after: string; withinMs: number; limit: number },
) {
  const rows = await query(database, db =>
    db
      .selectFrom('api_keys')
      .select(['id', 'account_id as accountId', 'name', 'expires_at', 'revoked_at'])
      .select(() => database.nowMs.as('readAtMs'))
      .where('id', '>', after)
      .orderBy('id')
      .limit(limit)
      .execute(),
  );
  const expiring = rows.flatMap(({ expires_at: expiresAtMs, revoked_at, ...key }) => {
    if (expiresAtMs === null || revoked_at !== null) return [];
    if (expiresAtMs <= key.readAtMs || expiresAtMs > key.readAtMs + withinMs) return [];
    return [{ ...key, prefix: publicPrefix(key.id), expiresAtMs }];
  });
  return { expiring, next: rows.length < limit ? undefined : rows.at(-1)?.id };
}

function selectPage(database: Database, db: Db, last: ApiKey | undefined) {
  return selectApiKeys(database, db)
    .where('id', '>', last?.id ?? '')
    .orderBy('id')
    .limit(KEYS_PAGE_ROWS)
    .execute();
}

function selectPageOf(database: Database, db: Db, accountId: string, last: ApiKey | undefined) {
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
