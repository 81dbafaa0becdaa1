/** API keys: made once, shown once, stored as a hash, found by the part that is no secret. */
import type { Kysely } from 'kysely';
import type { Database } from '../database/connect.ts';
import { databaseErrorKind } from '../database/database-errors.ts';
import { ofAccount } from '../database/of-account.ts';
import type { Schema } from '../database/schema.ts';
import { query, readBack } from '../database/transact.ts';
import { isAsciiWord } from '../database/values.ts';
import { requireName } from './account-store.ts';
import {
  type ApiKeyToken,
  createApiKeyToken,
  hashSecret,
  parseApiKeyToken,
  publicPrefix,
  secretMatches,
} from './api-key-token.ts';

export interface ApiKey {
  readonly id: string;
  readonly accountId: string;
  /** `mk_<id>`: what may be shown. */
  readonly prefix: string;
  readonly name: string;
  readonly createdAtMs: number;
  readonly revokedAtMs: number | null;
}

export interface ApiKeyOwner {
  readonly apiKeyId: string;
  readonly accountId: string;
}

export interface ApiKeyStore {
  /** The key's text is in `token` this once and nowhere else. The account must exist. */
  create(
    accountId: string,
    name: string,
  ): Promise<{ readonly key: ApiKey; readonly token: string }>;
  /**
   * 'malformed': no key of ours by its form; the database was not asked. 'unknown': no such key, a
   * wrong secret, or revoked. A revocation is seen within API_KEY_MEMORY_MS by every replica.
   */
  authenticate(token: string): Promise<ApiKeyOwner | 'malformed' | 'unknown'>;
  /**
   * What is remembered of a key, without asking the database; undefined: nothing, or nothing fresh
   * of another secret.
   */
  recall(token: string): RecalledKey | 'malformed' | 'unknown' | undefined;
  /** Undefined: no such key. The key as it is now; revoking again changes nothing. */
  revoke(apiKeyId: string): Promise<ApiKey | undefined>;
  /** Oldest first, read in pages; all accounts' without one. */
  list(accountId?: string): Promise<ApiKey[]>;
}

/**
 * How long a key that was found is trusted without reading its row again: a caller who polls a job
 * asks ten times a second. Half of what the contract gives a revocation to reach every replica.
 */
export const API_KEY_MEMORY_MS = 500;
/** Keys of one statement. */
const KEYS_PAGE_ROWS = 500;
/** Keys remembered at once; the oldest go first. */
const API_KEYS_REMEMBERED_MAX = 10_000;

export interface RecalledKey {
  /** Whose key it was when it was last read. */
  readonly owner: ApiKeyOwner;
  /** Read within API_KEY_MEMORY_MS: it may be taken for authenticated. */
  readonly isFresh: boolean;
}

interface RememberedKey {
  readonly owner: ApiKeyOwner;
  readonly secretHash: string;
  /** performance.now() before the row was read. */
  readonly readAtMs: number;
}

export function createApiKeyStore(database: Database): ApiKeyStore {
  return new SqlApiKeyStore(database);
}

class SqlApiKeyStore implements ApiKeyStore {
  readonly #database: Database;
  /** Keys that were good, in the order they were read; whose they were is known after that time. */
  readonly #remembered = new Map<string, RememberedKey>();

  constructor(database: Database) {
    this.#database = database;
  }

