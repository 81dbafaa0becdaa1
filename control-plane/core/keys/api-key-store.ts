/** API keys: made once, shown once, stored as a hash, found by the part that is no secret. */

import { sql } from 'kysely';
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
import {
  findApiKey,
  hashSecret,
  type KeyPlace,
  listApiKeys,
  listNewestApiKeys,
  POLICY_COLUMNS,
  parseApiKeyToken,
  policyFromRow,
  secretMatches,
} from './api-key-rows.ts';
import type { KeyPolicy } from './key-policy.ts';

export type { KeyChange, MadeKey, NewKey, NewKeyBy } from './api-key-changes.ts';
export type { ApiKey, KeyPlace } from './api-key-rows.ts';

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

/*
 * Authentication by the key's row, and what is remembered of it. A key has one secret, or two while
 * it is rotated.
 *
 * | what is shown                        | what is answered                                       |
 * |--------------------------------------|--------------------------------------------------------|
 * | a secret that goes on, of a fresh    | its owner, without a statement                         |
 * | memory                               |                                                        |
 * | anything else of the form of a key   | what the row says now: a secret that was made a moment |
 * |                                      | ago is in no memory                                    |
 */

export interface ApiKeyOwner {
  readonly apiKeyId: string;
  readonly accountId: string;
  /** Absent: it may do what its account may. */
  readonly policy?: KeyPolicy;
  /** It was shown the secret from before the last rotation, which goes on for a while. */
  readonly byPreviousSecret?: true;
}

/** A secret that was right, until then. */
interface EndedSecret {
  /** expired: the whole key. replaced: this secret, by a rotation. */
  readonly kind: 'expired' | 'replaced';
  readonly atMs: number;
}

type Authentication = ApiKeyOwner | EndedSecret | 'malformed' | 'unknown';

function isEnded(found: ApiKeyOwner | EndedSecret): found is EndedSecret {
  return 'kind' in found;
}

interface RecalledKey {
  /** Whose key it was when it was last read. */
  readonly owner: ApiKeyOwner;
  /** Read within API_KEY_MEMORY_MS: it may be taken for authenticated. */
  readonly isFresh: boolean;
}

/**
 * How long a key that was found is trusted without reading its row again: a caller who polls a job
 * asks ten times a second. Half of what the contract gives a revocation to reach every replica.
 */
export const API_KEY_MEMORY_MS = 500;
/** Keys remembered at once; the oldest go first. */
const API_KEYS_REMEMBERED_MAX = 10_000;
/** Compared where a key has one secret, so that the time does not show how many there are. */
const NO_SECRET = hashSecret('');

interface Secret<Is> {
  readonly hash: string;
  readonly is: Is;
}

interface KnownKey {
  /** The current secret, and the one before it; or no such key. */
  readonly secrets: readonly Secret<ApiKeyOwner | EndedSecret>[];
  /** By performance.now(): the memory's end, or that of one of the secrets. */
  readonly freshUntilMs: number;
}

const UNKNOWN: KnownKey = { secrets: [], freshUntilMs: 0 };

class KnownKeys {
  readonly #database: Database;
  /** Keys that were good, in the order they were read; whose they were is known after that time. */
  readonly #remembered = new Map<string, KnownKey>();

  constructor(database: Database) {
    this.#database = database;
  }

  async authenticate(token: string): Promise<Authentication> {
    const parsed = parseApiKeyToken(token);
    if (parsed === undefined) return 'malformed';
    const recalled = this.recall(token);
    if (typeof recalled === 'object' && recalled.isFresh) return recalled.owner;
    return ofSecret(await this.#read(parsed.id), parsed.secret) ?? 'unknown';
  }

  recall(token: string): RecalledKey | 'malformed' | undefined {
    const parsed = parseApiKeyToken(token);
    if (parsed === undefined) return 'malformed';
    const known = this.#remembered.get(parsed.id);
    if (known === undefined) return undefined;
    const owner = ofSecret(known, parsed.secret);
    if (owner === undefined || isEnded(owner)) return undefined;
    return { owner, isFresh: performance.now() < known.freshUntilMs };
  }

  /** Of a key that changed: the next one who shows it reads its row. */
  forget(apiKeyId: string): void {
    this.#remembered.delete(apiKeyId);
  }

  async #read(id: string): Promise<KnownKey> {
    let beganMs = 0;
    const { nowMs } = this.#database;
    const row = await query(this.#database, db => {
      beganMs = performance.now();
      return db
        .selectFrom('api_keys')
        .select(['account_id', 'secret_hash', 'expires_at'])
        .select(['previous_secret_hash', 'previous_expires_at'])
        .select(POLICY_COLUMNS)
        .select(nowMs.as('read_at'))
        .where('id', '=', id)
        .where('revoked_at', 'is', null)
        .where('purpose', 'is', null)
        .executeTakeFirst();
    });
    // Behind those that were read before it.
    this.#remembered.delete(id);
    if (row === undefined) return UNKNOWN;
    const known = knownFromRow(id, row, beganMs);
    if (known.freshUntilMs <= beganMs) return known;
    if (this.#remembered.size >= API_KEYS_REMEMBERED_MAX) {
      const oldest = this.#remembered.keys().next();
      if (!oldest.done) this.#remembered.delete(oldest.value);
    }
    this.#remembered.set(id, known);
    return known;
  }
}

type KeyRow = Parameters<typeof policyFromRow>[0] & {
  readonly account_id: string;
  readonly secret_hash: string;
  readonly expires_at: number | null;
  readonly previous_secret_hash: string | null;
  readonly previous_expires_at: number | null;
  readonly read_at: number;
};

/** @param beganMs performance.now() before the row was read */
function knownFromRow(id: string, row: KeyRow, beganMs: number): KnownKey {
  const policy = policyFromRow(row);
  const hasPolicy = Object.keys(policy).length > 0;
  const owner: ApiKeyOwner = {
    apiKeyId: id,
    accountId: row.account_id,
    ...(hasPolicy ? { policy } : {}),
  };
  const leftMs = (row.expires_at ?? Number.POSITIVE_INFINITY) - row.read_at;
  const previousLeftMs = (row.previous_expires_at ?? 0) - row.read_at;
  const expired: EndedSecret = { kind: 'expired', atMs: row.expires_at ?? 0 };
  const replaced: EndedSecret = { kind: 'replaced', atMs: row.previous_expires_at ?? 0 };
  const ofPrevious: ApiKeyOwner | EndedSecret =
    previousLeftMs > 0 ? { ...owner, byPreviousSecret: true } : replaced;
  const secrets: Secret<ApiKeyOwner | EndedSecret>[] = [
    { hash: row.secret_hash, is: leftMs > 0 ? owner : expired },
  ];
  if (row.previous_secret_hash !== null) {
    const isReplaced = previousLeftMs <= 0;
    const is = leftMs > 0 || isReplaced ? ofPrevious : expired;
    secrets.push({ hash: row.previous_secret_hash, is });
  }
  const trustedMs = Math.min(
    API_KEY_MEMORY_MS,
    leftMs,
    previousLeftMs > 0 ? previousLeftMs : API_KEY_MEMORY_MS,
  );
  return { secrets, freshUntilMs: beganMs + trustedMs };
}

/** Always two comparisons. */
function ofSecret(known: KnownKey, secret: string): ApiKeyOwner | EndedSecret | undefined {
  const [current, previous] = known.secrets;
  const isCurrent = secretMatches(secret, current?.hash ?? NO_SECRET);
  const isPrevious = secretMatches(secret, previous?.hash ?? NO_SECRET);
  if (isCurrent) return current?.is;
  return isPrevious ? previous?.is : undefined;
}

interface KeyUse {
  readonly apiKeyId: string;
  readonly byPreviousSecret: boolean;
  /** How long ago. */
  readonly ageMs: number;
}

/** Uses of one statement. */
const USES_MAX = 100;

/** An earlier time than the one that is there changes nothing. */
async function writeKeyUses(database: Database, uses: readonly KeyUse[]): Promise<void> {
  const ofPrevious = uses.filter(use => use.byPreviousSecret);
  // The key's own column has the uses of both.
  for (const [column, some] of [
    ['last_used_at', uses],
    ['previous_last_used_at', ofPrevious],
  ] as const) {
    for (let from = 0; from < some.length; from += USES_MAX) {
      await writeBatch(database, column, some.slice(from, from + USES_MAX));
    }
  }
}

async function writeBatch(
  database: Database,
  column: 'last_used_at' | 'previous_last_used_at',
  uses: readonly KeyUse[],
): Promise<void> {
  const ageMs = new Map<string, number>();
  for (const use of uses) {
    ageMs.set(use.apiKeyId, Math.min(use.ageMs, ageMs.get(use.apiKeyId) ?? use.ageMs));
  }
  const cases = [...ageMs].map(
    ([id, age]) => sql`when ${id} then ${database.nowMs} - ${Math.max(0, Math.round(age))}`,
  );
  const usedAt = sql<number>`case ${sql.ref('id')} ${sql.join(cases, sql` `)} end`;
  await query(database, db =>
    db
      .updateTable('api_keys')
      .set({ [column]: usedAt })
      .where('id', 'in', [...ageMs.keys()])
      .where(eb => eb.or([eb(column, 'is', null), eb(column, '<', usedAt)]))
      .execute(),
  );
}