  async create(accountId: string, name: string): Promise<{ key: ApiKey; token: string }> {
    // Made once, however often the insert is tried: an answer that was lost leaves no second key.
    const made = createApiKeyToken();
    try {
      await query(this.#database, db => insertApiKey(this.#database, db, accountId, name, made));
    } catch (error) {
      if (databaseErrorKind(error) !== 'duplicate') throw error;
    }
    const row = await readBack(this.#database, db =>
      selectApiKeys(db)
        .where('id', '=', made.id)
        .where('secret_hash', '=', hashSecret(made.secret))
        .executeTakeFirst(),
    );
    if (row === undefined) throw new Error(`another API key has the id ${made.id}`);
    return { key: apiKeyFromRow(row), token: made.text };
  }

  async authenticate(token: string): Promise<ApiKeyOwner | 'malformed' | 'unknown'> {
    const parsed = parseApiKeyToken(token);
    if (parsed === undefined) return 'malformed';
    const remembered = this.#remembered.get(parsed.id);
    const known = isFresh(remembered) ? remembered : await this.#read(parsed.id);
    // One comparison either way, so that the time does not show whether the id is known.
    const matches = secretMatches(parsed.secret, known?.secretHash ?? hashSecret(''));
    return known !== undefined && matches ? known.owner : 'unknown';
  }

  recall(token: string): RecalledKey | 'malformed' | 'unknown' | undefined {
    const parsed = parseApiKeyToken(token);
    if (parsed === undefined) return 'malformed';
    const known = this.#remembered.get(parsed.id);
    if (known === undefined) return undefined;
    const recalled = { owner: known.owner, isFresh: isFresh(known) };
    if (secretMatches(parsed.secret, known.secretHash)) return recalled;
    return recalled.isFresh ? 'unknown' : undefined;
  }

  async revoke(apiKeyId: string): Promise<ApiKey | undefined> {
    if (!isAsciiWord(apiKeyId)) return undefined;
    this.#remembered.delete(apiKeyId);
    return query(this.#database, async db => {
      await db
        .updateTable('api_keys')
        .set({ revoked_at: this.#database.nowMs })
        .where('id', '=', apiKeyId)
        .where('revoked_at', 'is', null)
        .execute();
      const row = await selectApiKeys(db).where('id', '=', apiKeyId).executeTakeFirst();
      return row && apiKeyFromRow(row);
    });
  }

  async list(accountId?: string): Promise<ApiKey[]> {
    if (accountId !== undefined && !isAsciiWord(accountId)) return [];
    const keys: ApiKey[] = [];
    for (let more = true; more; ) {
      const last = keys.at(-1);
      const page = await query(this.#database, db =>
        accountId === undefined
          ? this.#selectPage(db, last)
          : this.#selectPageOf(db, accountId, last),
      );
      keys.push(...page.map(apiKeyFromRow));
      more = page.length === KEYS_PAGE_ROWS;
    }
    // Those of all accounts are read by id: no index has them by age.
    return keys.sort((a, b) => a.createdAtMs - b.createdAtMs || (a.id < b.id ? -1 : 1));
  }

  #selectPage(db: Kysely<Schema>, last: ApiKey | undefined) {
    return selectApiKeys(db)
      .where('id', '>', last?.id ?? '')
      .orderBy('id')
      .limit(KEYS_PAGE_ROWS)
      .execute();
  }

  #selectPageOf(db: Kysely<Schema>, accountId: string, last: ApiKey | undefined) {
    const { createdAtMs = 0, id = '' } = last ?? {};
    return selectApiKeys(db)
      .where(ofAccount(this.#database.dialect, accountId))
      .where('created_at', '>=', createdAtMs)
      .where(eb => eb.or([eb('created_at', '>', createdAtMs), eb('id', '>', id)]))
      .orderBy('account_id')
      .orderBy('created_at')
      .orderBy('id')
      .limit(KEYS_PAGE_ROWS)
      .execute();
  }

  async #read(id: string): Promise<RememberedKey | undefined> {
    const readAtMs = performance.now();
    const row = await query(this.#database, db =>
      db
        .selectFrom('api_keys')
        .select(['account_id', 'secret_hash'])
        .where('id', '=', id)
        .where('revoked_at', 'is', null)
        .executeTakeFirst(),
    );
    // Behind those that were read before it.
    this.#remembered.delete(id);
    if (row === undefined) return undefined;
    const owner: ApiKeyOwner = { apiKeyId: id, accountId: row.account_id };
    const known: RememberedKey = { owner, secretHash: row.secret_hash, readAtMs };
    if (this.#remembered.size >= API_KEYS_REMEMBERED_MAX) {
      const oldest = this.#remembered.keys().next();
      if (!oldest.done) this.#remembered.delete(oldest.value);
    }
    this.#remembered.set(id, known);
    return known;
  }
}

function isFresh(known: RememberedKey | undefined): known is RememberedKey {
  return known !== undefined && performance.now() - known.readAtMs < API_KEY_MEMORY_MS;
}

/** `db` is the database or a transaction of it; `made` is the caller's, who may try again. */
export async function insertApiKey(
  database: Database,
  db: Kysely<Schema>,
  accountId: string,
  name: string,
  made: ApiKeyToken,
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
    })
    .execute();
}

const LISTED_COLUMNS = ['id', 'account_id', 'name', 'created_at', 'revoked_at'] as const;

function selectApiKeys(db: Kysely<Schema>) {
  return db.selectFrom('api_keys').select(LISTED_COLUMNS);
}

function apiKeyFromRow(row: Pick<Schema['api_keys'], (typeof LISTED_COLUMNS)[number]>): ApiKey {
  return {
    id: row.id,
    accountId: row.account_id,
    prefix: publicPrefix(row.id),
    name: row.name,
    createdAtMs: row.created_at,
    revokedAtMs: row.revoked_at,
  };
}
